"""`spanloom build --model` as a whole, by path and by the full proof, against one `apply_chat_template` a conversation.

In: a pair of tokenizer and template of the folder that `SPANLOOM_MODELS` names. Out: JSON. All figures are CPU of all
processes at the margin, from two sizes of one source, so that start-up is not in them; `two_workers` is a ratio of
wall-clock times. `turns`: CPU of one conversation of 400 messages by that of one of 200, and by stored token; `memory`:
the largest resident set of a build of six conversations of 400 turns.

    PYTHONPATH=tests python -m tools.bench.model_build --pair otc_qwen-3
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from transformers import PreTrainedTokenizerFast

from spanloom.families.models.conversation import Conversation, read_conversation
from spanloom.families.models.model import Model
from spanloom.families.models.paths.prover import PathProver
from spanloom.families.models.probe.form import find_form, variable_sets
from spanloom.families.models.prove.conversation import Proving
from support.model_material import DAY, models_of, pairs
from tools.bench.model_proof import LENGTH, TURNS, as_transformers, processor_seconds, texts


def conversations(given: Iterator[str], count: int, turns: int, *, thoughts: bool) -> list[Conversation]:
    """With `thoughts`, every second one has reasoning in each answer."""
    made = []
    for number in range(count):
        messages: list[dict[str, Any]] = [{"role": "system", "content": next(given)[:LENGTH]}]
        for _ in range(turns):
            messages.append({"role": "user", "content": next(given)[: LENGTH // 2]})
            thought = {"reasoning": next(given)[: LENGTH // 2]} if thoughts and number % 2 else {}
            messages.append({"role": "assistant", "content": next(given)[:LENGTH], **thought})
        made.append(read_conversation({"messages": messages}, name=str(number)))
    return made


def spanloom(*words: object) -> tuple[float, float, int]:
    """CPU seconds of the command and all its processes, wall-clock seconds, the largest resident set so far in KiB."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "spanloom", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return cpu, time.monotonic() - began, after.ru_maxrss


def source_of(given: Sequence[Conversation], folder: Path) -> Path:
    folder.mkdir()
    lines = [json.dumps({"id": each.id, "messages": list(each.messages)}) + "\n" for each in given]
    (folder / "chat.jsonl").write_text("".join(lines))
    spanloom("convert", folder / "chat.jsonl", "--out", folder / "source", "--yes")
    return folder / "source"


def built(source: Path, model: Path, out: Path, proof: str, workers: int = 1) -> tuple[float, float, int]:
    options = ("--proof", proof, "--workers", workers, "--deep", 0, "--allow-unknown-sha")
    return spanloom("build", "--source", source, "--model", model, "--out", out, *options)


def growth(model: Model, given: Iterator[str], *, thoughts: bool) -> dict[str, float]:
    """CPU of 400 messages by that of 200, whole and by stored token, in one process that has learned the paths."""
    sets = variable_sets(model.template, "auto", {})
    prover = PathProver(model, Proving(form=find_form(model.template, sets), variables=sets))
    spent: dict[int, tuple[float, int]] = {}
    for messages in (6, 40, 200, 400):
        # Twice as many as are measured with thoughts: every second one has some.
        batch = conversations(given, 8, messages // 2, thoughts=thoughts)[1 :: 1 + thoughts]
        by_path = [each for each in batch if prover.documents(each)]  # learns; a text may send one to the full proof
        seconds, found = processor_seconds(partial(list, map(prover.documents, by_path)))
        tokens = sum(document.tokens.size for each in found for document in each.proven.documents)
        spent[messages] = (seconds / len(by_path), tokens // len(by_path))
    (short, few), (long, many) = spent[200], spent[400]
    return {"whole": round(long / short, 2), "by_token": round(long / many / (short / few), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", default="otc_qwen-3", help="the name of a template")
    parser.add_argument("--conversations", type=int, default=1_500)
    parser.add_argument("--no-thoughts", action="store_true", help="for a template that has no place for them")
    given = parser.parse_args()
    text, thoughts = texts(), not given.no_thoughts
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        ((pair, model),) = models_of([pair for pair in pairs() if pair.template == given.pair], scratch, DAY)
        folder = scratch / pair.name
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": sorted(model.stops)}))
        peer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), chat_template=model.template.text)
        six = source_of(conversations(text, 6, 400, thoughts=thoughts), scratch / "six")
        memory = built(six, folder, scratch / "six_root", "paths")[2]  # first: the largest of all commands so far
        batch = conversations(text, given.conversations, TURNS, thoughts=thoughts)
        few, all_ = source_of(batch[: len(batch) // 3], scratch / "few"), source_of(batch, scratch / "all")
        margin = len(batch) - len(batch) // 3
        spent: dict[str, tuple[float, float]] = {}
        for way, workers in (("full", 1), ("paths", 1), ("paths", 2)):
            short, long = (
                built(source, folder, scratch / f"{way}{workers}{source.parent.name}", way, workers)
                for source in (few, all_)
            )
            spent[f"{way}{workers}"] = (long[0] - short[0]) / margin, (long[1] - short[1]) / margin
        once, _ = processor_seconds(
            lambda: [peer.apply_chat_template(as_transformers(each), tokenize=True) for each in batch]
        )
        result = {
            "pair": given.pair,
            "apply_once_ms": once / len(batch) * 1000,
            "full_ms": spent["full1"][0] * 1000,
            "paths_ms": spent["paths1"][0] * 1000,
            "once_by_full": once / len(batch) / spent["full1"][0],
            "once_by_paths": once / len(batch) / spent["paths1"][0],
            "two_workers": spent["paths1"][1] / spent["paths2"][1],
            "memory_MB": memory / 1024,
        }
        turns = growth(model, text, thoughts=False), growth(model, text, thoughts=thoughts)
        print(json.dumps({**{k: v if isinstance(v, str) else round(v, 3) for k, v in result.items()}, "turns": turns}))


if __name__ == "__main__":
    main()
