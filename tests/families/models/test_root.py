"""What stands at the root of a dataset for a model: caps, replacement, unfinished builds, published models."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import spanloom
from conftest import Cli
from families.models.conftest import RECORDS, bad_source, checks, made
from spanloom.building.steps import StepTask
from spanloom.conversations.source.caps import RowCaps
from spanloom.conversations.source.folder import source_batches
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.errors import ConflictError, RejectedRowError, SpanloomError
from spanloom.families.models import dataset as family
from spanloom.families.models.build import BuildOptions, build
from spanloom.families.models.documents.rules import ModelRules
from spanloom.families.models.steps.tokenize_conversations import run as run_step
from spanloom.report.progress import Mode, Progress
from support.chat_models import CHATML, write_model
from support.model_datasets import TOOL, documents_on_disk, record, runs_that_agree, stored, write_conversations
from support.model_material import Pair, write_pair
from support.nightly import nightly
from tokenizers import Tokenizer


def test_caps_are_divided_over_the_shards(source: Path, model: Path, tmp_path: Path) -> None:
    result = made(source, model, tmp_path / "root", caps=RowCaps(max_rows=21, max_rows_per_shard=12))
    assert result.report.clean, result.report.findings
    assert [shard.rows_read for shard in result.manifest.content.shards] == [11, 10]
    conversations = {row["conversation"] for row, *_ in documents_on_disk(result.root)}
    assert conversations == {f"r-{seed}" for seed in (*range(11), *range(40, 50))}
    checked = validate_dataset(result.root, family, source=source, deep=60)
    assert checked.clean, checked.findings
    assert (checked.checked["source rows"], checked.checked["rows rendered again"]) == (21, 21)
    manifest_file = result.root / "manifest.json"
    for caps in ({"max_rows": 22, "max_rows_per_shard": 12}, {"max_rows": -1}, 3):
        whole = json.loads(manifest_file.read_text())
        whole["content"]["config"]["caps"] = caps
        manifest_file.write_text(json.dumps(whole))
        assert "manifest" in checks(validate_dataset(result.root, family))


def test_a_capped_run_has_a_root_of_its_own(source: Path, model: Path, tmp_path: Path) -> None:
    assert BuildOptions(source=source, model=model).root.name == "model_chat_v1"
    assert BuildOptions(source=source, model=model, caps=RowCaps(max_rows=1)).root.name == "model_chat_v1_smoke"
    with pytest.raises(ConflictError, match="capped run must not write"):
        made(source, model, tmp_path / "model_chat_v1", caps=RowCaps(max_rows=1))
    for uri in (str(tmp_path / "model_chat_v1"), "gs://bucket/model_chat_v1"):
        with pytest.raises(ConflictError, match="capped run must not write"):
            run_step(
                source=str(source),
                model=str(model),
                root=uri,
                rules=ModelRules(),
                caps=RowCaps(max_rows=1),
                task=StepTask(),
            )
    with pytest.raises(SpanloomError, match="max_rows must be at least 0"):
        RowCaps(max_rows=-1)


def test_a_file_of_others_is_not_replaced(source: Path, model: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    few = {"caps": RowCaps(max_rows=4)}
    made(source, model, root, **few)
    note = root / "model/special_tokens_map.json"
    note.write_text("{}")
    with pytest.raises(ConflictError, match="special_tokens_map"):
        made(source, model, root, overwrite=True, **few)
    assert note.read_text() == "{}"


def test_an_unfinished_build_goes_on_or_is_discarded(model: Path, tmp_path: Path) -> None:
    root, source = tmp_path / "root", bad_source(tmp_path / "source")
    with pytest.raises(RejectedRowError):
        made(source, model, root)
    with pytest.raises(ConflictError, match="unfinished build") as refused:
        made(source, model, root, train=("final",), max_rejects="100%")
    assert "--no-resume" in str(refused.value.remedy)
    result = made(source, model, root, train=("final",), max_rejects="100%", resume=False, keep_work=True)
    assert result.report.clean, result.report.findings
    assert list((root / ".work/rendered_00").glob("part_*.parquet"))


def test_options_of_build_work_or_are_refused_by_name(source: Path, model: Path, tmp_path: Path, cli: Cli) -> None:
    arguments = ("build", "--source", source, "--model", model, "--allow-unknown-sha", "--valid-fraction", 0.3)
    ran = cli(*arguments, "--out", tmp_path / "root", "--max-rows", 4, "--shards", 2, "--keep-work")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.index("load the model") < ran.stderr.index("prov") < ran.stderr.index("validate")
    assert (tmp_path / "root/.work/rendered_00").is_dir()
    switches = ("--mask-generation-prompt",)
    refused = {
        "--history": "keep",
        "--max-tokens": "9",
        "--renderer": "harmony",
        "--audit-fraction": "0.5",
        "--tokenizer": tmp_path,
    }
    given = [each for option in refused.items() for each in option]
    wrong = cli(*arguments, "--out", tmp_path / "other", *given, *switches)
    assert wrong.returncode == 1
    assert [name for name in (*refused, *switches) if name not in wrong.stderr] == []
    assert "3 are expected" in cli(*arguments, "--out", tmp_path / "other", "--shards", 3).stderr
    assert not (tmp_path / "other").exists()


# --- Published models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", ["otc_glm-4.7-flash", nightly("otc_qwen-3"), nightly("otc_qwen-2.5")])
def test_published_models(template: str, model_material: list[Pair], tmp_path: Path) -> None:
    pair = next((each for each in model_material if each.template == template), None)
    assert pair is not None, "the folder has no such template"
    records = [record(seed) for seed in range(100, 130)]
    source = write_conversations(tmp_path / "source", [[stored(each) for each in records]])
    model = write_pair(pair, tmp_path / "model")
    result = made(source, model, tmp_path / "root", stops=pair.stops, inline_think=True, max_rejects="10%")
    assert result.report.clean, result.report.findings
    refused = set(result.manifest.content.totals.rejected)
    assert refused <= {"text_altered"}  # the literal forms of some templates
    cutting = result.manifest.content.totals.cutting
    assert cutting is not None
    assert runs_that_agree(result.root, records) == cutting["runs"] > 0


def test_the_tool_of_the_records_is_in_the_prompt(tmp_path: Path) -> None:
    template = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}" + CHATML
    each = next(each for each in RECORDS if each.get("tools"))
    source = write_conversations(tmp_path / "source", [[stored(each)]])
    result = made(source, write_model(tmp_path / "model", template), tmp_path / "root", valid_fraction=0.0)
    assert result.report.clean, result.report.findings
    tokenizer = Tokenizer.from_file(str(result.root / "model/tokenizer.json"))
    ((_, tokens, *_),) = documents_on_disk(result.root)
    assert tokenizer.decode(tokens, skip_special_tokens=False).startswith(str(TOOL["name"]))


def test_a_stopped_build_takes_no_part_of_other_code_or_libraries(model: Path, tmp_path: Path) -> None:
    """A refused row at the end stops the build: the parts before it are kept."""
    rows = [stored(record(seed)) for seed in range(70)]
    bad = stored({"id": "bad", "messages": [{"role": "assistant", "content": "no prompt"}]})
    source = write_conversations(tmp_path / "source", [[*rows, bad]])
    package = tmp_path / "copy/spanloom"
    shutil.copytree(Path(spanloom.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    batches = package / "conversations/source/folder.py"
    small, found = re.subn(r"(?m)^BATCH_ROWS = \d+$", "BATCH_ROWS = 30", batches.read_text())
    assert found == 1
    batches.write_text(small)  # parts are of few rows
    out = tmp_path / "root"

    def stopped() -> dict[str, tuple[str, int]]:
        """Runs the copy of the package until the bad row stops it. Returns key and file number of each part."""
        command = [sys.executable, "-m", "spanloom", "build", "--source", source, "--model", model, "--out", out]
        environment = {**os.environ, "PYTHONPATH": str(package.parent)}
        options = ["--workers", "1", "--allow-unknown-sha"]
        done = subprocess.run([*map(str, command), *options], capture_output=True, text=True, env=environment)
        assert "nothing_trained" in done.stderr, done.stderr
        parts = out / ".work/rendered_00"
        return {
            path.stem: (json.loads(path.read_bytes())["key"], path.with_suffix(".parquet").stat().st_ino)
            for path in parts.glob("*.json")
        }

    first = stopped()
    assert len(first) > 1
    assert stopped() == first
    changed = package / "families/models/prove/spans.py"
    changed.write_text(changed.read_text() + "# changed\n")
    second = stopped()
    assert second.keys() == first.keys()
    assert all(second[name][0] != first[name][0] and second[name][1] != first[name][1] for name in first)


class Swapping(Progress):
    """Writes another template into the model's folder when it is loaded and hashed, and before any worker has begun."""

    def __init__(self, model: Path) -> None:
        super().__init__(mode=Mode.SILENT)
        self._model = model

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:  # noqa: ARG002  # as Progress
        if name == "prove":
            (self._model / "chat_template.jinja").write_text(CHATML.replace("<|end|>", "!<|end|>"))
        yield


@pytest.mark.parametrize("workers", [1, nightly(2)])
def test_a_model_that_changes_during_a_build_changes_no_document(
    workers: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(source_batches.__kwdefaults__, "batch_rows", 40)
    rows = [stored(record(seed)) for seed in range(100)]
    source = write_conversations(tmp_path / "source", [rows])
    whole = made(source, model, tmp_path / "whole")
    changing = Path(shutil.copytree(model, tmp_path / "changing" / model.name))
    before = (changing / "chat_template.jinja").read_bytes()
    rules = ModelRules(valid_fraction=0.3)
    options = BuildOptions(
        source=source, model=changing, out=tmp_path / "root", rules=rules, workers=workers, allow_unknown_sha=True
    )
    result = build(options, Swapping(changing))
    assert (changing / "chat_template.jinja").read_bytes() != before
    assert result.report.clean, result.report.findings
    assert (result.root / "model/chat_template.jinja").read_bytes() == before
    assert result.manifest.content.as_dict() == whole.manifest.content.as_dict()


def test_an_error_of_a_model_names_its_folder(source: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "{% if %}")
    with pytest.raises(SpanloomError, match="not valid Jinja") as fault:
        made(source, model, tmp_path / "root")
    assert str(fault.value.where) == str(model / "chat_template.jinja")
    with pytest.raises(SpanloomError, match="folder is missing") as absent:
        made(source, tmp_path / "qwen3", tmp_path / "root")
    assert "spanloom model fetch" in str(absent.value.remedy)
