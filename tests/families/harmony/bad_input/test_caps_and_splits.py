"""Options that cannot be meant, caps, and shards and splits without rows."""

import io
from pathlib import Path
from typing import Any

import pytest

from spanloom.errors import ConflictError, SpanloomError
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.defaults import CAPPED_ROOT, ROOT
from spanloom.families.harmony.options import BuildOptions
from support import sources
from support.bad_builds import build_it, lines_to, sequences, source_of, stored_rows
from support.folders import files_of


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_duplicate": "drop"}, "on_duplicate must be one of error, keep, not 'drop'"),
        ({"valid_fraction": 1.5}, r"valid_fraction must be in \[0, 1\], got 1\.5\n  remedy: give --valid-fraction"),
        ({"valid_fraction": float("nan")}, r"valid_fraction must be in \[0, 1\], got nan"),
        ({"renderer": "mine"}, "there is no renderer 'mine'\n  remedy: use one of: fast, harmony"),
        ({"workers": 0}, "--workers must be at least 1, not 0"),
        ({"shards": 0}, "--shards must be at least 1, not 0"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_before_any_work(
    options: dict[str, Any], message: str, good: Path, tmp_path: Path
) -> None:
    with pytest.raises(SpanloomError, match=message):
        build_it(good, tmp_path / "out", **{"shards": 4, **options})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cap", ["max_rows", "max_rows_per_shard", "max_tokens"])
def test_a_cap_below_zero_is_refused_before_any_work(cap: str, good: Path, tmp_path: Path) -> None:
    with pytest.raises(SpanloomError, match=rf"{cap.replace('_', '.')}\b.*-1"):
        build_it(good, tmp_path / "out", shards=4, caps=Caps(**{cap: -1}))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("caps", [Caps(max_rows=1), Caps(max_rows_per_shard=1), Caps(max_tokens=1), Caps(max_rows=0)])
def test_a_capped_run_refuses_the_canonical_root(
    caps: Caps, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert BuildOptions(caps=caps).root == Path(CAPPED_ROOT) == Path("data/megatron/synth_kd_v1_smoke")
    assert BuildOptions().root == Path(ROOT) == Path("data/megatron/synth_kd_v1")
    for out in (Path(ROOT), tmp_path / "data/../data/megatron/synth_kd_v1"):
        with pytest.raises(
            ConflictError,
            match=r"^a capped run must not write the canonical dataset\n  where: .*data/megatron/synth_kd_v1\n"
            r"  remedy: omit --out \(it then is data/megatron/synth_kd_v1_smoke\), or give another$",
        ):
            build_it(good, out, shards=4, caps=caps)
    assert list(tmp_path.iterdir()) == []


SHORT_TOKENS = 23
"""Tokens of a document with the words of `sources.conversation()`, its EOD among them."""


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 shards of 5 documents, each of `SHORT_TOKENS` tokens."""
    shards = [[sources.row(f"s{shard}-{row}", sources.conversation()) for row in range(5)] for shard in range(4)]
    return source_of(tmp_path_factory.mktemp("even") / "source", *shards)


@pytest.mark.parametrize(
    ("caps", "expected"),
    [
        pytest.param(Caps(max_rows=10), [3, 3, 2, 2], id="10 rows"),
        pytest.param(Caps(max_rows=100, max_rows_per_shard=2), [2, 2, 2, 2], id="2 rows a shard"),
        # 4 x 46 tokens less one: the last shard gets 45, one too few for its second document.
        pytest.param(Caps(max_tokens=4 * 2 * SHORT_TOKENS - 1), [2, 2, 2, 1], id="183 tokens"),
    ],
)
def test_caps_are_divided_over_the_shards_exactly(caps: Caps, expected: list[int], even: Path, tmp_path: Path) -> None:
    result = build_it(even, tmp_path / "out", shards=4, caps=caps)
    assert result.report.clean, result.report.findings
    assert sequences(result) == expected
    content = sources.content(tmp_path / "out")
    assert sum(split["tokens"] for split in content["totals"]["splits"].values()) == SHORT_TOKENS * sum(expected)
    assert [list(stored_rows(tmp_path / "out", shard)) for shard in range(4)] == [
        list(range(count)) for count in expected
    ]


def test_the_row_that_would_cross_the_token_cap_is_left_out_and_all_after_it_too(tmp_path: Path) -> None:
    short, long = sources.conversation(), sources.conversation(final="word " * 100)
    first = [sources.row("a-0", short), sources.row("a-1", long), sources.row("a-2", short)]
    source = source_of(tmp_path / "source", first, [sources.row(f"b-{row}", short) for row in range(3)])
    # 47 tokens for shard 0 and 46 for shard 1: after a-0, a-2 alone would still fit, yet a-1 ended the shard.
    result = build_it(source, tmp_path / "out", shards=2, caps=Caps(max_tokens=4 * SHORT_TOKENS + 1))
    assert result.report.clean, result.report.findings
    assert stored_rows(tmp_path / "out", 0) == {0: "a-0"}
    assert stored_rows(tmp_path / "out", 1) == {0: "b-0", 1: "b-1"}
    assert [shard.rows_read for shard in result.manifest.content.shards] == [1, 2]


def test_a_shard_without_rows_is_legal_and_warned_about(tmp_path: Path) -> None:
    source = source_of(tmp_path / "source", sources.rows(3), [])
    said = io.StringIO()
    result = build_it(source, tmp_path / "out", shards=2, progress=lines_to(said))
    assert result.report.clean, result.report.findings
    assert sequences(result) == [3, 0]
    assert list((tmp_path / "out").glob("*/shard_01_*")) == []
    path = source / sources.shard_name(1)
    assert f"warning: shard 01, {path} has 0 rows; it will have no files\n" in said.getvalue()
    assert "warning: shard 00" not in said.getvalue()


def test_a_source_without_any_row_gives_a_dataset_without_files(tmp_path: Path) -> None:
    result = build_it(source_of(tmp_path / "source", [], []), tmp_path / "out", shards=2, deep=4)
    assert result.report.clean, result.report.findings
    assert sequences(result) == [0, 0]
    assert sorted(files_of(tmp_path / "out")) == sources.VIEWS


@pytest.mark.parametrize(("fraction", "empty", "full"), [(0.0, "valid", "train"), (1.0, "train", "valid")])
def test_a_split_that_gets_no_row_has_no_files(
    fraction: float, empty: str, full: str, small: Path, tmp_path: Path
) -> None:
    result = build_it(small, tmp_path / "out", valid_fraction=fraction)
    assert result.report.clean, result.report.findings
    splits = sources.content(tmp_path / "out")["totals"]["splits"]
    assert (splits[empty]["sequences"], splits[empty]["tokens"], splits[full]["sequences"]) == (0, 0, 4)
    assert list((tmp_path / "out").glob(f"{empty}/*")) == []
    assert len(list((tmp_path / "out").glob(f"{full}/*"))) == 7


def test_a_shard_may_have_no_row_in_a_split_where_another_has(tmp_path: Path) -> None:
    # With half of the ids valid, id-0 falls into train and id-1 into valid.
    source = source_of(tmp_path / "source", [sources.row("id-0")], [sources.row("id-1")])
    result = build_it(source, tmp_path / "out", shards=2)
    assert result.report.clean, result.report.findings
    shards = sources.content(tmp_path / "out")["shards"]
    counts = [[shard["splits"][split]["sequences"] for split in ("train", "valid")] for shard in shards]
    assert sorted(counts) == [[0, 1], [1, 0]]
    assert len(list((tmp_path / "out").glob("*/shard_*.idx"))) == 2 * 3
