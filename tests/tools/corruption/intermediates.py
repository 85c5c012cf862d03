"""What a killed build left behind, damaged before the same command goes on with it.

In: a build that was killed late. Out: for each damage what is wrong with the end: it must be the undisturbed dataset,
byte for byte, or an error that names the file and says what to do, without a dataset.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from support.strange_files import INSTEAD
from tools.chaos.enumeration import Prepared
from tools.chaos.scenarios import ROOT
from tools.chaos.state import difference, false_datasets, tree
from tools.corruption.files import DAMAGES
from tools.corruption.hostile import SECONDS, unclear

SCENARIO = "build, resumed at 90%"
WORK = f"{ROOT}/.work"
KINDS = {
    "rendered part": f"{WORK}/rendered_00/part_00000.parquet",
    "record of a rendered part": f"{WORK}/rendered_00/part_00000.json",
    "rejects of a part": f"{WORK}/rendered_00/part_00000.rejects.jsonl",
    "rendered.json": f"{WORK}/rendered_00/rendered.json",
    "ids part": f"{WORK}/ids_00/part_00000.parquet",
    "ids.json": f"{WORK}/ids_00/ids.json",
    "split.json": f"{WORK}/split.json",
    "inventory": f"{WORK}/inventory_00.json",
    "build.json": f"{WORK}/build.json",
    "published .bin": f"{ROOT}/train/shard_00_tokens.bin",
    "published rows.parquet": f"{ROOT}/train/shard_00_rows.parquet",
    "published rejects": f"{ROOT}/rejects/shard_00.jsonl",
}
"""Kind → the file of it that an unfinished build holds."""

ODD = (
    *("a FIFO", "a link to itself", "a link to /dev/zero", "null", "a list", "an empty object"),
    "100,000 lists in one another",
)
"""What else may lie there, of all that may."""


def damages() -> Iterator[tuple[str, str, Callable[[Path], None]]]:
    """`(kind, damage, what makes it)`: every damage, and what else may lie there instead."""
    for kind in KINDS:
        for name, damage in DAMAGES.items():
            yield kind, name, damage
        for name in ODD:

            def replace(path: Path, make: Callable[[Path], None] = INSTEAD[name]) -> None:
                path.unlink()
                make(path)

            yield kind, f"{name} in its place", replace


def wrong_after(prepared: Prepared, kind: str, damage: Callable[[Path], None]) -> str | None:
    """What is wrong when the build goes on with one of its files damaged."""
    prepared.reset()
    folder = prepared.driver.folder
    damage(folder / KINDS[kind])
    run = prepared.driver.run(prepared.scenario.arguments, watch=False, seconds=SECONDS)
    if false := false_datasets(folder):
        return f"false dataset: {false[0]}"
    if run.code == 0:
        differs = difference(prepared.wanted, tree(folder))
        return f"other bytes: {differs[0]}" if differs else None
    if (folder / ROOT / "manifest.json").exists():
        return f"a manifest stands although the build failed: {run.output[:200]!r}"
    return unclear(run)
