"""Prepared games for the shared commands (`spanloom.dataset.folder`): validate, inspect, fetch, manifest."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from spanloom.families.chess import defaults, inspection, manifest
from spanloom.families.chess.errors import ChessError
from spanloom.families.chess.inspection import drawn_views, text_lines
from spanloom.families.chess.options import DrawOptions
from spanloom.families.chess.places import staged_games
from spanloom.families.chess.reading.prepared import KINDS
from spanloom.families.chess.reading.tables import Kind
from spanloom.families.chess.report import findings_page
from spanloom.families.chess.verify.games import Checks, kind_of, validate_root
from spanloom.findings import Report

check = manifest.check
stage_source = staged_games
report_page = findings_page


WHAT = "these are prepared games of chess, no token dataset: boards, moves and values, without documents or a loss mask"
INSTEAD = {
    "stats": "`spanloom chess report ROOT` counts games, lengths, results and values",
    "export": "the Parquet files that they were prepared from are their exchange format; "
    "`spanloom chess inspect ROOT` shows samples",
    "teacher": "their models predict moves and values, and no tokens: there is nothing for a language model to score",
    "plan": "samples of chess have one shape, and are not packed: train with ChessIterableDataset "
    "(docs/families/chess.md)",
    "blend": "Megatron's datasets do not read them: train with ChessIterableDataset (docs/families/chess.md), "
    "or try docs/examples/training/chess.py",
}


def validate(root: Path, sources: Sequence[Path], deep: int | None) -> Report:
    """Validates prepared games. `sources`: the folders of games and of thinking rows that they were made from.

    Raises ChessError for two folders of one kind, or a folder of a kind that the prepared games do not have.
    """
    folders: dict[Kind, Path] = {}
    for folder in sources:
        kind = kind_of(folder)
        if kind in folders:
            raise ChessError(
                f"two folders of {kind} are given",
                where=f"{folders[kind]}, {folder}",
                remedy="give --source once with the folder of games, and once with that of thinking rows",
            )
        folders[kind] = folder
    deep = defaults.DEEP if deep is None else deep
    return validate_root(root, Checks(games=folders.get("games"), thinking=folders.get("thinking"), deep=deep))


def sample_lines(root: Path, *, count: int, seed: int, split: str) -> Iterator[str]:
    """Yields the lines of samples: text boards, with their tokens below."""
    for view in _views(root, count=count, seed=seed, split=split):
        yield from text_lines(view)
        yield ""


def sample_page(root: Path, title: str, *, count: int, seed: int, split: str) -> str:
    """An HTML page of samples, with pictures of the boards."""
    return inspection.page(_views(root, count=count, seed=seed, split=split), title)


def _views(root: Path, *, count: int, seed: int, split: str) -> list[inspection.SampleView]:
    totals = manifest.read(root)["content"]["totals"]
    thinking = split not in totals["games"]["splits"] and split in totals["thinking"]["splits"]
    return drawn_views(root, DrawOptions(split=cast(Any, split), count=count, seed=seed), thinking=thinking)


def summary(content: Mapping[str, Any]) -> Mapping[str, str]:
    """A summary of prepared games: title → text of each line."""
    lines: dict[str, str] = {}
    for kind in KINDS:
        totals = content["totals"][kind]
        if not totals["rows_read"]:
            continue
        held = ", ".join(f"{sums['items']:,} in {split}" for split, sums in totals["splits"].items()) or "none"
        left_out = ", ".join(f"{number:,} {reason}" for reason, number in totals["rejected"].items()) or "none"
        lines[kind] = f"{held}; of {len(content['input'][kind]):,} files, {totals['rows_read']:,} rows"
        lines[f"{kind} left out"] = left_out
    lines["valid"] = f"fraction {content['split']['valid_fraction']}, {content['split']['rule']}"
    lines["vocabulary"] = f"{content['vocabulary']['name']}, sha256 {content['vocabulary']['sha256']}"
    lines["git SHA"] = content["git_sha"]
    return lines
