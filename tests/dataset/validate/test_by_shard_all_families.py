"""Validation of every family: the joined reports of all shards are that of one process; a manifest is checked whole."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from spanloom.dataset import manifest
from spanloom.dataset.facts import dataset_facts
from spanloom.dataset.validate import processes
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.errors import SpanloomError
from spanloom.families import dataset_family
from spanloom.findings import Report
from spanloom.split import id_digests, is_valid
from spanloom.steps import assemble_validation, validate_shard
from spanloom.workers import process_pool
from support.damaged_datasets import Damage, change_rows
from support.family_datasets import FAMILIES, FRACTION, Case
from support.nightly import drawn, nightly
from tools.corruption.leaves import leaf_edits, not_checkable
from tools.corruption.trial import ROOT

WRITTEN = ("report", "digests")
DEEP = 1000
"""More than there are rows or blocks."""


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda make: make.__name__)
def clean(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    made: Case = request.param(tmp_path_factory.mktemp(request.param.__name__))
    return made


@pytest.fixture
def case(clean: Case, tmp_path: Path) -> Case:
    """A copy that a test may damage."""
    return replace(clean, root=Path(shutil.copytree(clean.root, tmp_path / "root")))


def own_files(root: Path, shard: int, out: Path) -> Path:
    """The files of one shard, and those of no shard."""
    for path in root.rglob("*"):
        place = path.relative_to(root)
        if path.is_file() and (
            place.parts[0] not in ("train", "valid", "rejects") or f"shard_{shard:02d}" in path.name
        ):
            (out / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, out / place)
    return out


def own_source(source: Path, shard: int, out: Path) -> Path:
    """A folder with one shard of a source and its manifest; a source that is a file itself."""
    if source.is_file():
        return source
    out.mkdir()
    for path in source.iterdir():
        if path.name == "manifest.json" or f"shard_{shard:02d}" in path.name:
            shutil.copy(path, out)
    return out


def by_shard(case: Case, work: Path, *, with_source: bool) -> tuple[list[Report], Report]:
    """The reports of the tasks of the shards, of which each sees only its own files, and the joined report."""
    family = dataset_family(manifest.read_any(case.root).content.family)
    options: dict[str, Any] = {"family_of": lambda _: family}
    of_shards, places = [], []
    for shard in range(case.shards):
        given = {}
        if with_source:
            given = {"source": str(own_source(case.source, shard, work / f"source_{shard}")), "deep": DEEP}
        written = {name: str(work / f"{shard}.{name}") for name in WRITTEN}
        root = own_files(case.root, shard, work / f"root_{shard}")
        tokenizer = None if case.tokenizer is None else str(case.tokenizer)
        of_shards.append(
            validate_shard.run(root=str(root), shard=shard, tokenizer=tokenizer, **written, **given, **options)
        )
        places.append(written)
    joined = assemble_validation.run(
        root=str(case.root),
        source=str(work / "nowhere") if with_source else None,
        shard_reports=[each["report"] for each in places],
        shard_digests=[each["digests"] for each in places],
        report=str(work / "joined.json"),
        **options,
    )
    return of_shards, joined


# --- Damages ----------------------------------------------------------------------------------------------------------


def rows_of_shard(root: Path, split: str = "train", shard: int = 1) -> Path:
    return Damage(root, split, shard).path("rows.parquet")


def changed_content(change: Callable[[dict[str, Any]], Any]) -> Callable[[Case], None]:
    def damage(case: Case) -> None:
        path = case.root / manifest.MANIFEST_NAME
        written = json.loads(path.read_bytes())
        change(written["content"])
        path.write_text(json.dumps(written))

    return damage


def a_token(case: Case) -> None:
    damage = Damage(case.root)
    tokens = np.fromfile(damage.path("tokens.bin"), dtype=np.int32)
    damage.set("tokens", 0, 2, int(tokens[2]) + 1)
    damage.seal()


def a_late_token(case: Case) -> None:
    damage = Damage(case.root, "train", 1)
    tokens = np.fromfile(damage.path("tokens.bin"), dtype=np.int32)
    last, at = damage.lengths().size - 1, int(damage.lengths()[:-1].sum()) + 2
    damage.set("tokens", last, 2, int(tokens[at]) + 1)
    damage.seal()


def tokens_that_are_none(case: Case) -> None:
    """In several shards, more than are kept."""
    for shard in range(case.shards):
        damage = Damage(case.root, "train", shard)
        for sequence in range(min(damage.lengths().size, 5)):
            for offset in range(5):
                damage.set("tokens", sequence, offset, 10**8)
        damage.seal()


def an_id(case: Case) -> None:
    """An id that belongs to the other split."""
    name = next(name for name in map(str, range(100)) if is_valid(id_digests([name]), FRACTION)[0])
    for column in case.ids:
        change_rows(rows_of_shard(case.root), column, 1, f"{name}#0" if column == "id" else name)
    Damage(case.root).seal()


def an_id_of_shard(split: str) -> Callable[[Case], None]:
    """A document of shard 1, train, has the id of one in shard 0."""

    def damage(case: Case) -> None:
        for column in case.ids:
            other = pq.read_table(rows_of_shard(case.root, split, 0))[column][0].as_py()
            change_rows(rows_of_shard(case.root), column, 0, other)
        Damage(case.root).seal()

    return damage


def a_row_number(case: Case) -> None:
    column = "row" if case.ids else "injected_tokens"
    change_rows(rows_of_shard(case.root), column, 0, 1007)
    Damage(case.root).seal()


def files(case: Case) -> None:
    Damage(case.root, "train", 0).path("tokens.idx").unlink()
    (case.root / "train/notes.txt").write_text("x")
    (case.root / "train/dangling").symlink_to("nowhere")
    (case.root / "train/sub").mkdir()
    (case.root / "train/sub/shard_00_tokens.bin").write_text("x")


def no_table(case: Case) -> None:
    rows_of_shard(case.root).write_bytes(b"no table at all")
    Damage(case.root).seal()


def carried(case: Case) -> None:
    for file in manifest.read_any(case.root).content.files[:1]:
        (case.root / file.path).write_bytes(b"{}")


DAMAGES: dict[str, Callable[[Case], None]] = {
    "clean": lambda case: None,  # noqa: ARG005
    "a token": a_token,
    "a late token": a_late_token,
    "tokens that are none": tokens_that_are_none,
    "an id": an_id,
    "an id in both splits": an_id_of_shard("valid"),
    "an id in two shards": an_id_of_shard("train"),
    "a row": a_row_number,
    "files": files,
    "no table": no_table,
    "a file of no shard": carried,
    "sums": changed_content(lambda content: content["totals"]["splits"]["train"].update(tokens=1)),
    "a count of a shard": changed_content(lambda content: content["shards"][1].update(rows_read=3)),
    "repeated rows": changed_content(lambda content: content["split"].update(repeated_rows=7)),
    "shape": changed_content(lambda content: content["span_names"].reverse()),
    "another source": changed_content(lambda content: content["input"]["shards"][0].update(sha256="0" * 64)),
    "the size of the source": changed_content(lambda content: content["input"]["shards"][0].update(bytes=5)),
}
OF_IDS = ("an id", "an id in both splits", "an id in two shards", "repeated rows")
IN_EVERY_RUN = ("clean", "a token", "an id in both splits", "a row", "files", "sums")


@pytest.mark.parametrize(
    "with_source", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["with source", "without"]
)
@pytest.mark.parametrize("damage", [*IN_EVERY_RUN, *(nightly(name) for name in DAMAGES if name not in IN_EVERY_RUN)])
def test_the_joined_report_of_the_shards_is_that_of_one_process(
    case: Case, tmp_path: Path, damage: str, with_source: bool
) -> None:
    if damage in OF_IDS and not case.ids:
        pytest.skip("blocks have no ids, and no split")
    DAMAGES[damage](case)
    written = manifest.read_any(case.root)
    family = dataset_family(written.content.family)
    given = {"source": case.source, "deep": DEEP} if with_source else {}
    whole = validate_dataset(case.root, family, tokenizer=case.tokenizer, **given)
    of_shards, joined = by_shard(case, tmp_path, with_source=with_source)
    assert told(joined, tmp_path, case) == told(whole, tmp_path, case)
    assert (joined.errors, joined.duplicate_documents) == (whole.errors, whole.duplicate_documents)
    assert whole.clean == (damage in unfound(case, with_source)), whole.findings
    facts = json.loads((tmp_path / "joined.json").read_bytes())
    assert facts["statistics"] == json.loads(json.dumps(dataset_facts(case.root, written, family, whole)["statistics"]))
    if damage == "a row":
        assert [report.clean for report in of_shards] == [shard != 1 for shard in range(case.shards)]


@pytest.mark.parametrize(
    "damage", ["clean", "a late token", *(nightly(name) for name in ("an id in both splits", "files", "shape"))]
)
def test_the_report_of_several_processes_is_that_of_one(
    case: Case, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard a process; and two processes for each shard, which halve the rows of its source."""
    if damage in OF_IDS and not case.ids:
        pytest.skip("blocks have no ids, and no split")
    DAMAGES[damage](case)
    family = dataset_family(manifest.read_any(case.root).content.family)
    monkeypatch.setattr(processes, "TOKENS_A_PROCESS", 1)
    monkeypatch.setattr(processes, "SECONDS_OF_DOCUMENTS", 0.0)
    started: list[int] = []
    monkeypatch.setattr(processes, "process_pool", lambda *given: started.append(given[0]) or process_pool(*given))

    def report(workers: int) -> tuple[Report, list[tuple[int, int]]]:
        seen: list[tuple[int, int]] = []
        given: dict[str, Any] = {"source": case.source, "deep": DEEP, "tokenizer": case.tokenizer, "workers": workers}
        return validate_dataset(case.root, family, on_progress=lambda *at: seen.append(at), **given), seen

    (one, of_one), (several, of_several), (halves, _) = report(1), report(case.shards), report(2 * case.shards)
    assert several == halves == one
    halved = [2] if case.ids[:1] in (("conversation",), ("synth_id",)) else []  # others read their sources as a whole
    assert started == ([] if damage == "shape" else [case.shards - 1, case.shards - 1, *halved])
    assert one.clean == (damage in unfound(case, with_source=True))
    assert of_several[-1:] == of_one[-1:]
    assert [done for done, _ in of_several] == sorted(done for done, _ in of_several)


def told(report: Report, work: Path, case: Case) -> Any:
    """A report as JSON; root and source have one name, wherever they were."""
    text = json.dumps(report.as_dict())
    for shard in range(case.shards):
        text = text.replace(str(work / f"source_{shard}"), str(case.source))
        text = text.replace(str(work / f"root_{shard}"), str(case.root))
    return json.loads(text)


def unfound(case: Case, with_source: bool) -> Sequence[str]:
    """What cannot be found: without the source, tokens that another text would have, and facts about its files."""
    no_file = () if manifest.read_any(case.root).content.files else ("a file of no shard",)
    if with_source:
        return "clean", *no_file
    # Of traces and SYNTH, the token is the template's.
    token = () if case.ids in (("trace_id",), ("synth_id",)) else ("a token", "a late token")
    return "clean", *no_file, *token, "another source", "the size of the source"


def test_reports_with_and_without_the_source_are_not_joined(case: Case, tmp_path: Path) -> None:
    by_shard(case, tmp_path, with_source=False)
    places = [(str(tmp_path / f"{shard}.report"), str(tmp_path / f"{shard}.digests")) for shard in range(case.shards)]
    reports, digests = map(list, zip(*places, strict=True))
    family = dataset_family(manifest.read_any(case.root).content.family)
    given = {"root": str(case.root), "shard_digests": digests, "family_of": lambda _: family}
    with pytest.raises(SpanloomError, match="not compared with the source"):
        assemble_validation.run(shard_reports=reports, source=str(case.source), **given)
    part = json.loads(Path(reports[0]).read_bytes())
    Path(reports[0]).write_text(json.dumps({**part, "deep": 3}))
    with pytest.raises(SpanloomError, match="or not all with --source"):
        assemble_validation.run(shard_reports=reports, **given)


def test_only_the_reports_of_all_shards_of_this_dataset_are_joined(case: Case, tmp_path: Path) -> None:
    (case.root / manifest.MANIFEST_NAME).rename(case.root / manifest.PENDING_NAME)
    by_shard(case, tmp_path, with_source=False)
    family = dataset_family(manifest.read(case.root).content.family)  # promoted
    reports, digests = ([str(tmp_path / f"{shard}.{name}") for shard in range(case.shards)] for name in WRITTEN)

    def join(reports: list[str], digests: list[str]) -> Report:
        given = {"root": str(case.root), "family_of": lambda _: family}
        return assemble_validation.run(shard_reports=reports, shard_digests=digests, **given)

    assert join(reports, digests).clean
    number = case.shards
    for of_shards, of_ids, said in (
        (reports[:-1], digests, f"{number - 1} reports of shards are given, but {number} files of digests"),
        (reports[:-1], digests[:-1], f"{number - 1} reports are given, the dataset has {number} shards"),
        (reports[::-1], digests[::-1], f"not the report of shard 0 of this dataset: shard is {number - 1}, not 0"),
        (reports, digests[::-1], "these digests are not those of the report"),
    ):
        with pytest.raises(SpanloomError, match=said):
            join(of_shards, of_ids)
    changed_content(lambda content: content.update(git_sha="1" * 40))(case)
    with pytest.raises(SpanloomError, match="not the report of shard 0 of this dataset: content_sha256"):
        join(reports, digests)


NOT_CHECKABLE = tuple(
    field for family in ("models", "toolcalls", "traces") for field in not_checkable(f"families/{family}/verify")
)
"""Besides those of all families, which `leaf_edits` knows."""


def test_every_value_of_the_manifest_is_held_to_something(clean: Case, tmp_path: Path) -> None:
    """Each leaf edited alone, and with the rest made to fit; but those of which `NOT_CHECKABLE` says why."""
    root = Path(shutil.copytree(clean.root, tmp_path / ROOT))
    whole = json.loads((root / manifest.MANIFEST_NAME).read_bytes())
    family = dataset_family(whole["content"]["family"])
    edits = [edit for edit in leaf_edits(whole) if edit.why is None and not edit.name.startswith(NOT_CHECKABLE)]
    assert len(edits) > 100
    unfound = []
    for edit in edits[:: drawn(nightly=1, otherwise=11)]:
        (root / manifest.MANIFEST_NAME).write_text(json.dumps(whole))
        edit.apply(tmp_path)
        try:
            found = validate_dataset(root, family, source=clean.source, deep=2, tokenizer=clean.tokenizer).found
        except SpanloomError:
            continue
        if not found:
            unfound.append(str(edit))
    assert unfound == []


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    return [*value, *value] if isinstance(value, list) else f"{value}x" if isinstance(value, str) else value + 1


def test_every_column_of_the_rows_is_held_to_something(clean: Case, tmp_path: Path) -> None:
    """A value of each edited in one row, the manifest made to fit the file."""
    columns = pq.read_table(rows_of_shard(clean.root)).to_pydict()
    family = dataset_family(manifest.read(clean.root).content.family)
    unfound = []
    for name, values in columns.items():
        at = next((row for row, value in enumerate(values) if value is not None), None)
        if at is None:
            continue
        root = Path(shutil.copytree(clean.root, tmp_path / name))
        change_rows(rows_of_shard(root), name, at, other(values[at]))
        Damage(root).seal()
        found = validate_dataset(root, family, source=clean.source, deep=DEEP, tokenizer=clean.tokenizer).found
        if not found or "inventory" in found:
            unfound.append(name)
    assert unfound == []
