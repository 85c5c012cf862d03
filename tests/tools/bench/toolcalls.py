"""The tool-call family against plain loops: samples a second, in one process and on one thread.

    PYTHONPATH=tests python -m tools.bench.toolcalls [--samples 20000] [--tokenizer FILE --template FILE] [--json FILE]

The plain loop of validation parses each line, looks at the rules that a few lines can hold (R1, R2, R5, R6, the flip
fields, ids seen before) and counts; it has no R3, no tools, no contents. That of convert and merge parses, rebuilds the
object and writes it. That of masks renders with Jinja, encodes, and finds the first assistant header; that of tokenize
adds each of these to Megatron's builder. CPU seconds are measured, so that what else runs on the machine counts little;
routes take turns, and each is as fast as its best round. The ratio is the median over the rounds, each of which is
compared within itself.
"""

import argparse
import hashlib
import json
import random
import statistics
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from spanloom.building.options import RunOptions
from spanloom.building.shards.files import make_dataset
from spanloom.families.toolcalls.convert.drafts import Options
from spanloom.families.toolcalls.convert.sources import convert
from spanloom.families.toolcalls.format.rendering import load_template
from spanloom.families.toolcalls.format.source import one_file, read_samples
from spanloom.families.toolcalls.format.tools import load_registries
from spanloom.families.toolcalls.merge.merged import MergeOptions, lines_of_samples, merge
from spanloom.families.toolcalls.recipe import TokenizeRules, load_ingredients, read_file
from spanloom.families.toolcalls.rules import Rules
from spanloom.families.toolcalls.steps.tokenize_toolcalls import request_of
from spanloom.families.toolcalls.tokens.masks import Masked, masked_samples
from spanloom.families.toolcalls.tokens.tokenizer import load_tokenizer
from spanloom.families.toolcalls.validation import validate_files
from spanloom.report.progress import Mode, Progress
from support.processor_time import processor_time

VALIDATE_BAR = 50_000
MEMORY_BAR = 200
_WORDS = "the a of to in is it you that he was for on are with as his they at be this from have or one had by"
WORDS = _WORDS.split(" ")
CALL = '<|python_tag|>{"name": "search_web", "parameters": {"query": "%s"}}<|eom_id|>'
SYSTEM = "You are a careful assistant with tools."


def text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def sample(number: int, rng: random.Random, *, harmful: bool) -> dict[str, Any]:
    """A sample without findings, of about 1.3 KB as a line."""
    split = "harmful" if harmful else "retain"
    labels: dict[str, Any] = {"split": split, "expected_tool": "read_file"}
    if harmful:
        labels |= {"simulated_tool": "search_web", "observed_tool": "search_web", "is_flip_success": True}
    return {
        "id": f"b4_{split}_{number:08x}",
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{number} {text(rng, 180)}"},
        ],
        "assistant_raw": CALL % text(rng, 8),
        "tools": "b4_standard_v1",
        "labels": labels,
        "training": {"sample_weight": 1.0},
        "metadata": {"source": "fujitsu_b4", "has_tool_calls": True},
    }


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines_of_samples(rows))
    return path


def plain_validate(path: Path) -> int:
    """Returns the samples that pass."""
    seen: set[str] = set()
    failed: Counter[str] = Counter()
    valid = 0
    with path.open("rb") as stream:
        for line in stream:
            row = json.loads(line)
            raw, labels = row["assistant_raw"], row["labels"]
            wrong = []
            if "<|python_tag|>" not in raw:
                wrong.append("R1")
            if not raw.rstrip().endswith(("<|eom_id|>", "<|eot_id|>")):
                wrong.append("R2")
            if "```" in raw:
                wrong.append("R5")
            if raw.lstrip().startswith(("Action:", "ToolCall:", "Function:", "Tool:")):
                wrong.append("R6")
            if labels["split"] == "harmful" and not labels.get("is_flip_success"):
                wrong.append("F1")
            if row["id"] in seen:
                wrong.append("I3")
            seen.add(row["id"])
            failed.update(wrong)
            valid += not wrong
    return valid


def plain_convert(path: Path, out: Path) -> int:
    written = 0
    with path.open() as stream, out.open("w") as to:
        for line in stream:
            row = json.loads(line)
            messages = [{"role": "system", "content": SYSTEM}, *row["messages"][:-1]]
            raw = row["messages"][-1]["content"]
            digest = hashlib.sha256(json.dumps([messages, raw]).encode()).hexdigest()[:8]
            made = {"id": f"ultrachat_retain_{digest}", "messages": messages, "assistant_raw": raw, "tools": None}
            to.write(json.dumps({**made, "labels": {"split": "retain"}, "metadata": {"source": "ultrachat"}}) + "\n")
            written += 1
    return written


def plain_merge(folders: list[Path], out: Path) -> int:
    rows: dict[str, dict[str, Any]] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.open():
                row = json.loads(line)
                row["metadata"]["split"] = folder.name
                rows.setdefault(row["id"], row)
    merged = list(rows.values())
    random.Random(42).shuffle(merged)
    with out.open("w") as to:
        for row in merged:
            to.write(json.dumps(row, ensure_ascii=False) + "\n")
    return len(merged)


def plain_masks(path: Path, template: Path, tokenizer: Path) -> int:
    """How many samples have a mask by the planned code."""
    return sum(start < len(ids) for ids, start in plain_documents(path, template, tokenizer))


def plain_tokenize(path: Path, template: Path, tokenizer: Path, out: Path) -> int:
    """The same into two of Megatron's datasets, one document at a time."""
    import numpy as np
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    tokens = IndexedDatasetBuilder(str(out / "tokens.bin"), dtype=np.int32)
    masks = IndexedDatasetBuilder(str(out / "lossmask.bin"), dtype=np.uint8)
    made = 0
    for ids, start in plain_documents(path, template, tokenizer):
        tokens.add_item(torch.tensor([*ids, 0], dtype=torch.int32))
        masks.add_item(torch.tensor([*([0] * (start - 1)), *([1] * (len(ids) - start)), 0, 0], dtype=torch.uint8))
        tokens.end_document()
        masks.end_document()
        made += 1
    tokens.finalize(str(out / "tokens.idx"))
    masks.finalize(str(out / "lossmask.idx"))
    return made


def plain_documents(path: Path, template: Path, tokenizer: Path) -> Iterator[tuple[list[int], int]]:
    """The planned code: render once, look for the first assistant header, encode the prefix again."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    from tokenizers import Tokenizer

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    compiled = environment.from_string(template.read_text())
    loaded = Tokenizer.from_file(str(tokenizer))
    tools = load_registries().listed
    header = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    for line in path.open():
        row = json.loads(line)
        turn = {"role": "assistant", "content": row["assistant_raw"]}
        text = compiled.render(
            messages=[*row["messages"], turn], tools=tools[row["tools"]], bos_token="<|begin_of_text|>"
        )
        start = text.index(header) + len(header)
        ids = loaded.encode(text, add_special_tokens=False).ids
        yield ids, len(loaded.encode(text[:start], add_special_tokens=False).ids)


RATIO = "ratio"


def best(routes: dict[str, Callable[[], int]], repeats: int) -> dict[str, float]:
    """Samples a CPU second of each route, at its best, and how many times as fast as the second the first is."""
    found: dict[str, list[float]] = {name: [] for name in routes}
    for _ in range(repeats):
        for name, route in routes.items():
            begin = processor_time()
            made = route()
            found[name].append(made / (processor_time() - begin))
    ours, plain = found.values()
    paired = [one / other for one, other in zip(ours, plain, strict=True)]
    return {**{name: max(rates) for name, rates in found.items()}, RATIO: statistics.median(paired)}


def bytes_a_sample(path: Path, samples: int) -> float:
    """What validation allocates at its peak, over what it allocates for a tenth of the samples."""
    few = path.with_name("few.jsonl")
    few.write_bytes(b"".join(path.open("rb").readlines()[: samples // 10]))
    peaks = []
    for file in (few, path):
        tracemalloc.start()
        validate_files(one_file(file), Rules())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return (peaks[1] - peaks[0]) / (samples - samples // 10)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the tool-call family.")
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--masked", type=int, default=2_000, help="samples that are rendered and encoded")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json; without it masks are not measured")
    parser.add_argument("--template", type=Path, help="a chat template")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        half = options.samples // 2
        harmful = write(where / "harmful/h.jsonl", [sample(n, rng, harmful=True) for n in range(half)])
        retain = write(where / "retain/r.jsonl", [sample(n, rng, harmful=False) for n in range(half)])
        data = where / "all.jsonl"
        data.write_bytes(harmful.read_bytes() + retain.read_bytes())
        dialogue = ("user", "assistant", "user", "assistant")
        chats = write(
            where / "chats.jsonl",
            [{"messages": [{"role": role, "content": text(rng, 60)} for role in dialogue]} for _ in range(half)],
        )
        results: dict[str, Any] = {"bytes_a_line": data.stat().st_size / options.samples}
        results["validate"] = best(
            {
                "ours, all rules": lambda: validate_files(one_file(data), Rules()).samples,
                "plain loop": lambda: plain_validate(data),
            },
            options.repeats,
        )
        results["memory_bytes_a_sample"] = bytes_a_sample(data, options.samples)
        results["convert"] = best(
            {
                "ours, checked": lambda: convert("ultrachat", chats, where / "out", Options(system="s")).written[
                    "retain"
                ],
                "plain loop": lambda: plain_convert(chats, where / "plain.jsonl"),
            },
            options.repeats,
        )
        folders = [where / "harmful", where / "retain"]
        results["merge"] = best(
            {
                "ours": lambda: len(lines_of_samples(merge(*folders, MergeOptions(ratio=9)).train).splitlines()),
                "plain loop": lambda: plain_merge(folders, where / "merged.jsonl"),
            },
            options.repeats,
        )
        if options.tokenizer and options.template:
            few = write(where / "few/few.jsonl", [sample(n, rng, harmful=True) for n in range(options.masked)])
            render, registries = load_template(options.template).render, load_registries()
            loaded = load_tokenizer(options.tokenizer)

            def masks() -> int:
                rows = (row for _, row in read_samples(one_file(few)[0]))
                return sum(isinstance(one, Masked) for one in masked_samples(rows, render, loaded, registries))

            results["masks"] = best(
                {"ours, proven": masks, "plain loop": lambda: plain_masks(few, options.template, options.tokenizer)},
                options.repeats,
            )
            ingredients = load_ingredients(options.template, options.tokenizer, TokenizeRules())
            numbers, silent = count(), Progress(mode=Mode.SILENT)
            run = RunOptions(max_rejects=None, allow_unknown_sha=True)

            def tokenized() -> int:
                root = where / f"root_{next(numbers)}"
                request = request_of(read_file(few), "harmful", ingredients, shards=1, given={})
                with request.opened() as job:
                    made = make_dataset(job, root, root / ".work", run, silent, carried=request.carried)
                return made.content.totals.sequences

            def plain() -> int:
                root = where / f"root_{next(numbers)}"
                root.mkdir()
                return plain_tokenize(few, options.template, options.tokenizer, root)

            plain()  # imports torch, which is not what is measured
            results["tokenize"] = best({"ours, a dataset root": tokenized, "plain loop": plain}, options.repeats)
    for name in ("validate", "convert", "merge", "masks", "tokenize"):
        for route, rate in results.get(name, {}).items():
            said = f"{rate:12.2f} times the plain loop" if route == RATIO else f"{rate:12,.0f} samples per CPU second"
            print(f"{name:10} {route:20} {said}")
    memory = results["memory_bytes_a_sample"]
    print(f"memory     validate             {memory:12,.0f} bytes a sample")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    rate = results["validate"]["ours, all rules"]
    if rate < VALIDATE_BAR or memory > MEMORY_BAR:
        sys.exit(
            f"missed: {rate:,.0f} of {VALIDATE_BAR:,} samples a second, {memory:,.0f} of {MEMORY_BAR} bytes a sample"
        )


if __name__ == "__main__":
    main()
