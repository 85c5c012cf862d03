"""`spanloom chess …`: PGN or Parquet → validated games → prepared games → samples."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from spanloom.cli.app import app, exit_by, make_progress, print_json
from spanloom.cli.options import AllowUnknownShaOption, JsonOption, QuietOption, VerboseOption

chess_app = typer.Typer(no_args_is_help=True, help="Chess: games and engine variations as training batches.")
app.add_typer(chess_app, name="chess")

GamesOption = Annotated[Path | None, typer.Option("--source", help="Folder of Parquet files of games.")]
ThinkingOption = Annotated[Path | None, typer.Option("--thinking", help="Folder of Parquet files of thinking rows.")]
LegalOption = Annotated[
    bool, typer.Option("--legal", help="Ask python-chess whether each move is legal and leads to the next board.")
]
ToleranceOption = Annotated[
    float, typer.Option(help="By how much win + draw + loss may miss 1.", min=0, max=1, show_default=True)
]
PlaceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ROOT|DIR", help="Root of prepared games, or a folder of Parquet files.", show_default=False
    ),
]
SplitOption = Annotated[Literal["train", "valid"], typer.Option(help="Which split of prepared games.")]


@chess_app.command("sample")
def sample(
    out: Annotated[Path, typer.Option(help="Folder for games/*.parquet and thinking/*.parquet.")],
    games: Annotated[int, typer.Option(help="How many games.", min=1)] = 60,
    thinking: Annotated[int, typer.Option(help="How many thinking rows.", min=1)] = 60,
    seed: Annotated[int, typer.Option(help="The same seed gives the same games.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Write games of our own making in both schemas: three famous ones, and those of a small program.

    Needs python-chess: `pip install 'spanloom[chess]'`.
    """
    from spanloom.families.chess.sample import write_sample

    done = write_sample(out, games=games, thinking=thinking, seed=seed)
    if as_json:
        print_json(done)
    else:
        print(f"{out}: {done['games']} games ({done['plies']:,} plies), {done['thinking_rows']} thinking rows")


@chess_app.command("convert")
def convert(
    pgn: Annotated[list[Path], typer.Option(help="PGN file; may be given several times.")],
    out: Annotated[Path, typer.Option(help="Folder for the Parquet files, without any yet.")],
    best_move: Annotated[
        Literal["played", "none"],
        typer.Option(help="What is to be predicted: the move played, or no move (boards and values alone)."),
    ] = "played",
    games_per_file: Annotated[int, typer.Option(help="Games of each Parquet file.", min=1)] = 10_000,
    as_json: JsonOption = False,
) -> None:
    """Turn PGN into Parquet files of the pretraining schema; `[%eval …]` comments become values.

    Games of other variants, without moves, or with moves that cannot be read are left out and counted. Needs
    python-chess: `pip install 'spanloom[chess]'`.
    """
    from spanloom.families.chess.pgn import convert_pgn

    counts = convert_pgn(pgn, out, best_move=best_move, games_per_file=games_per_file)
    if as_json:
        print_json(vars(counts))
        return
    skipped = ", ".join(f"{number:,} {reason}" for reason, number in counts.skipped.items()) or "none"
    print(f"{counts.games:,} games in {out} ({counts.rows:,} plies, {counts.rows_with_values:,} with values)")
    print(f"left out: {skipped}")


@chess_app.command("prepare")
def prepare(
    out: Annotated[Path, typer.Option(help="Root of the prepared games, new or empty.")],
    source: GamesOption = None,
    thinking: ThinkingOption = None,
    valid_fraction: Annotated[
        float,
        typer.Option(help="Share of the games held out for validation; the game's id alone decides.", min=0, max=1),
    ] = 0.001,
    on_error: Annotated[
        Literal["skip", "raise"],
        typer.Option(help="A bad game: set it aside under rejects/ and count it, or stop."),
    ] = "skip",
    workers: Annotated[int, typer.Option(help="Processes that prepare files side by side.", min=1)] = 1,
    deep: Annotated[int, typer.Option(help="Games of each file that validation holds against the source.", min=0)] = 16,
    legal: LegalOption = False,
    tolerance: ToleranceOption = 0.01,
    allow_unknown_sha: AllowUnknownShaOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Turn Parquet files into memory-mapped arrays, once, and validate them: training then parses no FEN.

    The same files and options give the same bytes, whatever the workers. Run it again after an interruption.

    Example: `spanloom chess prepare --source games --thinking thinking --out data/chess`
    """
    from spanloom.families.chess.build import PrepareOptions
    from spanloom.families.chess.build import prepare as prepare_games

    progress = make_progress(quiet, verbose)
    with progress.stage("prepare"), progress.counting("prepare", "files") as on_progress:
        result = prepare_games(
            PrepareOptions(
                root=out,
                games=source,
                thinking=thinking,
                valid_fraction=valid_fraction,
                on_error=on_error,
                workers=workers,
                deep=deep,
                legal=legal,
                tolerance=tolerance,
                allow_unknown_sha=allow_unknown_sha,
            ),
            on_progress,
        )
    totals = result.manifest["content"]["totals"]
    if as_json:
        print_json({"root": str(out), "totals": totals, "report": result.report.as_dict()})
    else:
        for kind, counts in totals.items():
            if not counts["rows_read"]:
                continue
            held = ", ".join(f"{split} {count['items']:,}" for split, count in counts["splits"].items()) or "none"
            left_out = ", ".join(f"{number:,} {reason}" for reason, number in counts["rejected"].items()) or "none"
            print(f"{kind}: {held}; left out: {left_out}")
        _print_findings(result.report.as_dict())
    exit_by(result.report)


@chess_app.command("validate")
def validate(
    place: PlaceArgument,
    source: GamesOption = None,
    thinking: ThinkingOption = None,
    deep: Annotated[int, typer.Option(help="Games of each file held against --source.", min=0)] = 16,
    legal: LegalOption = False,
    tolerance: ToleranceOption = 0.01,
    as_json: JsonOption = False,
) -> None:
    """Look for what is wrong with prepared games, or with Parquet files before they are prepared.

    Exit code 4 means that something was found; each finding names file, game and ply. A folder's Parquet files may be
    of games, or of thinking rows.
    """
    from spanloom.families.chess.verify import validate_place

    report = validate_place(place, games=source, thinking=thinking, deep=deep, legal=legal, tolerance=tolerance)
    if as_json:
        print_json(report.as_dict())
    else:
        _print_findings(report.as_dict())
    exit_by(report)


@chess_app.command("inspect")
def inspect(
    place: PlaceArgument,
    samples: Annotated[Literal["games", "thinking"], typer.Option(help="Which kind of samples.")] = "games",
    split: SplitOption = "train",
    count: Annotated[int, typer.Option(help="How many samples.", min=1)] = 1,
    max_seq_len: Annotated[int, typer.Option(help="Tokens of a sample.", min=1)] = 512,
    skip_board_prob: Annotated[float, typer.Option(help="How often a board is left out.", min=0, max=1)] = 0.2,
    seed: Annotated[int, typer.Option(help="Another seed draws other samples.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write a page with pictures of the boards instead.")] = None,
) -> None:
    """Draw samples as training sees them: boards, moves, values, and below them tokens, targets and masks."""
    from spanloom.families.chess.inspection import drawn_views, page, text_lines
    from spanloom.storage import write_atomically

    views = drawn_views(
        place,
        thinking=samples == "thinking",
        split=split,
        count=count,
        max_seq_len=max_seq_len,
        skip_board_prob=skip_board_prob,
        seed=seed,
    )
    if html is not None:
        write_atomically(html, page(views, f"Samples of {place}").encode())
        print(html)
        return
    console = Console()
    for view in views:
        for line in text_lines(view):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        console.print()


@chess_app.command("report")
def report(
    place: PlaceArgument,
    html: Annotated[Path | None, typer.Option(help="Write a page instead of JSON.")] = None,
) -> None:
    """Count what the games are like: lengths, values, openings, what was left out. JSON, or a page."""
    from spanloom.families.chess.report import game_facts, page
    from spanloom.storage import write_atomically

    facts = game_facts(place)
    if html is None:
        print_json(facts)
        return
    write_atomically(html, page(facts, f"Games of {place}").encode())
    print(html)


@chess_app.command("train")
def train(
    games: Annotated[Path | None, typer.Option("--games", help="Prepared games or Parquet files.")] = None,
    thinking: Annotated[Path | None, typer.Option("--thinking", help="The same, of thinking rows.")] = None,
    steps: Annotated[int, typer.Option(help="Optimizer steps.", min=1)] = 100,
    batch_size: Annotated[int, typer.Option(help="Samples of a batch.", min=1)] = 8,
    max_seq_len: Annotated[int, typer.Option(help="Tokens of a sample.", min=1)] = 256,
    variation_ratio: Annotated[float, typer.Option(help="Share of thinking samples.", min=0, max=1)] = 0.2,
    seed: Annotated[int, typer.Option(help="Of the model and of the samples.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Train a small transformer on the samples, as an example of what their fields are for: the losses fall."""
    from spanloom.families.chess.training import LOSSES, train_example

    history = train_example(
        games,
        thinking,
        steps=steps,
        batch_size=batch_size,
        max_seq_len=max_seq_len,
        variation_ratio=variation_ratio,
        seed=seed,
    )
    if as_json:
        print_json(history)
        return
    print("step  " + "".join(f"{name:>10}" for name in (*LOSSES, "total")))
    for number, line in enumerate(history):
        if number % max(1, len(history) // 20) == 0 or number == len(history) - 1:
            print(f"{number:4d}  " + "".join(f"{line[name]:10.4f}" for name in (*LOSSES, "total")))


def _print_findings(report: dict[str, Any]) -> None:
    findings, found, checked = report["findings"], report["found"], report["checked"]
    for finding in findings:
        place = f" ({finding['file']})" if finding["file"] else ""
        print(f"{finding['check']}: {finding['message']}{place}")
    if found:
        print("found: " + ", ".join(f"{number:,} {check}" for check, number in found.items()))
    else:
        print("clean: " + ", ".join(f"{number:,} {check}" for check, number in checked.items()))
