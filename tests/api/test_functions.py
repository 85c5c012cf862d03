"""What the Python API has beside its commands: several documents at once, tables, pickles, notebooks, progress."""

import html
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest

import spanloom
from conftest import Cli
from spanloom.auditing.result import as_json
from spanloom.errors import ConflictError, OptionError
from support.exported_documents import on_disk


def test_several_indices_give_a_list(demo: Path) -> None:
    dataset = spanloom.open_dataset(demo)
    ids = [document.id for document in dataset]
    assert [document.id for document in dataset[[3, -1, 3]]] == [ids[3], ids[-1], ids[3]]
    assert [document.id for document in dataset[np.array([0, 5])]] == [ids[0], ids[5]]
    assert dataset[np.int64(2)].id == ids[2]
    assert dataset[[]] == []
    with pytest.raises(IndexError):
        dataset[[0, len(dataset)]]
    with pytest.raises(TypeError):
        dataset[ids[0]]  # type: ignore[call-overload]


def test_an_id_is_looked_up_without_reading_tokens(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [document.id for document in spanloom.open_dataset(demo, split="train")]
    other = next(document.id for document in spanloom.open_dataset(demo, split="valid"))
    dataset = spanloom.open_dataset(demo, split="train")
    with monkeypatch.context() as patch:
        patch.setattr(spanloom.Dataset, "__iter__", lambda _: pytest.fail("all documents were read"))
        assert ids[7] in dataset
        assert other not in dataset
        assert "" not in dataset
        assert 7 not in dataset


def test_valid_is_also_called_validation(demo: Path) -> None:
    valid = [document.id for document in spanloom.open_dataset(demo, split="valid")]
    assert [document.id for document in spanloom.open_dataset(demo, split="validation")] == valid
    assert {shown.split for shown in spanloom.inspect(demo, split="validation", count=3)} == {"valid"}


def test_tables_have_the_columns_of_an_export(demo: Path) -> None:
    table = spanloom.open_dataset(demo).to_arrow()
    wanted = [{**row, "split": split} for split in ("train", "valid") for row in on_disk(demo, split)]
    assert table.to_pylist() == wanted
    frame = spanloom.open_dataset(demo, split="valid").to_pandas()
    assert frame["synth_id"].tolist() == [row["synth_id"] for row in on_disk(demo, "valid")]


def test_a_dataset_and_its_documents_are_the_same_after_a_pickle(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(demo.parent)
    dataset = spanloom.open_dataset(demo.name, split="valid")
    data, one = pickle.dumps(dataset), pickle.dumps(dataset[2])
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(data)
    assert [document.tokens.tolist() for document in again] == [
        document.tokens.tolist() for document in spanloom.open_dataset(demo, split="valid")
    ]
    document = pickle.loads(one)
    assert document.id == again[2].id
    assert document.loss_mask.tolist() == again[2].loss_mask.tolist()


def test_a_span_has_its_text_and_a_notebook_the_coloured_document(demo: Path) -> None:
    document = spanloom.open_dataset(demo)[0]
    whole = "".join(span.text for span in document.spans)
    assert whole
    assert whole in document.text
    shown = html.unescape(document._repr_html_() or "")
    assert shown.startswith("<iframe srcdoc=")
    assert document.id in shown
    text = html.unescape(re.sub(r"<[^>]*>", "", shown))
    assert all(word in text for word in re.findall(r"\w+", document.spans[-1].text))


def test_export_plan_and_inspect_do_what_their_commands_do(demo: Path, tmp_path: Path) -> None:
    made = spanloom.export(demo, tmp_path / "trl", to="trl", croissant=False)
    rows = datasets.load_dataset(str(tmp_path / "trl"), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(rows) == made["splits"]["train"]["sequences"] == len(spanloom.open_dataset(demo, split="train"))
    assert spanloom.export(demo, tmp_path / "trl", to="trl", croissant=False) == made
    with pytest.raises(ConflictError, match="--overwrite"):
        spanloom.export(demo, tmp_path / "trl", to="axolotl", croissant=False)
    with pytest.raises(spanloom.SpanloomError, match="rows are packed by --to megatron-bridge"):
        spanloom.export(demo, tmp_path / "other", to="trl", sequence_length=8)
    plan = spanloom.plan(demo, 512, tmp_path / "plan")
    assert plan.folder == tmp_path / "plan"
    assert plan.options.question_tokens == 256
    shown = spanloom.inspect(demo, "train/0/3", html=tmp_path / "page.html")
    document = spanloom.open_dataset(demo, split="train")[3]
    assert [token.id for token in shown[0].tokens] == document.tokens.tolist()
    assert document.id in (tmp_path / "page.html").read_text("utf-8")


def test_progress_is_a_function_or_printed(demo: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    calls: list[tuple[str, int, int]] = []
    spanloom.export(demo, tmp_path / "one", progress=lambda *given: calls.append(given))
    total = len(spanloom.open_dataset(demo))
    assert calls[-1] == ("export", total, total)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)
    assert capfd.readouterr() == ("", "")
    code = "import spanloom, sys; spanloom.validate(sys.argv[1], progress=sys.argv[2] == '1')"
    for flag, printed in (("0", False), ("1", True)):
        done = subprocess.run([sys.executable, "-c", code, demo, flag], capture_output=True, text=True, check=True)
        assert done.stdout == ""
        assert ("validate" in done.stderr) == printed


def test_audit_finds_what_its_command_finds(model_dataset: tuple[Path, Path], tmp_path: Path, cli: Cli) -> None:
    root, model = model_dataset
    result = spanloom.audit(root, model, html=tmp_path / "audit.html")
    done = cli("audit", root, "--model", model, "--json")
    assert done.returncode == result.exit_code
    assert json.loads(done.stdout) == json.loads(json.dumps(as_json(result)))
    assert (tmp_path / "audit.html").stat().st_size > 1000
    with pytest.raises(spanloom.SpanloomError, match="is not a class"):
        spanloom.audit(root, model, declare=["nonsense"])


@pytest.fixture(scope="module")
def model_dataset(tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("model")
    assert cli("model", "sample", "--out", folder).returncode == 0
    spanloom.convert(folder / "chat.jsonl", folder / "source")
    made = spanloom.build(
        folder / "source", folder / "dataset", model=folder / "model", valid_fraction=0.3, allow_unknown_sha=True
    )
    assert len(repr(made)) < len(str(folder)) + 100, "a notebook prints it"
    return made.root, folder / "model"


@pytest.mark.parametrize(
    "call",
    [
        lambda: spanloom.convert("", "source"),
        lambda: spanloom.convert(["a.jsonl", ""], "source"),
        lambda: spanloom.convert("a.jsonl", ""),
        lambda: spanloom.build("", "root"),
        lambda: spanloom.build("source", ""),
        lambda: spanloom.validate(""),
        lambda: spanloom.validate("root", source=""),
        lambda: spanloom.inspect(""),
        lambda: spanloom.export("", "out", to="trl"),
        lambda: spanloom.plan("", 256),
        lambda: spanloom.audit("", "model"),
        lambda: spanloom.open_dataset(""),
    ],
)
def test_an_empty_text_is_no_place(call: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a path it would be the current folder."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="is an empty text, not a place"):
        call()
    assert list(tmp_path.iterdir()) == []
