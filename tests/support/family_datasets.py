"""A small clean dataset of each family, of several shards, and its source. The builders make them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spanloom.dataset import manifest
from spanloom.families.harmony.build import build as build_harmony
from spanloom.families.harmony.options import BuildOptions as HarmonyOptions
from spanloom.families.models.build import BuildOptions
from spanloom.families.models.build import build as build_for_model
from spanloom.families.models.documents.rules import ModelRules
from spanloom.families.toolcalls.steps.tokenize_toolcalls import TokenizeRules as ToolCallRules
from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.export.lines import ExportOptions, export_lines
from spanloom.families.traces.render import control_strings, texts_of
from spanloom.families.traces.steps.tokenize_traces import TokenizeRules as TraceRules
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.token_build import TokenBuildOptions, build_tokens
from support import sources
from support.bytes_of_builds import Workshop
from support.chat_datasets import packed
from support.chat_models import write_model
from support.model_datasets import Record, record, stored, write_conversations
from support.toolcall_samples import harmful, retain, write_samples
from support.traces import CASES, rows_of, store_rows

FRACTION = 0.4
SHA = {"allow_unknown_sha": True}
LONGEST = 300
"""Characters of a trace as text."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A clean dataset of several shards, its source, and the columns of its row table with ids."""

    root: Path
    source: Path
    ids: tuple[str, ...] = ()
    tokenizer: Path | None = None

    @property
    def shards(self) -> int:
        return len(manifest.read_any(self.root).content.shards)


def model_chat(folder: Path, records: Sequence[Record] = tuple(map(record, range(24)))) -> Case:
    rows = [*map(stored, records)]
    source = write_conversations(folder / "source", [rows[:14], rows[14:]], row_group_size=4)
    rules = ModelRules(valid_fraction=FRACTION)
    made = build_for_model(
        BuildOptions(source=source, model=write_model(folder / "m"), out=folder / "root", rules=rules, **SHA)
    )
    return Case(root=made.root, source=source, ids=("conversation", "id"))


def synth_kd(folder: Path) -> Case:
    """Three documents of the second shard say what another says: one of the first shard, one of their own."""
    shards = [sources.rows(20, "a"), sources.rows(16, "b")]
    for copy, (shard, original) in {3: (0, 3), 4: (0, 19), 12: (1, 11)}.items():
        shards[1][copy]["messages_json"] = shards[shard][original]["messages_json"]
    source = sources.write_source(folder / "source", shards, row_group_size=4)
    options = HarmonyOptions(source=source, out=folder / "root", shards=2, valid_fraction=FRACTION, workers=1, **SHA)
    return Case(root=build_harmony(options).root, source=source, ids=("synth_id",))


def packed_chat(folder: Path) -> Case:
    made = packed(folder, pad_tail=True)
    return Case(root=made.root, source=folder / "transcripts.jsonl", tokenizer=folder / "tokenizer.json")


def reasoning_traces(folder: Path) -> Case:
    store = open_store(default_url(folder), create=True)
    rows = [row for row in rows_of(CASES) if not control_strings(texts_of(row["payload"]))]
    store_rows(store, [row for row in rows if len(str(row["payload"])) < LONGEST])
    build_dataset(store, folder, BuildRequest(dataset_name="d", dataset_version="1", limit=40), reproducible=True)
    rules = TraceRules(valid_fraction=FRACTION)
    tokenizer = CASES / "fixtures/masks/tokenizer_gemmalike.json"
    options = TokenBuildOptions(
        root=folder, key="d-1", tokenizer=tokenizer, out=folder / "root", rules=rules, shards=3, **SHA
    )
    made = build_tokens(store, options)
    listed = json.loads((folder / "datasets/d-1/manifest.json").read_bytes())["trace_ids"]
    source = folder / "export.jsonl"
    with store.snapshot() as snapshot:
        source.write_bytes(b"".join(export_lines(snapshot, listed, rules.form, ExportOptions())))
    store.close()
    return Case(root=made.root, source=source, ids=("trace_id",))


def tool_calls(folder: Path) -> Case:
    unrenderable = [*retain(50)["messages"], {"role": "assistant", "content": None, "tool_calls": [{}]}]
    made = [sample for number in range(20) for sample in (harmful(number), retain(number))]
    source = write_samples(folder / "samples.jsonl", [*made[:21], retain(50, messages=unrenderable), *made[21:]])
    rules = ToolCallRules(valid_fraction=FRACTION)
    results = Workshop(folder).mask(folder / "roots", rules, data=source, shards=3, **SHA)
    root = next(result.root for result in results if result.root.name == "retain")
    return Case(root=root, source=source, ids=("sample_id",))


FAMILIES = (model_chat, synth_kd, packed_chat, reasoning_traces, tool_calls)
