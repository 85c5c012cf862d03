"""Commands load when they are asked for: each from its own file, and nothing that it does not need."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

import spanloom.cli
from spanloom.cli import app as frame
from spanloom.cli.declared import does
from support.commands import all_commands
from support.demo_datasets import built
from support.sources import rows, write_source

TASKS = {"pipelines", "pipelines.tasks"}
DATASET = {"dataset", "dataset.describe", "dataset.export", "dataset.look"}
MODELS = {"models.audit", "models.commands"}
FOLDER = Path(spanloom.cli.__file__).parent
FILES = sorted(".".join(path.relative_to(FOLDER).with_suffix("").parts) for path in FOLDER.rglob("*.py"))
HEAVY = {
    "boto3", "fastokens", "google", "jinja2", "jsonschema", "megatron", "numpy", "openai_harmony",
    "pandas", "pyarrow", "requests", "sqlalchemy", "tiktoken", "tokenizers", "torch", "transformers",
}  # fmt: skip
LOADED = """
import json, sys
from spanloom.__main__ import main

try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(*arguments: object) -> set[str]:
    """The modules that a command has imported when it ends."""
    command = [sys.executable, "-c", LOADED, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def tops(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def command_files(modules: set[str]) -> set[str]:
    """Those of the files with commands that were imported."""
    names = {name.removeprefix("spanloom.cli.") for name in modules if name.startswith("spanloom.cli.")}
    shared = {"app", "declared", "help", "lazy", "options", "outputs", "steps", "streams"}
    return names - shared - {"toolcalls", "toolcalls.options", "traces", "traces.options"}


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (["--version"], set()),
        (["--help"], {"convert", *DATASET, "harmony", "models", *MODELS, *TASKS, "pipelines.preflight"}),
        (["build", "--help"], {"harmony"}),
        (["manifest", "show", "--help"], {"dataset", "dataset.describe"}),
        (["step", "pack-chat", "--help"], {"chat"}),
        (["chess", "report", "--help"], {"chess"}),
        (["traces", "list", "--help"], {"traces.commands"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_its_own_file_and_no_library_that_help_does_without(
    arguments: list[str], files: set[str]
) -> None:
    modules = loaded(*arguments)
    assert command_files(modules) == files
    assert tops(modules) & HEAVY == set()


def test_every_command_that_a_file_defines_is_listed_and_loads() -> None:
    """A command that the table of its group does not name could not be called."""
    for file in FILES:
        import_module(f"spanloom.cli.{file}")
    defined: set[str] = set()

    def collect(group: typer.Typer, path: tuple[str, ...]) -> None:
        for command in group.registered_commands:
            assert command.callback is not None
            defined.add(" ".join((*path, command.name or command.callback.__name__.replace("_", "-"))))
        for each in group.registered_groups:
            assert each.typer_instance is not None
            collect(each.typer_instance, (*path, str(each.name)))

    collect(frame, ())
    assert set(all_commands()) == defined


def test_a_command_that_is_a_dataclass_is_taken_by_the_function_of_its_name() -> None:
    """mypy cannot see it: the function is imported by its name when the command runs."""
    for file in FILES:
        import_module(f"spanloom.cli.{file}")
    apps = [frame, *(group.typer_instance for group in frame.registered_groups)]
    callbacks: list[Any] = [command.callback for app in apps if app for command in app.registered_commands]
    declared = [called.__wrapped__ for called in callbacks if isinstance(getattr(called, "__wrapped__", None), type)]
    assert len(declared) > 10
    for options in declared:
        assert get_type_hints(does(options)) == {"given": options, "return": type(None)}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, asset: Path) -> Path:
    folder = tmp_path_factory.mktemp("lazy")
    write_source(folder / "source", [rows(8)])
    return built(folder / "source", folder / "dataset", asset, shards=1)


@pytest.mark.parametrize("words", [["inspect"], ["stats"], ["manifest", "show"]], ids=" ".join)
def test_who_looks_at_a_dataset_waits_for_no_renderer_and_no_plot(
    dataset: Path, asset: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("O200K_HARMONY_VOCAB_PATH", str(asset))
    assert tops(loaded(*words, dataset)) & HEAVY <= {"jsonschema", "numpy", "pyarrow"}
