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
one pass, by a whole build with one worker (imports and validation too), and by the plain loop over openai-harmony
(`bench.plain_chat`) that makes a document of each run, or renders each conversation once.
"""

import argparse
import json
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from bench.corpus import ROW_GROUP, SHARDS, conversations_source
from bench.processes import compile_sources, run
from bench.speed import environment
from spanloom.families.harmony.tokenizer import load_encoding
from spanloom.tokenizers.o200k.asset import locate_asset, verify_asset
from support import chat_sources as chat

FORMS = ("synth_kd", "one turn", "three turns")
HISTORY = {"synth_kd": None, "one turn": "keep", "three turns": "serve"}
Messages = list[dict[str, Any]]


def _conversations(source: Path) -> Iterator[tuple[str, Messages]]:
    for path in sorted(source.glob("*.parquet")):
        for row in pq.read_table(path, columns=["synth_id", "messages_json"]).to_pylist():
            yield row["synth_id"], json.loads(row["messages_json"])["messages"]


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


def _loop_sources(work: Path, rows: int, tokenizer: Path) -> dict[str, Path]:
    """`rows` conversations in all."""
    synth, _ = conversations_source(work, 3 * rows, load_encoding(tokenizer))
    every = list(_conversations(synth))
    sizes = {"three turns": (3, _joined), "ten turns": (10, _long)}
    made = {}
    for form, (turns, join) in sizes.items():
        joined = [
            chat.row(every[at][0], join([messages for _, messages in every[at : at + turns]]))
            for at in range(0, len(every) - turns + 1, turns)
        ]
        shards = [joined[shard::SHARDS] for shard in range(SHARDS)]
        folder = work / f"loop_{form.replace(' ', '_')}"
        made[form] = chat.write_source(folder, shards, row_group_size=ROW_GROUP)
    return made


def _processor(command: list[str]) -> tuple[float, str]:
    """Seconds of the processor that a command and its processes take, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = run(command, environment()).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, printed


def _begin_of(source: Path, folder: Path, rows: int) -> int:
    """Writes the first `rows` conversations of a source to a folder, without a manifest. Returns how many there are."""
    folder.mkdir()
    first = min(source.glob("*.parquet"))
    table = pq.read_table(first).slice(0, rows)
    pq.write_table(table, folder / first.name)
    return table.num_rows


def against_the_loop(work: Path, rows: int, tokenizer: Path, loop_rows: int) -> None:
    """Prints conversations a second of the processor, each kind in the same run.

    The plain loop, which takes as long for each conversation however many there are, goes over `loop_rows` of them.
    """
    print("| | conversations | a second of the processor | to the loop | to the loop that renders once |")
    print("|---|---|---|---|---|")
    for form, source in _loop_sources(work, rows, tokenizer).items():
        rates: dict[str, float] = {}
        count = sum(pq.read_metadata(path).num_rows for path in source.glob("*.parquet"))
        few = work / f"{source.name}_few"
        few_count = _begin_of(source, few, loop_rows)
        for name, more in (("plain loop", []), ("plain loop, rendering once", ["--once"])):
            command = [sys.executable, "-m", "bench.plain_chat", str(few), str(work / "plain")]
            printed = run([*command, "--tokenizer", str(tokenizer), *more], environment()).stdout
            rates[name] = few_count / json.loads(printed)["cpu"]
        command = [sys.executable, "-m", "bench.stages", "one-pass", str(source), str(source), str(work)]
        _, printed = _processor([*command, "--tokenizer", str(tokenizer), "--history", "serve"])
        (line,) = json.loads(printed)
        rates["one pass"] = count / line["cpu"]
        command = [sys.executable, "-m", "spanloom", "build", "--source", str(source), "--out", str(work / "out")]
        command += ["--tokenizer", str(tokenizer), "--workers", "1", "--allow-unknown-sha", "-q"]
        seconds, _ = _processor([*command, "--overwrite", "--no-resume"])
        rates["whole build"] = count / seconds
        for name, rate in rates.items():
            ratios = [f"{rate / rates[loop]:.1f}" for loop in ("plain loop", "plain loop, rendering once")]
            print(f"| {form}: {name} | {count:,} | {rate:,.0f} | {' | '.join(ratios)} |", flush=True)


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
    command = [sys.executable, "-m", "bench.stages", "one-pass", str(source), str(source), str(work)]
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
    compile_sources(Path(__file__).parents[2] / "src")
    with tempfile.TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        if given.loop:
            against_the_loop(work, given.rows, tokenizer, given.loop_rows)
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
