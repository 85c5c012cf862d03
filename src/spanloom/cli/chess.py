"""`spanloom chess …` and its steps: PGN or Parquet → validated games → prepared games → samples."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from spanloom.cli import options
from spanloom.cli.app import Printed, chess_app, counted, exit_by, print_json, say
from spanloom.cli.outputs import file_option, write_page
from spanloom.cli.steps import step
from spanloom.families.chess import defaults
from spanloom.families.chess.options import (
    BestMove,
    CheckOptions,
    DrawOptions,
    GameFilter,
    GamesPlace,
    PrepareRules,
    PrepareShard,
    ThinkingPlace,
    ValidatePrepared,
)
from spanloom.options.option import option, place, running
from spanloom.options.shared import MAX_WORKERS, Overwrite, RunningOptions
from spanloom.storage.folders.repeated import already_there
from spanloom.text import visible, visible_line


@dataclass(frozen=True, kw_only=True)
class PrepareRunning(RunningOptions):
    """How preparing runs."""

    workers: Annotated[int, running("Worker processes.", min=1, max=MAX_WORKERS)] = 1


PlaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="ROOT|DIR", help="Root of prepared games, or a folder of Parquet files; or a URI of either."
    ),
]


@chess_app.command("sample")
def sample(
    out: Annotated[str, place("Folder or URI for games/*.parquet and thinking/*.parquet.")],
    games: Annotated[int, option("How many games.", min=1, max=defaults.SAMPLE_GAMES)] = defaults.SAMPLE_GAMES,
    thinking: Annotated[
        int, option("How many thinking rows.", min=1, max=defaults.SAMPLE_THINKING_ROWS)
    ] = defaults.SAMPLE_THINKING_ROWS,
    scratch: options.Scratch = None,
    as_json: options.Json = False,
) -> None:
    """Write games of our own making in both schemas: three famous ones, and those of a small program."""
    from spanloom.families.chess.sample import run

    counts = run(out=out, games=games, thinking=thinking, scratch=scratch)
    if as_json:
        print_json(counts)
    else:
        say(f"{out}: {counts['games']} games ({counts['plies']:,} plies), {counts['thinking_rows']} thinking rows")


@chess_app.command("convert")
def convert(
    *,
    pgn: Annotated[list[Path], option("PGN file, also .gz, .bz2 or .zst; repeatable.")],
    out: Annotated[Path, option("Folder for the Parquet files; empty or new, or made by the same command.")],
    best_move: Annotated[
        BestMove,
        option("What is to be predicted: the move played, or no move (boards and values alone)."),
    ] = "played",
    games_per_file: Annotated[int, option("Games of each Parquet file.", min=1)] = 10_000,
    wanted: GameFilter,
    workers: Annotated[int, option("Processes that read games side by side.", min=1, max=MAX_WORKERS)] = 1,
    overwrite: Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Turn PGN into Parquet files of the pretraining schema; comments of lichess, ChessBase, cutechess and TCEC become
    values.

    Games of other variants, Chess960, games without moves, with null moves or with a token that is not understood are
    left out, counted, and named with line, reason and token in OUT.skipped.jsonl.
    """
    from spanloom.families.chess.pgn import convert_pgn
    from spanloom.families.chess.pgn.convert import skipped_file

    counts = convert_pgn(
        pgn,
        out,
        best_move=best_move,
        games_per_file=games_per_file,
        wanted=wanted,
        workers=workers,
        overwrite=overwrite,
        on_same=lambda: say(already_there(out), file=sys.stderr),
    )
    if as_json:
        print_json(vars(counts))
        return
    say(f"{counts.games:,} games in {out} ({counts.rows:,} plies, {counts.rows_with_values:,} with values)")
    say(f"left out: {counted(counts.skipped)}")
    if counts.unclear_values:
        say(f"values left out: {counts.unclear_values:,}, where [%eval …] is neither clearly pawns nor centipawns")
    if counts.foreign:
        say(f"read with other piece letters: {counted(counts.foreign)}")
    if counts.texts:
        say(f"text between the games: {counts.texts:,} times")
    if counts.skipped or counts.texts:
        say(f"each of them is in {skipped_file(out)}")


@chess_app.command("prepare")
def prepare(
    *,
    out: Annotated[Path, option("Root of the prepared games, new or empty.")],
    source: GamesPlace = None,
    thinking: ThinkingPlace = None,
    rules: PrepareRules,
    checks: CheckOptions,
    running: PrepareRunning,
    scratch: options.Scratch = None,
    printed: Printed,
) -> None:
    """Turn Parquet files into memory-mapped arrays, once, and validate them: training then parses no FEN.

    The same files and options give the same bytes, whatever the workers. Run it again after an interruption; where the
    files have changed since, with --no-resume.

    Example: `spanloom chess prepare --source games --thinking thinking --out data/chess`
    """
    from spanloom.families.chess import build
    from spanloom.families.chess.places import local_folders
    from spanloom.records.files import passed_over_line

    progress = printed.progress()
    with (
        local_folders(source, thinking, scratch) as (games_folder, thinking_folder),
        progress.stage("prepare"),
        progress.counting("prepare", "files") as on_progress,
    ):
        prepared = build.PrepareOptions(
            root=out,
            games=games_folder,
            thinking=thinking_folder,
            sources_as_given=(source, thinking),
            **vars(rules),
            **vars(checks),
            **vars(running),
        )
        result = build.prepare(prepared, on_progress)
    totals = result.manifest["content"]["totals"]
    with exit_by(result.report):
        if printed.as_json:
            unread = result.passed_over
            print_json({"root": str(out), "totals": totals, "not_read": unread, "report": result.report.as_dict()})
        else:
            for kind, counts in totals.items():
                if not counts["rows_read"]:
                    continue
                held = ", ".join(f"{split} {count['items']:,}" for split, count in counts["splits"].items()) or "none"
                say(f"{kind}: {held}; left out: {counted(counts['rejected'])}")
            for kind, names in result.passed_over.items():
                if names:
                    say(visible_line(f"{kind}: {passed_over_line(names)}: only *.parquet is read"))
            _print_findings(result.report.as_dict())


@chess_app.command("validate")
def validate(
    place: PlaceArgument,
    *,
    source: GamesPlace = None,
    thinking: ThinkingPlace = None,
    checks: CheckOptions,
    scratch: options.Scratch = None,
    as_json: options.Json = False,
) -> None:
    """Check prepared games, or Parquet files before they are prepared.

    Exit code 4 means that something was found; each finding names file, game and ply. A folder's Parquet files may be
    of games, or of thinking rows.
    """
    from spanloom.families.chess.places import local_folders, local_games
    from spanloom.families.chess.verify.games import Checks, validate_place

    with local_games(place, scratch) as path, local_folders(source, thinking, scratch) as (games, rows):
        report = validate_place(path, Checks(games=games, thinking=rows, **vars(checks)))
    with exit_by(report):
        if as_json:
            print_json(report.as_dict())
        else:
            _print_findings(report.as_dict())


@chess_app.command("inspect")
def inspect(
    place: PlaceArgument,
    *,
    samples: Annotated[Literal["games", "thinking"], option("Which kind of samples.")] = "games",
    drawn: DrawOptions,
    html: Annotated[Path | None, file_option("Write a page with pictures of the boards instead.")] = None,
) -> None:
    """Draw samples as training sees them: boards, moves, values, and below them tokens, targets and masks."""
    from spanloom.families.chess.inspection import drawn_views, page, text_lines
    from spanloom.families.chess.places import local_games

    with local_games(place) as path:
        views = drawn_views(path, drawn, thinking=samples == "thinking")
    if html is not None:
        write_page(html, page(views, f"Samples of {place}"))
        return
    console = Console()
    for view in views:
        for line in text_lines(view):
            console.print(Text(visible(line)), soft_wrap=True)
        console.print()


@chess_app.command("report")
def report(
    place: PlaceArgument,
    html: Annotated[Path | None, file_option("Write a page instead of JSON.")] = None,
) -> None:
    """Count what the games are like: lengths, values, openings, what was left out. JSON, or a page."""
    from spanloom.families.chess.places import local_games
    from spanloom.families.chess.report import game_facts, page

    with local_games(place) as path:
        facts = game_facts(path)
    if html is None:
        print_json(facts)
    else:
        write_page(html, page(facts, f"Games of {place}"))


@step("prepare-chess", "families.chess.steps.prepare_chess")
def step_prepare_chess(options: PrepareShard) -> None:
    """Chess, step 1, once a shard: Parquet files → memory-mapped arrays under the root, and an inventory of them.

    Every file is created, never overwritten. A root at a URI is claimed for this run first (claim.json).
    """


@step("assemble-chess", "families.chess.steps.assemble_chess")
def step_assemble_chess(
    inventories: options.Inventories,
    root: options.Root,
    allow_unknown_sha: options.AllowUnknownSha = False,
    scratch: options.Scratch = None,
) -> None:
    """Chess, step 2: write manifest.pending.json. The games are not ready before validate-chess has passed."""


@step("validate-chess", "families.chess.steps.validate_chess", switches=True)
def step_validate_chess(options: ValidatePrepared) -> None:
    """Chess, step 3: validate, and promote the pending manifest to the manifest if it is clean.

    Exits with 4 on any finding.
    """


def _print_findings(report: dict[str, Any]) -> None:
    findings, counts, checked = report["findings"], report["found"], report["checked"]
    for finding in findings:
        place = f" ({finding['file']})" if finding["file"] else ""
        say(visible_line(f"{finding['check']}: {finding['message']}{place}"))
    say(f"found: {counted(counts)}" if counts else f"clean: {counted(checked)}")
