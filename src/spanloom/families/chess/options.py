"""The options of chess, each declared once: for commands, steps and the functions that they call."""

from dataclasses import dataclass
from typing import Annotated, Literal

from spanloom.families.chess import defaults
from spanloom.options.option import option, place
from spanloom.options.places import HtmlPlace, Inventory, Report, Root
from spanloom.options.shared import AllowUnknownSha, Scratch

BestMove = Literal["played", "none"]
OnError = Literal["skip", "raise"]
RESULTS = ("1-0", "0-1", "1/2-1/2", "*")
GamesPlace = Annotated[str | None, place("Folder or URI of Parquet files of games.", "--source")]
ThinkingPlace = Annotated[str | None, place("Folder or URI of Parquet files of thinking rows.", "--thinking")]


def results_in(texts: list[str]) -> tuple[str, ...]:
    """Results of games. Raises ValueError for another text."""
    if unknown := [text for text in texts if text not in RESULTS]:
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(RESULTS)}")
    return tuple(texts)


@dataclass(frozen=True, kw_only=True)
class GameFilter:
    """The conditions for using a game of PGN. None, an empty value and False switch a condition off."""

    min_rating: Annotated[int | None, option("Of both players, by WhiteElo and BlackElo.", min=0)] = None
    results: Annotated[
        tuple[str, ...],
        option(
            "Games with this result alone: 1-0, 0-1, 1/2-1/2, *. Repeatable.",
            "--result",
            takes=list[str] | None,
            read=results_in,
        ),
    ] = ()
    min_seconds: Annotated[
        int | None, option("Of the time control: base and 40 times the increment, 300+3 is 420.", min=0)
    ] = None
    max_seconds: Annotated[int | None, option("The same, at most.", min=0)] = None
    with_values: Annotated[bool, option("Games with an evaluated position alone.", "--with-values")] = False


@dataclass(frozen=True, kw_only=True)
class PrepareRules:
    """How Parquet files are prepared."""

    valid_fraction: Annotated[
        float, option("Share of the games held out for validation; the game's id alone decides.", min=0, max=1)
    ] = defaults.VALID_FRACTION
    on_error: Annotated[OnError, option("A bad game: set it aside under rejects/ and count it, or stop.")] = (
        defaults.ON_ERROR
    )
    max_rejects: Annotated[
        str | None,
        option(
            "Bad games that each file may set aside: a number, or a share of its rows such as 0.1%.", metavar="N|P%"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """How prepared games are checked. `deep` None: all are made again; `tolerance`: of each value from 0 … 1 too."""

    deep: Annotated[int | None, option("Games of each file that validation makes again from the source.", min=0)] = (
        defaults.DEEP
    )
    legal: Annotated[
        bool, option("Check with python-chess that each move is legal and leads to the next board.", "--legal")
    ] = defaults.LEGAL
    tolerance: Annotated[
        float, option("Allowed difference of win + draw + loss from 1.", min=0, max=1, show_default=True)
    ] = defaults.TOLERANCE


@dataclass(frozen=True, kw_only=True)
class DrawOptions:
    """Which samples are drawn, as the datasets draw them."""

    split: Annotated[Literal["train", "valid"], option("Which split of prepared games.")] = "train"
    count: Annotated[int, option("How many samples.", min=1)] = 1
    max_seq_len: Annotated[int, option("Tokens of a sample.", min=1)] = defaults.INSPECT_MAX_SEQ_LEN
    skip_board_prob: Annotated[float, option("How often a board is left out.", min=0, max=1)] = defaults.SKIP_BOARD_PROB
    seed: Annotated[int, option("Another seed draws other samples.")] = 0


@dataclass(frozen=True, kw_only=True)
class PrepareShard(PrepareRules):
    """The options of the step prepare-chess."""

    root: Root
    inventory: Inventory
    shard: Annotated[int, option("Which shard, from 0: file i of a folder goes to shard i modulo --shards.")]
    shards: Annotated[int, option("How many shards.", min=1)] = defaults.SHARDS
    games: Annotated[str | None, place("Folder or URI of Parquet files of games.")] = None
    thinking: ThinkingPlace = None
    allow_unknown_sha: AllowUnknownSha = False
    scratch: Scratch = None


@dataclass(frozen=True, kw_only=True)
class ValidatePrepared(CheckOptions):
    """The options of the step validate-chess."""

    root: Root
    games: Annotated[str | None, place("Folder or URI of the games that it was prepared from.")] = None
    thinking: ThinkingPlace = None
    report: Report = None
    html: HtmlPlace = None
    scratch: Scratch = None
