"""Sources to measure with, in the shape of SYNTH.

In: text from this machine. Out: `synth_harmony_v1` folders. Speed is measured on conversations of about 900 tokens made
of text that does not repeat; bookkeeping memory on rows as small as rows get.
"""

import hashlib
import inspect
import json
import random
import shutil
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from openai_harmony import HarmonyEncoding

from spanloom.families.harmony.convert.synth import KEPT_COLUMNS
from support.sources import row, shard_name, write_manifest, write_source
from tools.bench import texts

SHARDS = 4
ROW_GROUP = 1024
PIECES = {"user": 60, "analysis": 400, "final": 350}
"""Tokens of text in a conversation; system, developer and wrappers bring about 90 more."""
TEXT_COLUMNS = ("query", "synthetic_reasoning", "synthetic_answer")
SPREAD = 0.35
"""Lengths vary as those of real answers do: log-normal, of mean 1, with this sigma."""
TURNS = ("prose", "prose", "code", "prose", "catalogue", "prose", "prose", "code", "prose", "catalogue")
CALIBRATION = 4000
"""Characters of a block that are tokenized to learn how many characters make a token in it."""

SYSTEM = {
    "role": "system",
    "content": [
        {
            "type": "system_content",
            "model_identity": "You are a large language model.",
            "reasoning_effort": "High",
            "conversation_start_date": "2026-01-01",
            "knowledge_cutoff": "2024-06",
            "channel_config": {"valid_channels": ["analysis", "commentary", "final"], "channel_required": True},
        }
    ],
}
DEVELOPER = {
    "role": "developer",
    "content": [
        {
            "type": "developer_content",
            "instructions": "Follow the user's request. Reason in the analysis channel, answer in the final channel.",
        }
    ],
}


def conversations_source(work: Path, rows: int, encoding: HarmonyEncoding) -> tuple[Path, int]:
    """The folder with the first `rows` conversations of this machine, made when it is not in `work` yet.

    Returns it with the rows it has: fewer when the machine has no more text; nothing is given out twice.
    """
    directory = work / f"corpus_{rows}_{_recipe()}"
    if not (directory / "manifest.json").exists():
        shutil.rmtree(directory, ignore_errors=True)
        shards: list[list[dict[str, object]]] = [[] for _ in range(SHARDS)]
        for index, (kind, messages) in zip(range(rows), _conversations(encoding), strict=False):
            synth_id = f"bench-{index:08d}"
            metadata = {"synth_id": synth_id, "language": kind, "exercise": "bench", "model": None, "constraints": None}
            texts_as_converted = {
                "messages_json": json.dumps({"messages": messages}, ensure_ascii=False),
                "metadata_json": json.dumps(metadata, ensure_ascii=False),
            }
            shards[index % SHARDS].append(
                row(synth_id, messages, **texts_as_converted, language=kind, exercise="bench")
            )
        write_source(directory, shards, row_group_size=ROW_GROUP)
    manifest = json.loads((directory / "manifest.json").read_bytes())
    return directory, manifest["storage"]["total_rows"]


def raw_of(source: Path, out: Path) -> Path:
    """The texts of a source as raw SYNTH, in one Parquet file."""
    rows = []
    for shard in sorted(source.glob("*.parquet")):
        for kept in pq.read_table(shard).to_pylist():
            messages = [message["content"][0] for message in json.loads(kept["messages_json"])["messages"]]
            texts_of_row = (message.get("text") for message in messages[-3:])
            about = {name: kept.get(name) for name in KEPT_COLUMNS}
            rows.append({**dict(zip(TEXT_COLUMNS, texts_of_row, strict=True)), "synth_id": kept["synth_id"], **about})
    schema = pa.schema([(name, pa.string()) for name in (*TEXT_COLUMNS, "synth_id", *KEPT_COLUMNS)])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), out / "synth.parquet", row_group_size=ROW_GROUP)
    return out


def tiny_source(work: Path, rows: int) -> Path:
    """`rows` conversations of about 15 tokens in **one** shard.

    One, as SYNTH's shards are long: buffers that are filled and emptied again must be full at both sizes, or filling
    them would look like growth.
    """
    directory = work / f"tiny_{rows}_{_recipe()}"
    if not (directory / "manifest.json").exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        ids = [hashlib.blake2b(b"%d" % index, digest_size=16).hexdigest() for index in range(rows)]
        messages = '{"messages": [{"role": "user", "content": "%d?"}, %s]}'
        answer = '{"role": "assistant", "channel": "final", "content": "Yes."}'
        table = pa.table(
            {
                "messages_json": [messages % (index % 1000, answer) for index in range(rows)],
                "synth_id": ids,
                "language": ["en"] * rows,
                "exercise": ["bench"] * rows,
            }
        )
        pq.write_table(table, directory / shard_name(0), row_group_size=ROW_GROUP)
        write_manifest(directory, shards=1)
    return directory


def _conversations(encoding: HarmonyEncoding) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Kind and messages, the kinds in turns; a kind that has run out is passed over. The same on every call."""
    found = texts.Texts()
    chance = random.Random(0)
    left = {kind: _triples(found.blocks(kind), encoding, chance) for kind in texts.KINDS}
    for kind in cycle(TURNS):
        if not left:
            return
        if kind not in left:
            continue
        if (triple := next(left[kind], None)) is None:
            del left[kind]
            continue
        user, analysis, final = triple
        yield kind, [SYSTEM, DEVELOPER, _message("user", user), *_answer(analysis, final)]


def _answer(analysis: str, final: str) -> list[dict[str, object]]:
    return [
        {**_message("assistant", analysis), "channel": "analysis"},
        {**_message("assistant", final), "channel": "final"},
    ]


def _message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def _triples(blocks: Iterator[str], encoding: HarmonyEncoding, chance: random.Random) -> Iterator[list[str]]:
    """Cuts blocks end to end into texts for user, analysis and final; the end of a block that is too short is left."""
    seen: set[bytes] = set()
    for block in blocks:
        sample = block[:CALIBRATION]
        characters = len(sample) / len(encoding.encode(sample, disallowed_special=()))
        at = 0
        while True:
            sizes = [
                int(tokens * characters * chance.lognormvariate(-(SPREAD**2) / 2, SPREAD)) + 1
                for tokens in PIECES.values()
            ]
            if at + sum(sizes) > len(block):
                break
            triple = []
            for size in sizes:
                triple.append(block[at : at + size])
                at += size
            hashes = {hashlib.sha256(text.encode()).digest() for text in triple}
            if len(hashes) == len(triple) and not hashes & seen:
                seen |= hashes
                yield triple


def _recipe() -> str:
    """Hash of the code that makes sources, so that a kept folder of an older recipe is not taken for a new one."""
    code = inspect.getsource(texts) + Path(__file__).read_text()
    return hashlib.sha256(code.encode()).hexdigest()[:8]
