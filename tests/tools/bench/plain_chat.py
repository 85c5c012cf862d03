"""The plain loop of conversations: openai-harmony renders what a server shows before each turn, and the turn.

In: a `harmony_conversations_v1` folder. Out: `.bin` and `.idx` files of documents with the history `serve`; no checks,
rows or manifest. `python -m tools.bench.plain_chat SOURCE OUT --tokenizer FILE --documents KIND` prints conversations,
tokens, and the processor's seconds of the start (imports, tokenizer) and of the loop as JSON.

    turns          a document for each turn: the same documents as `spanloom build` makes
    runs           a document for each assistant run: what comes before a call of a tool is rendered again after it
    conversations  each conversation whole, as with `keep`: the least that any loop over openai-harmony takes
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from openai_harmony import Conversation, HarmonyEncoding, Message, RenderConversationConfig

from spanloom.families.harmony.tokenizer import load_encoding

START, EOD = 200006, 199999
ARRAYS = {"tokens": np.int32, "lossmask": np.uint8, "span": np.uint8}
SPANS = {"analysis": 1, "final": 2, "commentary": 3}
DROP_NOTHING = RenderConversationConfig(auto_drop_analysis=False)

Messages = list[dict[str, Any]]


def build_plain(source: Path, out: Path, encoding: HarmonyEncoding, documents: str) -> tuple[int, int]:
    """Writes `out`/{tokens,lossmask,span}.{bin,idx}. Returns conversations and tokens."""
    out.mkdir(parents=True, exist_ok=True)
    builders = {name: IndexedDatasetBuilder(str(out / f"{name}.bin"), dtype=dtype) for name, dtype in ARRAYS.items()}
    conversations = written = 0
    for path in sorted(source.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(batch_size=256, columns=["messages_json"]):
            for text in batch.column("messages_json").to_pylist():
                messages = json.loads(text)["messages"]
                for shown, first in DOCUMENTS[documents](messages):
                    arrays = render(shown, first, encoding)
                    for name, builder in builders.items():
                        builder.add_item(torch.tensor(arrays[name]))
                        builder.end_document()
                    written += len(arrays["tokens"])
                conversations += 1
    for name, builder in builders.items():
        builder.finalize(str(out / f"{name}.idx"))
    return conversations, written


def shown_turns(messages: Messages) -> Iterator[tuple[Messages, int]]:
    """The messages that a server shows before each turn, and the turn, from the assistant's first message to its final
    answer; and where among them the turn begins."""
    first = None
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        first = at if first is None else first
        if message["channel"] == "final":
            before = [one for one in messages[:first] if one.get("channel") != "analysis"]
            yield [*before, *messages[first : at + 1]], len(before)
            first = None


def shown_runs(messages: Messages) -> Iterator[tuple[Messages, int]]:
    """The messages that a server shows before each run, and the run; and where among them the run begins."""
    hidden = at = 0
    while at < len(messages):
        if messages[at]["role"] != "assistant":
            at += 1
            continue
        before = [one for place, one in enumerate(messages[:at]) if place >= hidden or one.get("channel") != "analysis"]
        first = at
        while at < len(messages) and messages[at]["role"] == "assistant":
            hidden = at if messages[at]["channel"] == "final" else hidden
            at += 1
        yield [*before, *messages[first:at]], len(before)


DOCUMENTS = {"turns": shown_turns, "runs": shown_runs, "conversations": lambda messages: [(messages, 0)]}


def render(messages: Messages, first: int, encoding: HarmonyEncoding) -> dict[str, list[int]]:
    """A document as the three lists that go to disk; messages from number `first` on are trained."""
    conversation = Conversation(messages=[Message.from_dict(message) for message in messages])
    tokens = encoding.render_conversation_for_training(conversation, DROP_NOTHING)
    spans = [SPANS.get(one.get("channel", ""), 0) if one["role"] == "assistant" else 0 for one in messages]
    span, message = [], -1
    for token in tokens:
        message += token == START
        span.append(spans[message] if message >= first else 0)
    span = [*span[1:], 0, 0]
    return {"tokens": [*tokens, EOD], "lossmask": [int(value > 0) for value in span], "span": span}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--documents", choices=DOCUMENTS, default="turns")
    given = parser.parse_args()
    encoding = load_encoding(given.tokenizer)
    began = time.process_time()
    conversations, tokens = build_plain(given.source, given.out, encoding, given.documents)
    seconds = time.process_time() - began
    print(json.dumps({"conversations": conversations, "tokens": tokens, "start": began, "cpu": seconds}))


if __name__ == "__main__":
    main()
