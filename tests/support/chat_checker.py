"""A built dataset of conversations against its source, by numpy, pyarrow and openai-harmony alone: nothing of Spanloom.

In: a dataset root and its source folder. Out: what was checked; AssertionError where the law does not hold:

- what comes before a run that a document trains is what openai-harmony renders for completion, of the messages that a
  server shows;
- the labels of the run are those of its messages, of each message that is to be trained, and each is trained once;
- no other token of any document has a label.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from openai_harmony import Conversation, HarmonyEncoding, Message, RenderConversationConfig, Role

SPANS = {"analysis": 1, "final": 2, "commentary": 3}
START, RETURN, END, EOD = 200006, 200002, 200007, 199999
ALL = RenderConversationConfig(auto_drop_analysis=False)
HEADER = 34
"""Bytes of an `.idx` before the lengths: magic, version, dtype code, sequences, documents."""

Messages = list[dict[str, Any]]


@dataclass
class Checked:
    """What was looked at. `weights`: of each conversation, those of its documents."""

    documents: int = 0
    runs: int = 0
    trained: int = 0
    stored: int = 0
    weights: dict[str, set[float]] = field(default_factory=dict)


def check_dataset(
    root: Path, source: Path, encoding: HarmonyEncoding, call_format: str = "constrain", prompts: bool = True
) -> Checked:
    """Every document of a dataset with the history `serve`, all spans and all turns.

    `prompts`: `<|start|>assistant` at the begin of a run is trained.
    """
    conversations = {}
    for path in sorted(source.glob("*.parquet")):
        for row in pq.read_table(path, columns=["id", "messages_json"]).to_pylist():
            conversations[row["id"]] = json.loads(row["messages_json"])
    checked, seen = Checked(), Counter[tuple[str, int]]()
    for path in sorted(root.glob("*/shard_*_rows.parquet")):
        stem = str(path).removesuffix("rows.parquet")
        lengths = _lengths(Path(f"{stem}tokens.idx"))
        kinds = {"tokens": np.int32, "lossmask": np.uint8, "span": np.uint8}
        arrays = [np.fromfile(f"{stem}{name}.bin", dtype=kind) for name, kind in kinds.items()]
        parts = [np.split(array, np.cumsum(lengths)[:-1]) for array in arrays]
        for row, tokens, mask, span in zip(pq.read_table(path).to_pylist(), *parts, strict=True):
            conversation = conversations[row["conversation"]]
            numbers = _check_document(
                conversation["messages"], row, tokens.tolist(), span.tolist(), encoding, call_format, prompts
            )
            assert ((span > 0) == (mask > 0)).all()
            seen.update((row["conversation"], number) for number in numbers)
            checked.documents += 1
            checked.stored += tokens.size
            checked.trained += int(mask.sum())
            checked.weights.setdefault(row["conversation"], set()).add(row["weight"])
    wanted = [
        (name, number)
        for name, conversation in conversations.items()
        for number, (first, end) in enumerate(_runs(conversation["messages"]))
        if any(_is_trained(message) for message in conversation["messages"][first:end])
    ]
    assert seen == Counter(wanted), "each run that is to be trained is trained once"
    checked.runs = len(wanted)
    return checked


def _lengths(path: Path) -> Any:
    count = int(np.frombuffer(path.read_bytes()[18:26], dtype="<u8")[0])
    return np.frombuffer(path.read_bytes()[HEADER : HEADER + 4 * count], dtype="<i4")


def _check_document(
    messages: Messages,
    row: dict[str, Any],
    tokens: list[int],
    span: list[int],
    encoding: HarmonyEncoding,
    call_format: str,
    prompts: bool,
) -> list[int]:
    """Returns the numbers of the runs that a document trains: from `cut` on, as many as `runs` says."""
    history = messages if call_format == "constrain" else [_as_history(message) for message in messages]
    messages = history if call_format == "json" else messages
    runs = list(enumerate(_runs(messages)))[row["cut"] :]
    trained = [each for each in runs if any(_is_trained(message) for message in messages[slice(*each[1])])]
    trained = trained[: row["runs"]]
    assert len(trained) == row["runs"]
    assert tokens[-1] == EOD
    expected = [0] * len(tokens)
    for number, (first, end) in trained:
        prompt = _prompt(_served(history[:first]), encoding)
        assert tokens[: len(prompt)] == prompt, f"run {number} of {row['id']}"
        at = len(prompt)
        last = number == trained[-1][0]
        if not last:  # later runs may be shown otherwise what comes after the last message that is trained
            end = max(place + 1 for place in range(first, end) if _is_trained(messages[place]))
        for place in range(first, end):
            ends = last and place == end - 1
            rendered = _prompt([*_served(history[:first]), *map(_bare, messages[first : place + 1])], encoding)[at:]
            if ends and messages[place]["channel"] == "final":
                assert rendered[-1] == END
                rendered[-1] = RETURN
            assert tokens[at : at + len(rendered)] == rendered
            if _is_trained(messages[place]):
                is_end = place + 1 == len(messages) or messages[place + 1]["role"] != "assistant"
                assert not (messages[place]["channel"] == "final" and is_end and not last)
                expected[at : at + len(rendered)] = [SPANS[messages[place]["channel"]]] * len(rendered)
                if place == first and not prompts:
                    expected[at : at + 2] = [0, 0]
            at += len(rendered)
    assert at == len(tokens) - 1, "the document ends in its last run"
    assert span == [*expected[1:], 0]
    return [number for number, _ in trained]


def _as_history(message: dict[str, Any]) -> dict[str, Any]:
    """A call as servers show it: `json` where the model writes `<|constrain|>json`."""
    kind = message.get("content_type") or ""
    if message["role"] == "assistant" and message.get("recipient") and kind[:13] == "<|constrain|>":
        return {**message, "content_type": kind[13:]}
    return message


def _is_trained(message: dict[str, Any]) -> bool:
    return message["role"] == "assistant" and message.get("trained") is not False


def _bare(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "trained"}


def _runs(messages: Messages) -> list[tuple[int, int]]:
    firsts = [
        at
        for at, message in enumerate(messages)
        if message["role"] == "assistant" and (at == 0 or messages[at - 1]["role"] != "assistant")
    ]
    ends = [
        next((at for at in range(first, len(messages)) if messages[at]["role"] != "assistant"), len(messages))
        for first in firsts
    ]
    return list(zip(firsts, ends, strict=True))


def _served(before: Messages) -> Messages:
    """What servers show: no analysis from before the last final."""
    finals = [at for at, message in enumerate(before) if message.get("channel") == "final"]
    hidden = finals[-1] if finals else 0
    return [_bare(message) for at, message in enumerate(before) if at >= hidden or message.get("channel") != "analysis"]


def _prompt(messages: Messages, encoding: HarmonyEncoding) -> list[int]:
    """openai-harmony's render for completion without `<|start|>assistant`."""
    conversation = Conversation(messages=[Message.from_dict(message) for message in messages])
    return list(encoding.render_conversation_for_completion(conversation, Role.ASSISTANT, ALL)[:-2])
