"""Honest datasets of tool calls have no findings: alone, with their samples, with all of them rendered again."""

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from families.toolcalls.conftest import values
from spanloom.families.toolcalls.build import BuildOptions, build
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.recipe import TokenizeRules
from support.drawn_chats import drawn_record
from support.forging import LEVELS, validated
from support.nightly import nightly
from support.toolcall_samples import write_samples

ENDS = ("", "", "<|eom_id|>", "<|eot_id|>", "<|eot_id|>\n", " ")
CONTROL = ("<|eom_id|>", "<|start_header_id|>", "<|python_tag|>")
TOKENIZERS = ("tokenizer_llamalike.json", "tokenizer_llamalike.json", "gemma", "trimmed")


def drawn_sample(seed: int) -> dict[str, Any]:
    """A sample with a text, with calls, with both, or with what is no call; with the messages of any conversation."""
    drawn = random.Random(seed)
    record = drawn_record(seed)
    said = [{"role": each["role"], "content": each["content"] or "."} for each in record["messages"]]
    *messages, last = said if drawn.random() < 0.8 else said[-2:]
    if messages and drawn.random() < 0.1:
        messages[-1] = {**messages[-1], "content": f"{messages[-1]['content']} {drawn.choice(CONTROL)} so"}
    call = {"name": "run", drawn.choice(["parameters", "arguments", "other"]): {"q": last["content"], "n": [seed, {}]}}
    calls = [
        "<|python_tag|>" + json.dumps(call, ensure_ascii=drawn.random() < 0.5),
        f"<|python_tag|>{json.dumps(call)}<|eom_id|><|python_tag|>{json.dumps(call)}",
        f"{last['content']}<|python_tag|>{json.dumps(call, indent=1)}",
        "<|python_tag|>run(1)",
        last["content"],
        last["content"],
    ]
    tools = record.get("tools") if drawn.random() < 0.5 else drawn.choice([None, "b4_standard_v1"])
    return {
        "id": f"drawn_{seed}",
        "messages": messages,
        "assistant_raw": drawn.choice(calls) + drawn.choice(ENDS),
        "tools": tools,
        "labels": {"split": drawn.choice(["retain", "retain", "harmful"])},
        "metadata": {"source": drawn.choice(["ultrachat", "xstest_a", "agentdojo"])},
        "training": {"sample_weight": drawn.random(), "repeat": drawn.choice([1, 1, 3])},
    }


def drawn_rules(drawn: random.Random) -> TokenizeRules:
    return TokenizeRules(
        valid_fraction=drawn.choice([0.0, 0.3]),
        spans=drawn.choice(["answer", "parts"]),
        max_length=drawn.choice([None, None, 60, 200]),
        control_texts=drawn.choice(["refuse", "as-served", "text"]),
        eod=drawn.choice(["<|end_of_text|>", "<|eot_id|>", "<|finetune_right_pad_id|>"]),
    )


def tokenizer_of(name: str, fixtures: Path, folder: Path) -> Path:
    """A tokenizer of the cases; one with spaces as letters, as Gemma's; one whose offsets leave spaces out."""
    if name.endswith(".json"):
        return fixtures / name
    file = json.loads((fixtures / "tokenizer_llamalike.json").read_bytes())
    if name == "trimmed":
        file["post_processor"] = {**file["pre_tokenizer"], "trim_offsets": True}
    else:
        number = max(token["id"] for token in file["added_tokens"]) + 1
        letters = [f"<0x{byte:02X}>" for byte in range(256)] + [*map(chr, range(33, 127)), "▁"]
        names = [token["content"] for token in file["added_tokens"]]
        file["model"] |= {
            "vocab": {text: at for at, text in enumerate([*names, *(t for t in letters if t not in names)])},
            "merges": [],
            "byte_fallback": True,
        }
        file["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        file["pre_tokenizer"] = None
        replaced = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
        file["decoder"] = {"type": "Sequence", "decoders": [replaced, {"type": "ByteFallback"}, {"type": "Fuse"}]}
        assert number == len(names)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(file))
    return path


@pytest.mark.parametrize("seed", [0, *map(nightly, range(1, 60))])
def test_honest_datasets_have_no_findings(seed: int, fixtures: Path, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    templates = values(fixtures / "templates.json")["templates"]
    template = tmp_path / "template.jinja"
    template.write_text(templates[sorted(templates)[seed % len(templates)]])
    options = BuildOptions(
        data=write_samples(tmp_path / "samples.jsonl", [drawn_sample(seed * 50 + number) for number in range(50)]),
        template=template,
        tokenizer=tokenizer_of(drawn.choice(TOKENIZERS), fixtures, tmp_path),
        out=tmp_path / "roots",
        rules=drawn_rules(drawn),
        max_rejects="100%",
        on_duplicate="keep",
        shards=drawn.choice([1, 3]),
        reader="independent",
        allow_unknown_sha=True,
    )
    built = []
    with suppress(ToolCallError):  # the options leave no sample of a split
        built += build(options)
    for result in built:
        assert result.report.clean, result.report.findings[:3]
        for level in LEVELS:
            report = validated(result.root, options.data, level)
            assert report.clean, (level, report.findings[:3])
