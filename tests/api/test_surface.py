"""What `import spanloom` offers: the names, their parameters, and what importing it costs."""

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import spanloom
import spanloom.training
from conftest import REPOSITORY
from support.commands import all_commands

NAMES = [
    "BuildResult",
    "Dataset",
    "Document",
    "FindingsError",
    "Report",
    "Span",
    "SpanloomError",
    "__version__",
    "audit",
    "build",
    "convert",
    "export",
    "inspect",
    "open_dataset",
    "plan",
    "training",
    "validate",
]
TRAINING = [
    "DocumentDataset",
    "PackedDataset",
    "SpanGPTDataset",
    "SpanWeights",
    "StreamDataset",
    "distillation_loss",
    "span_normalized_loss",
    "span_trainer",
]
PARAMETERS = {
    "build": "source out=None * history=None train=None turns=None call_format=None mask_generation_prompt=False "
    "model=None inline_think=False call_ids=None inline_calls=None text_beside_calls=None emission=None thinking=None "
    "boundary=None stop=() date=None variables=None control_texts=None proof=None max_rows=None "
    "max_rows_per_shard=None longest=None max_rejects='0' max_tokens=None workers=None resume=True "
    "overwrite=False keep_work=False disk_check=True allow_unknown_sha=False reuse=None valid_fraction=0.001 "
    "on_duplicate='error' renderer='fast' audit_fraction=0.001 tokenizer=None shards=None deep=64 reader='auto' "
    "scratch=None progress=False",
    "convert": "inputs out * map=None metadata=() think_tags=None call_tags=None text_as_is=False role=None "
    "join_consecutive=False keep_unprompted=False calls_in_turn=False identity=None effort=None date=None cutoff=None "
    "developer=None drop=() on_duplicate_content='keep' max_rejects='0' format='conversations' rows_per_shard=65536 "
    "workers=1 dataset=None "
    "license=None overwrite=False scratch=None progress=False",
    "export": "root out=None * to='parquet' trainer=None sequence_length=None too_long=None teacher=None "
    "croissant=None tokens_per_file=67108864 push=None overwrite=False progress=False",
    "plan": "root sequence_length out=None * strategy='best-fit' seed=0 long='window' question_tokens=None "
    "multiple_of=1 overwrite=False progress=False",
    "inspect": "root documents * ids=() pick='random' count=1 seed=0 split=None shard=None without=None tokenizer=None "
    "teacher=None html=None",
    "audit": "data model * messages=None mask=None aligned=None declare=() sample=None seed=0 workers=None html=None "
    "progress=False",
    "open_dataset": "root split=None * tokenizer=None teacher=None allow_harmful=False",
    "validate": "root * source=() deep=None tokenizer=None reader='auto' report=None html=None workers=None "
    "scratch=None progress=False",
}
"""What users' code relies on. A keyword may be added; one that goes or changes breaks that code."""


def parameters(function: object) -> str:
    """`root split=None * tokenizer=None`"""
    words: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():  # type: ignore[arg-type]
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(name if parameter.default is parameter.empty else f"{name}={parameter.default!r}")
    return " ".join(words)


def test_the_names_are_these() -> None:
    assert spanloom.__all__ == NAMES == sorted(NAMES)
    assert spanloom.training.__all__ == TRAINING == sorted(TRAINING)
    assert [name for name in dir(spanloom) if not name.startswith("__")] == [n for n in NAMES if n != "__version__"]
    for name in NAMES:
        assert getattr(spanloom, name) is not None
    for name in TRAINING:
        assert getattr(spanloom.training, name).__module__.startswith("spanloom.training.")
    with pytest.raises(AttributeError, match="has no attribute 'biuld'"):
        spanloom.biuld  # noqa: B018


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_parameters_are_these(name: str) -> None:
    assert parameters(getattr(spanloom, name)) == PARAMETERS[name]


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("build", {"disk_check", "progress"}),
        ("convert", {"progress"}),
        ("validate", {"report", "progress"}),
        ("export", {"progress"}),
        ("plan", {"progress"}),
    ],
)
def test_an_option_has_the_commands_name_and_default(name: str, others: set[str]) -> None:
    options = {option.name: option for option in all_commands()[name].params}
    for parameter in inspect.signature(getattr(spanloom, name)).parameters.values():
        if parameter.name in others or parameter.default is parameter.empty:
            continue
        assert (parameter.default or None) == (options[parameter.name].default or None), parameter.name


def test_importing_it_imports_no_libraries() -> None:
    code = (
        "import sys; before = set(sys.modules); import spanloom; dir(spanloom); dir(spanloom.training);"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['spanloom']"


def test_functions_import_neither_torch_nor_megatron() -> None:
    code = (
        "import sys, spanloom; [getattr(spanloom, name) for name in spanloom.__all__];"
        "print([name for name in ('torch', 'megatron', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_its_help_is_for_users() -> None:
    text = pydoc.plain(pydoc.render_doc(spanloom))
    assert "chat data in any common form → a source folder" in text
    for name in ("build", "convert", "open_dataset", "validate"):
        assert f"{name}(" in text


@pytest.mark.nightly  # mypy reads the package without its cache
def test_mypy_sees_the_types(tmp_path: Path) -> None:
    """`reveal_type` in a file of a user: no Any, and a misspelt name is an error."""
    file = tmp_path / "user.py"
    file.write_text(
        "import spanloom\n"
        "reveal_type(spanloom.build)\n"
        'reveal_type(spanloom.open_dataset("root")[0].tokens)\n'
        "spanloom.biuld\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(REPOSITORY / "pyproject.toml"), str(file)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
    )
    assert "def (source: str | os.PathLike[str]" in done.stdout.replace("builtins.", "")
    assert "BuildResult" in done.stdout
    assert "numpy.signedinteger[numpy._typing._nbit_base._32Bit]" in done.stdout
    assert 'Module has no attribute "biuld"' in done.stdout


def test_a_class_that_needs_a_package_says_which() -> None:
    code = "import sys; sys.modules['torch'] = None\nfrom spanloom.training import StreamDataset\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "spanloom.training.StreamDataset needs torch: pip install 'torch'" in done.stderr
