"""What validation finds and what it does not: `python -m tools.corruption` from the repository's root, src and tests on
PYTHONPATH.

In: nothing. Out: tables as Markdown on stdout, for docs/reliability.md; with `--json FILE` every outcome.
"""

import argparse
import json
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from support.stores.gcs import CloudStorage
from tools.chaos.driver import Driver
from tools.chaos.enumeration import prepare
from tools.chaos.scenarios import scenarios
from tools.corruption.files import file_edits
from tools.corruption.forgeries import forgeries
from tools.corruption.hostile import Input, answers, single_values, whole_files
from tools.corruption.intermediates import SCENARIO, damages, wrong_after
from tools.corruption.leaves import leaf_edits
from tools.corruption.trial import ROOT, SOURCE, Bench, Edit, Outcome, clean_dataset, clean_packed_chat

TABLES = ("files", "leaves", "forgeries", "hostile", "values", "intermediates", "chat")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.corruption", description=__doc__)
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    parser.add_argument("--every", type=int, default=1, help="of hostile inputs only each n-th")
    parser.add_argument("--folder", type=Path, help="work here, not in a temporary folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome here")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="corruption-", dir=options.folder) as folder,
        clean_dataset(Path(folder)) as bench,
    ):
        outcomes = {
            name: tried(bench, edits) for name, edits in all_edits(bench).items() if options.only in (None, name)
        }
        folder = bench.reset()
        manifests = [json.loads((folder / name / "manifest.json").read_bytes()) for name in (ROOT, SOURCE)]
        inputs = {"hostile": whole_files(), "values": single_values(*manifests)}
        told = [
            hostile_table(bench, name, some[:: options.every])
            for name, some in inputs.items()
            if options.only in (None, name)
        ]
    if options.only in (None, "chat"):
        with (
            tempfile.TemporaryDirectory(prefix="corruption-", dir=options.folder) as folder,
            clean_packed_chat(Path(folder)) as chat,
        ):
            manifest = json.loads((chat.reset() / ROOT / "manifest.json").read_bytes())
            outcomes["leaves of packed chat"] = tried(chat, leaf_edits(manifest))
    if options.only in (None, "intermediates"):
        told.append(intermediates_table())
    if options.json:
        options.json.write_text(json.dumps({name: [asdict(one) for one in some] for name, some in outcomes.items()}))
    for name, some in outcomes.items():
        print(table(name, some))
    print("\n".join(told))


def intermediates_table() -> str:
    """What a killed build left, damaged: by kind how often the same command ended well."""
    store = CloudStorage()
    (scenario,) = (scenario for scenario in scenarios(store) if scenario.name == SCENARIO)
    store.close()
    given: Counter[str] = Counter()
    well: Counter[str] = Counter()
    wrong: dict[str, list[str]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="corruption-") as folder,
        Driver(Path(folder) / "work", log=Path(folder) / "log.txt") as driver,
    ):
        prepared = prepare(scenario, driver, Path(folder))
        for kind, name, damage in damages():
            given[kind] += 1
            fault = wrong_after(prepared, kind, damage)
            well[kind] += fault is None
            if fault is not None:
                print(f"{kind}: {name}: {fault}", file=sys.stderr, flush=True)
                wrong[kind].append(f"{name}: {fault[:80]}")
    lines = [f"\n### Intermediates: {well.total()} of {given.total()} end well\n", "| file | ends well | else |"]
    lines += [
        "|---|---:|---|",
        *(f"| {kind} | {well[kind]} of {given[kind]} | {'; '.join(wrong[kind])} |" for kind in given),
    ]
    return "\n".join(lines)


def hostile_table(bench: Bench, name: str, inputs: Sequence[Input]) -> str:
    """Hostile inputs by kind: how many answers were clear; then the others, what was wrong with them."""
    clear: Counter[str] = Counter()
    given: Counter[str] = Counter()
    wrong: Counter[tuple[str, str, str]] = Counter()
    for each in inputs:
        for command, fault in answers(bench, each):
            given[each.file] += 1
            clear[each.file] += fault is None
            if fault is not None:
                print(f"{command} of {each}: {fault}", file=sys.stderr, flush=True)
                wrong[each.file, command, re.sub(r"\d+", "N", fault)[:100]] += 1
    lines = [f"\n### {name.capitalize()}: {clear.total()} of {given.total()} answers are clear\n"]
    lines += ["| input | clear answers |", "|---|---:|", *(f"| {f} | {clear[f]} of {given[f]} |" for f in given)]
    if wrong:
        lines += ["", "| input | command | answer | times |", "|---|---|---|---:|"]
        lines += [f"| {file} | {command} | {fault} | {count} |" for (file, command, fault), count in wrong.items()]
    return "\n".join(lines)


def all_edits(bench: Bench) -> dict[str, list[Edit]]:
    """Every edit, by table."""
    manifest = json.loads((bench.reset() / ROOT / "manifest.json").read_bytes())
    return {
        "files": list(file_edits()),
        "leaves": list(leaf_edits(manifest)),
        "forgeries": forgeries(),
    }


def tried(bench: Bench, edits: Iterable[Edit]) -> list[Outcome]:
    outcomes = []
    for edit in edits:
        outcomes.append(bench.try_edit(edit))
        if not outcomes[-1].found and not edit.why:
            print(
                f"{'CRASH' if outcomes[-1].crash else 'not found'}: {edit} {outcomes[-1].crash or ''}", file=sys.stderr
            )
    return outcomes


def table(name: str, outcomes: Sequence[Outcome]) -> str:
    """One table: a line for each kind, or for each edit where every one is another."""
    found = sum(outcome.found for outcome in outcomes)
    excused = sum(bool(outcome.why) and not outcome.found for outcome in outcomes)
    lines = [f"\n### {name.capitalize()}: {found} of {len(outcomes)} found, {excused} cannot be\n"]
    if name == "forgeries":
        lines += ["| forgery | found | by |", "|---|---|---|"]
        return "\n".join([*lines, *(f"| {one.name} | {_word(one)} | {_by(one)} |" for one in outcomes)])
    lines += ["| what | found | by |", "|---|---:|---|"]
    for kind in dict.fromkeys(outcome.kind for outcome in outcomes):
        some = [outcome for outcome in outcomes if outcome.kind == kind]
        missed = [f"{one.name}: {one.crash or one.why or 'not found'}" for one in some if not one.found]
        if name.startswith("leaves"):
            missed = [one.crash or one.why or "not found" for one in some if not one.found]
        by = sorted({part for one in some if one.found for part in one.by.split(", ")})
        lines.append(
            f"| {kind} | {sum(one.found for one in some)} of {len(some)} | {', '.join(by)[:160]}"
            f"{'; ' if by and missed else ''}{'; '.join(dict.fromkeys(missed))} |"
        )
    return "\n".join(lines)


def _word(outcome: Outcome) -> str:
    return "yes" if outcome.found else "crash" if outcome.crash else "no"


def _by(outcome: Outcome) -> str:
    return outcome.by or outcome.crash or outcome.why or ""


if __name__ == "__main__":
    main()
