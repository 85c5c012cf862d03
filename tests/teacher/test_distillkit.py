"""Captures of DistillKit. What its own compressor wrote is read as it reads it; what does not belong to the labels is
refused. `SPANLOOM_DISTILLKIT`: a checkout of its repository, whose compressor then writes a whole capture."""

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spanloom
from conftest import Cli
from spanloom.api.scoring import checked, imported
from spanloom.report.progress import Progress
from spanloom.storage.publishing import publish_folder
from spanloom.storage.staging import list_objects
from spanloom.teacher.reader import open_teacher
from spanloom.teacher.sources.distillkit import SETTINGS, Compression, _unpacked, decoded_logprobs
from spanloom.teacher.sources.options import TeacherOptions
from spanloom.training import DocumentDataset
from spanloom.training.pytorch import collate
from support.nightly import nightly
from support.object_stores import Place
from support.requirements import DISTILLKIT, absent
from support.teachers import documents, expected, write_scored_dataset

CASES = Path(__file__).parents[1] / "cases/teacher/distillkit.jsonl"
QUIET = Progress.given(False)
K = 6
DTYPES = {"float64": 2e-6, "float32": 2e-6, "float16": 6e-3, "bfloat16": 4e-2}
"""By how much DistillKit rounds what it has read, as a share, by the dtype."""

Rows = list[dict[str, Any]]


def entries(hexes: list[str]) -> np.ndarray:
    return np.array([list(bytes.fromhex(each)) for each in hexes], np.uint8)


@pytest.mark.parametrize("case", [json.loads(line) for line in CASES.read_text().splitlines()])
def test_what_its_compressor_wrote_is_read_as_it_reads_it(case: dict[str, Any]) -> None:
    settings = Compression.model_validate(case["settings"])
    raw, packed = entries(case["compressed_logprobs"]), entries(case["bytepacked_indices"])
    assert [raw.shape[1], packed.shape[1]] == [*settings.widths.values()]
    assert _unpacked(packed, settings.id_bits, settings.k).tolist() == case["ids"]
    read = np.array(case["read"])
    np.testing.assert_allclose(decoded_logprobs(raw, settings), read, rtol=DTYPES[settings.exact_dtype], atol=2e-5)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Rows]:
    """A dataset, and the rows of a capture by its teacher: each document whole, and a pad behind it."""
    root, model = write_scored_dataset(tmp_path_factory.mktemp("made"))
    rows = []
    for tokens, _ in documents(root):
        logprobs, _ = expected(model, tokens, np.ones(tokens.size))
        ids = np.argsort(-logprobs, axis=1)[:, :K]
        rows.append({"input_ids": [*tokens.tolist(), 0], "ids": ids, "logprobs": np.take_along_axis(logprobs, ids, 1)})
        last = rows[-1]  # behind the last token, before the pad, is an entry too
        for name in ("ids", "logprobs"):
            last[name] = np.concatenate([last[name], last[name][-1:]])
    return root, model, rows[::-1]


def write_capture(folder: Path, rows: Rows, vocabulary: int, **changed: Any) -> Path:
    """Every value exact, so that the bytes need no compressor."""
    bits = math.ceil(math.log2(vocabulary))
    table: dict[str, list[Any]] = {"input_ids": [], "compressed_logprobs": [], "bytepacked_indices": []}
    for row in rows:
        places = (row["ids"][:, :, None] >> np.arange(bits - 1, -1, -1)) & 1
        packed = np.packbits(places.reshape(len(places), -1).astype(np.uint8), axis=1)
        raw = row["logprobs"].astype("<f4").view(np.uint8).reshape(len(packed), -1)
        for name, value in zip(table, (row["input_ids"], raw.tolist(), packed.tolist()), strict=True):
            table[name].append(value)
    bytes_ = pa.list_(pa.list_(pa.uint8()))
    schema = pa.schema(dict(zip(table, (pa.list_(pa.uint64()), bytes_, bytes_), strict=True)))
    folder.mkdir()
    half = len(rows) // 2
    for number, part in enumerate((slice(half), slice(half, None))):
        held = {name: values[part] for name, values in table.items()}
        pq.write_table(pa.table(held, schema=schema), folder / f"data_{number}.parquet")
    settings = {"d": vocabulary, "k": K, "exact_k": K, "residual_bins": [], "delta_encoding": False, **changed}
    (folder / "compression_config.yaml").write_text(json.dumps(settings))  # JSON is YAML
    return folder


def size_of(root: Path) -> int:
    return int(json.loads((root / "manifest.json").read_text())["content"]["tokenizer"]["vocab_size"])


def taken(cli: Cli, capture: Path, root: Path, out: Path, *more: object) -> Any:
    return cli("teacher", "import", capture, "--from", "distillkit", "--dataset", root, "--out", out, *more)


def test_a_capture_has_the_values_of_its_teacher(cli: Cli, made: tuple[Path, Path, Rows], tmp_path: Path) -> None:
    """And every reader says that the labels' own values are absent."""
    root, model, rows = made
    out = tmp_path / "signals"
    capture = write_capture(tmp_path / "capture", rows[:-1], size_of(root))  # the first document is not in it
    done = taken(cli, capture, root, out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["without"] == {"not_captured": 1}
    content = json.loads((out / "teacher.json").read_text())["content"]
    assert content["own"] is False
    assert content["teacher"]["compression"]["k"] == K
    assert not [*out.rglob("*own*")]
    opened = open_teacher(out, root, verify=True)
    assert opened.document("train", 0, 0) is None
    for number in (1, len(rows) - 1):
        stored = opened.document("train", 0, number)
        assert stored is not None
        logprobs, _ = expected(model, *documents(root)[number])
        np.testing.assert_array_equal(stored.ids, np.argsort(-logprobs, axis=1)[:, :K])
        np.testing.assert_allclose(stored.logprobs, -np.sort(-logprobs, axis=1)[:, :K], atol=6e-4)
        np.testing.assert_allclose(np.exp(stored.rest), 1 - np.exp(stored.logprobs).sum(1), atol=1e-4)
        assert np.isnan(stored.own).all()
    assert cli("teacher", "validate", out, "--dataset", root).returncode == 0
    stats = json.loads(cli("teacher", "stats", out, "--dataset", root, "--json").stdout)
    assert stats[0]["mean"] is None
    assert 0 < stats[0]["entropy"] < math.log(K + 1)
    ranked = cli("teacher", "rank", out, "--dataset", root)
    assert ranked.returncode == 1
    assert "these signals were imported" in ranked.stderr
    (shown,) = spanloom.inspect(root, "train/0/1", teacher=out)
    assert any("the signals were imported" in note for note in shown.notes)
    scores = [token.score for token in shown.tokens if token.score is not None]
    assert {score.exact for score in scores} == {True, False}
    batch = collate([DocumentDataset(root, teacher=out)[1]])
    assert np.isnan(batch["teacher_own"].numpy()[batch["teacher_mask"].numpy() == 1]).all()
    assert np.isfinite(batch["teacher_logprobs"].numpy()).all()
    carried = cli("teacher", "carry", out, "--dataset", root, "--missing", "--out", tmp_path / "carried")
    assert carried.returncode == 0, carried.stderr
    assert json.loads((tmp_path / "carried/teacher.json").read_text())["content"]["own"] is False


def test_exact_values_stay_where_approximated_ones_are_above_them(
    cli: Cli, made: tuple[Path, Path, Rows], tmp_path: Path
) -> None:
    """The last value is the constant of a curve, and 0.01 above the one before."""
    root, model, rows = made
    high = [{**row, "logprobs": np.hstack([row["logprobs"][:, :-1], row["logprobs"][:, -2:-1] + 0.01])} for row in rows]
    approximated = {"exact_k": K - 1, "polynomial_terms": [0]}
    capture = write_capture(tmp_path / "capture", high, size_of(root), **approximated)
    done = taken(cli, capture, root, tmp_path / "signals")
    assert done.returncode == 0, done.stderr
    stored = open_teacher(tmp_path / "signals", root).document("train", 0, 0)
    assert stored is not None
    logprobs, _ = expected(model, *documents(root)[0])
    np.testing.assert_allclose(stored.logprobs[:, :-1], -np.sort(-logprobs, axis=1)[:, : K - 1], atol=6e-4)
    assert (np.diff(stored.logprobs) <= 0).all()


@pytest.mark.parametrize("place", ["s3", nightly("gs")], indirect=True)
def test_a_capture_in_a_bucket(place: Place, made: tuple[Path, Path, Rows], tmp_path: Path) -> None:
    """All that is read and written is there; the files are those of a local run."""
    root, _, rows = made
    capture = write_capture(tmp_path / "capture", rows, size_of(root))
    publish_folder(root, place.uri / "root", last="manifest.json")
    publish_folder(capture, place.uri / "capture", last=SETTINGS)
    local = tmp_path / "signals"
    wanted, *_ = imported(str(capture), str(root), str(local), None, (), QUIET)
    there = [f"{place.uri}/{name}" for name in ("capture", "root", "signals")]
    content, same, _ = imported(*there, None, (), QUIET)
    assert not same
    assert content == wanted
    objects = {each.uri.name for each in list_objects(place.uri / "signals")}
    assert objects == {path.name for path in local.rglob("*") if path.is_file()}
    assert checked(there[2], str(root), TeacherOptions(), 0, "independent", QUIET).clean, "so are their hashes"
    assert imported(*there, None, (), QUIET)[1], "it is there already"


def moved(by: int) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        return [{**row, **{name: np.roll(row[name], by, axis=0) for name in ("ids", "logprobs")}} for row in rows]

    return change


def twice_as_probable(rows: Rows) -> Rows:
    return [{**row, "logprobs": row["logprobs"] / 2} for row in rows]


def differences(rows: Rows) -> Rows:
    """As `delta_encoding` writes them."""
    return [{**row, "logprobs": np.diff(row["logprobs"], axis=1, prepend=0)} for row in rows]


def an_entry_too_few(rows: Rows) -> Rows:
    return [{**row, **{name: row[name][:-2] for name in ("ids", "logprobs")}} for row in rows]


def other_tokens(rows: Rows) -> Rows:
    return [{**row, "input_ids": [row["input_ids"][0], *row["input_ids"][:-1]]} for row in rows]


@pytest.mark.parametrize(
    ("change", "settings", "said"),
    [
        (moved(1), {}, "first choices are not those of the labels"),
        (moved(-1), {}, "first choices are not those of the labels"),
        (twice_as_probable, {}, "the probabilities exceed 1"),
        (an_entry_too_few, {}, "entries"),
        (other_tokens, {}, "0 labels are too few to tell"),
        (lambda rows: rows, {"k": K + 1, "exact_k": K + 1}, "bytes an entry"),
        (lambda rows: rows, {"exact_dtype": "bfloat16"}, "bytes an entry"),
        (lambda rows: rows, {"d": 40}, "the settings are for 40 tokens"),
        (differences, {}, "the exact values are not in the order of their tokens"),
        (lambda rows: rows, {"delta_encoding": True}, "the settings say that they are differences"),
        (lambda rows: rows, {"exact_k": K + 1}, "more exact values and residuals than k"),
        (lambda rows: rows, {"exact_dtype": "int8"}, "no settings of DistillKit's compression: exact_dtype"),
        (lambda rows: rows[:0], {}, "no rows"),
    ],
)
def test_what_is_not_the_teachers_at_the_labels_is_refused(
    cli: Cli,
    made: tuple[Path, Path, Rows],
    tmp_path: Path,
    change: Callable[[Rows], Rows],
    settings: dict[str, Any],
    said: str,
) -> None:
    root, _, rows = made
    capture = write_capture(tmp_path / "capture", change(rows), size_of(root), **settings)
    done = taken(cli, capture, root, tmp_path / "signals")
    assert done.returncode != 0, done.stdout
    assert not (tmp_path / "signals/teacher.json").exists()
    assert "Traceback" not in done.stderr
    message = done.stderr.replace("\n", " ")
    assert said in message


@pytest.mark.nightly
def test_a_capture_by_its_own_compressor(
    cli: Cli, made: tuple[Path, Path, Rows], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the settings that its README recommends, for a smaller vocabulary."""
    import torch

    monkeypatch.syspath_prepend(os.environ.get("SPANLOOM_DISTILLKIT") or absent(DISTILLKIT))
    from distillkit.compression import DistributionQuantizationConfig, LogprobCompressor
    from distillkit.sample_common import StreamingParquetWriter, compressed_logit_schema

    root, model, rows = made
    config = DistributionQuantizationConfig(
        d=size_of(root), k=16, exact_k=4, exact_dtype="bfloat16", polynomial_terms=[0, 1, 2, "sqrt"],
        term_dtype="float32", residual_bins=[], delta_encoding=False,
    )  # fmt: skip
    compressor = LogprobCompressor(config)
    out = tmp_path / "capture"
    out.mkdir()
    (out / "compression_config.yaml").write_text(json.dumps(config.model_dump(mode="json")))
    with StreamingParquetWriter(
        str(out), schema=compressed_logit_schema(), file_max_rows=16, queue_maxsize=32
    ) as writer:
        for row in rows:
            tokens = np.array(row["input_ids"])
            logprobs, _ = expected(model, tokens, np.ones(tokens.size))
            packed = compressor.compress(torch.from_numpy(logprobs).float()[None])
            writer.write({"input_ids": tokens.tolist(), **{name: each[0].tolist() for name, each in packed.items()}})
    done = taken(cli, out, root, tmp_path / "signals")
    assert done.returncode == 0, done.stderr
    assert cli("teacher", "validate", tmp_path / "signals", "--dataset", root).returncode == 0
    opened = open_teacher(tmp_path / "signals", root)
    for number in range(len(rows)):
        stored = opened.document("train", 0, number)
        assert stored is not None
        logprobs, _ = expected(model, *documents(root)[number])
        top = -np.sort(-logprobs, axis=1)[:, :16]
        np.testing.assert_array_equal(stored.ids[:, :4], np.argsort(-logprobs, axis=1)[:, :4])
        np.testing.assert_allclose(stored.logprobs[:, :4], top[:, :4], rtol=5e-3, atol=0.1)
    assert "distillkit" in sys.modules
