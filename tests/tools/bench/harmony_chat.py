"""harmony_chat against SYNTH KD: the same texts of this machine in both forms, in the same run.

In: nothing. Out: tokens a second of one pass (read, check, cut, render) in a process of its own, by the clock and by
the processor's time, and of whole builds (`--builds`); each form in turns, so that what else the machine does weighs on
all. Tables say the median, and the ratio to SYNTH KD of the same round. Time of the processor says more on a busy
machine.

    synth_kd      a question, reasoning, an answer a row
    one turn      the same conversations as `harmony_conversations_v1`, history keep
    three turns   three of them in one conversation, the second with a call of a tool; cut with history serve, so that
                  each of three documents shows what a server would

With `--loop` only the third form is measured, and the same with ten turns: conversations a second of the processor, by
one pass, by a whole build with one worker and by the plain loops over openai-harmony (`bench.plain_chat`), one after
the other in each round. What is compared, and how far it is fair:

    whole build   `spanloom build` of a source that `spanloom convert` wrote (`conversations_v1`), from the start of the
                  command to its end, all processes: imports, tables, audit, writing, row tables, hashes, validation
    loop, turns   what one would write for the same documents: of each turn what a server shows before it, and the
                  turn; the number of tokens must be equal. No checks, ids, rows, split, hashes or validation
    loop, runs    a document for each assistant run: what comes before a call of a tool is rendered again after it.
                  Ratios measured earlier are of this loop; with calls it makes more tokens than the build
    loop, once    each conversation rendered whole, once

The loops read the messages as openai-harmony takes them, so that converting is not counted; a loop is measured over
`--loop-rows` conversations, and its start (imports, tokenizer) is counted once over all that the build has.
"""

import argparse
import json
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from spanloom.families.harmony.tokenizer import load_encoding
from spanloom.tokenizers.o200k.asset import locate_asset, verify_asset
from support import chat_sources as chat
from tools.bench.corpus import ROW_GROUP, SHARDS, conversations_source
from tools.bench.processes import compile_sources, run
from tools.bench.speed import environment

FORMS = ("synth_kd", "one turn", "three turns")
HISTORY = {"synth_kd": None, "one turn": "keep", "three turns": "serve"}
LOOPS = {"loop, turns": "turns", "loop, runs": "runs", "loop, once": "conversations"}
"""Name → the documents that `bench.plain_chat` makes."""
Messages = list[dict[str, Any]]


def _conversations(source: Path) -> Iterator[tuple[str, Messages]]:
    for path in sorted(source.glob("*.parquet")):
        table = pq.read_table(path)
        ids = table["synth_id" if "synth_id" in table.column_names else "id"].to_pylist()
        for name, text in zip(ids, table["messages_json"].to_pylist(), strict=True):
            yield name, json.loads(text)["messages"]


def _text(message: dict[str, Any]) -> str:
    return str(message["content"][0]["text"])


def _joined(three: list[Messages]) -> Messages:
    """Three conversations one after the other; what the second answers comes out of a tool, in part."""
    (system, _, *first), (*_, user, analysis, final), (*_, last_user, last_analysis, last_final) = three
    half = len(_text(final)) // 2
    told, answer = _text(final)[:half], _text(final)[half:]
    call = [chat.preamble("One moment."), chat.call('{"city":"Oslo"}'), chat.result(told)]
    second = [user, analysis, *call, chat.analysis("That will do."), chat.final(answer)]
    return [system, chat.developer("Answer.", chat.TOOLS), *first, *second, last_user, last_analysis, last_final]


def _long(ten: list[Messages]) -> Messages:
    """Ten conversations one after the other, under the first one's system message."""
    system = ten[0][0]
    return [system, *(message for one in ten for message in one if message["role"] not in ("system", "developer"))]


def _loop_source(work: Path, form: str, rows: int, tokenizer: Path) -> Path:
    """A folder of `rows` conversations of a form, in messages of Harmony."""
    turns, join = LOOP_FORMS[form]
    synth, _ = conversations_source(work, turns * rows, load_encoding(tokenizer))
    every = list(_conversations(synth))
    joined = [
        chat.row(every[at][0], join([messages for _, messages in every[at : at + turns]]))
        for at in range(0, len(every) - turns + 1, turns)
    ]
    shards = [joined[shard::SHARDS] for shard in range(SHARDS)]
    return chat.write_source(work / f"loop_{form.replace(' ', '_')}", shards, row_group_size=ROW_GROUP)


def _converted(source: Path) -> Path:
    """The same conversations as `spanloom convert` writes them, in the order of the shards."""
    lines, out = source.with_suffix(".jsonl"), source.with_name(f"{source.name}_converted")
    shutil.rmtree(out, ignore_errors=True)
    with lines.open("w", encoding="utf-8") as file:
        for name, messages in _conversations(source):
            file.write(json.dumps({"id": name, "messages": messages}, ensure_ascii=False) + "\n")
    command = [
        sys.executable,
        "-m",
        "spanloom",
        "convert",
        str(lines),
        "--out",
        str(out),
        "--yes",
        "--text-as-is",
        "-q",
    ]
    run(command, environment())
    lines.unlink()
    return out


def _processor(command: list[str]) -> tuple[float, str]:
    """Seconds of the processor that a command and its processes take, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = run(command, environment()).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, printed


def _begin_of(source: Path, folder: Path, rows: int) -> int:
    """Writes the first `rows` conversations of a source to a folder, without a manifest. Returns how many there are."""
    folder.mkdir(exist_ok=True)
    first = min(source.glob("*.parquet"))
    table = pq.read_table(first).slice(0, rows)
    pq.write_table(table, folder / first.name)
    return table.num_rows


def _built_tokens(root: Path, conversations: int) -> int:
    """Tokens of the documents of the first conversations of a dataset's first shard."""
    tables = [pq.read_table(path, columns=["row", "tokens"]) for path in root.glob("*/shard_00_rows.parquet")]
    return sum(int(np.array(table["tokens"])[np.array(table["row"]) < conversations].sum()) for table in tables)


def against_the_loop(work: Path, rows: int, tokenizer: Path, loop_rows: int, runs: int) -> None:
    """Prints conversations a second of the processor, and the ratio to each loop in the same round."""
    print(
        "| | conversations | a second of the processor | to the loop, turns | runs | once |\n|---|---|---|---|---|---|"
    )
    for form in LOOP_FORMS:
        source = _loop_source(work, form, rows, tokenizer)
        converted, few, out = _converted(source), work / f"{source.name}_few", work / "out"
        count = sum(pq.read_metadata(path).num_rows for path in source.glob("*.parquet"))
        few_count = _begin_of(source, few, loop_rows)
        rounds: list[dict[str, float]] = []
        for _ in range(runs):
            rates: dict[str, float] = {}
            tokens = {}
            for kind in LOOPS:
                command = [sys.executable, "-m", "tools.bench.plain_chat", str(few), str(work / "plain")]
                command += ["--tokenizer", str(tokenizer), "--documents", LOOPS[kind]]
                line = json.loads(run(command, environment()).stdout)
                rates[kind] = count / (line["start"] + line["cpu"] * count / few_count)
                tokens[kind] = line["tokens"]
            command = [
                sys.executable,
                "-m",
                "tools.bench.stages",
                "one-pass",
                str(converted),
                str(converted),
                str(work),
            ]
            (line,) = json.loads(
                run([*command, "--tokenizer", str(tokenizer), "--history", "serve"], environment()).stdout
            )
            rates["one pass"] = count / line["cpu"]
            shutil.rmtree(out, ignore_errors=True)
            command = [sys.executable, "-m", "spanloom", "build", "--source", str(converted), "--out", str(out)]
            command += ["--tokenizer", str(tokenizer), "--workers", "1", "--allow-unknown-sha", "-q"]
            seconds, _ = _processor(command)
            rates["whole build"] = count / seconds
            if (built := _built_tokens(out, few_count)) != tokens["loop, turns"]:
                raise RuntimeError(f"the loop makes {tokens['loop, turns']} tokens, the build {built}")
            rounds.append(rates)
        for name in rounds[0]:
            of_loops = [[rates[name] / rates[loop] for rates in rounds] for loop in LOOPS]
            ratios = [f"{median(each):.1f} ({min(each):.1f} … {max(each):.1f})" for each in of_loops]
            rate = median(rates[name] for rates in rounds)
            print(f"| {form}: {name} | {count:,} | {rate:,.0f} | {' | '.join(ratios)} |", flush=True)


LOOP_FORMS = {"three turns": (3, _joined), "ten turns": (10, _long)}
"""Form → how many short conversations make one, and how."""


def _sources(work: Path, rows: int, tokenizer: Path) -> dict[str, Path]:
    synth, _ = conversations_source(work, rows, load_encoding(tokenizer))
    every = list(_conversations(synth))
    one = [chat.row(name, messages) for name, messages in every]
    three = [
        chat.row(every[at][0], _joined([messages for _, messages in every[at : at + 3]]))
        for at in range(0, len(every) - 2, 3)
    ]
    made = {"synth_kd": synth}
    for form, found in (("one turn", one), ("three turns", three)):
        shards = [found[shard::SHARDS] for shard in range(SHARDS)]
        made[form] = chat.write_source(work / form.replace(" ", "_"), shards, row_group_size=ROW_GROUP)
    return made


def _pass(source: Path, work: Path, tokenizer: Path, form: str) -> tuple[float, float]:
    """Tokens a second, and a second of the processor, of reading, checking, cutting and rendering."""
    command = [sys.executable, "-m", "tools.bench.stages", "one-pass", str(source), str(source), str(work)]
    command += ["--tokenizer", str(tokenizer)]
    if HISTORY[form]:
        command += ["--history", str(HISTORY[form])]
    (line,) = json.loads(run(command, environment()).stdout)
    return line["tokens"] / line["seconds"], line["tokens"] / line["cpu"]


def _build(source: Path, work: Path, tokenizer: Path, form: str, workers: int) -> float:
    """Tokens a second of a whole build, from its stages: render, split, write, validate."""
    command = [sys.executable, "-m", "spanloom", "build", "--source", str(source), "--out", str(work / "out")]
    command += ["--tokenizer", str(tokenizer), "--workers", str(workers), "--allow-unknown-sha", "--json"]
    command += ["--valid-fraction", "0.01", "--deep", "0", "--overwrite", "--no-resume"]
    if HISTORY[form]:
        command += ["--history", str(HISTORY[form])]
    finished = run(command, environment())
    totals = json.loads(finished.stdout)["totals"]["splits"].values()
    return float(sum(split["tokens"] for split in totals) / finished.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=12_000, help="conversations of SYNTH's form")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--builds", action="store_true", help="whole builds too")
    parser.add_argument("--loop", action="store_true", help="against the plain loop alone; --rows conversations")
    parser.add_argument("--loop-rows", type=int, default=1000, help="conversations that the plain loop goes over")
    parser.add_argument("--work", type=Path, help="keeps the corpus for the next run")
    given = parser.parse_args()
    tokenizer = verify_asset(locate_asset()).resolve()
    compile_sources(Path(__file__).parents[3] / "src")
    with tempfile.TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        if given.loop:
            against_the_loop(work, given.rows, tokenizer, given.loop_rows, given.runs)
            return
        sources = _sources(work, given.rows, tokenizer)
        kinds = ("one pass", "one pass, processor", *(["whole build"] if given.builds else []))
        measured: dict[str, dict[str, list[float]]] = {kind: {form: [] for form in FORMS} for kind in kinds}
        for number in range(given.runs):
            for form in FORMS:
                for kind, rate in zip(kinds, _pass(sources[form], work, tokenizer, form), strict=False):
                    measured[kind][form].append(rate)
                if given.builds:
                    rate = _build(sources[form], work / form.replace(" ", "_out_"), tokenizer, form, given.workers)
                    measured["whole build"][form].append(rate)
            print(f"run {number + 1} of {given.runs}", file=sys.stderr)
    print("| | tokens/s | ratio to synth_kd of the same round |\n|---|---|---|")
    for what, rates in measured.items():
        for form in FORMS:
            ratios = [one / other for one, other in zip(rates[form], rates["synth_kd"], strict=True)]
            spread = f"{median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f})"
            print(f"| {what}: {form} | {median(rates[form]) / 1e6:.2f} M | {spread} |")


if __name__ == "__main__":
    main()
