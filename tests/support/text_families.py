"""Each text family over a small source, built in one process and by a task for each shard, for laws of all of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import spanloom
from spanloom.building.make import BuildResult
from spanloom.building.steps import StepTask, run_assemble
from spanloom.conversations.source.caps import RowCaps
from spanloom.conversations.source.folder import source_batches
from spanloom.dataset import manifest
from spanloom.families.chat.recipe import PackingRules
from spanloom.families.chat.steps.pack_chat import run as pack
from spanloom.families.models.documents.rules import ModelRules
from spanloom.families.models.steps.tokenize_conversations import run as tokenize_conversations
from spanloom.families.toolcalls.recipe import TokenizeRules as ToolCallRules
from spanloom.families.toolcalls.steps.tokenize_toolcalls import run as tokenize_toolcalls
from spanloom.families.traces.recipe import TokenizeRules as TraceRules
from spanloom.families.traces.steps.tokenize_traces import run as tokenize_traces
from spanloom.families.traces.store.keys import manifest_file
from spanloom.families.traces.store.opening import default_url
from support.bytes_of_builds import Workshop
from support.model_datasets import record, stored, write_conversations

SHARDS = 3
FRACTION = 0.3
MODEL_ROWS = 80

Build = Callable[..., BuildResult]
"""Function: the root, and options of `RunOptions` → the dataset of three shards, made in one process."""

Task = Callable[..., dict[str, Any]]
"""Function: the root, the number of a shard, its places as options of the step → its inventory."""


@dataclass(frozen=True)
class Family:
    """How one family builds over the same source in one process, and shard by shard."""

    build: Build
    task: Task
    parts: int
    """How many parts one process makes."""


def model_chat(workshop: Workshop, folder: Path) -> Family:
    rows = [stored(record(seed)) for seed in range(MODEL_ROWS)]
    source = write_conversations(folder / "source", [rows[: MODEL_ROWS // 2], [], rows[MODEL_ROWS // 2 :]])
    rules = ModelRules(valid_fraction=FRACTION)

    def build(root: Path, **options: Any) -> BuildResult:
        return spanloom.build(
            source, root, model=workshop.small, valid_fraction=FRACTION, reader="independent", **options
        )

    def task(root: str, shard: int, max_rows: int | None = None, **places: Any) -> dict[str, Any]:
        return tokenize_conversations(
            source=str(source),
            model=str(workshop.small),
            root=root,
            rules=rules,
            caps=RowCaps(max_rows=max_rows),
            task=StepTask(shard=shard, **places),
        )

    return Family(build, task, 4)


def packed_chat(workshop: Workshop, folder: Path) -> Family:  # as all
    rules = PackingRules(block_size=64, shards=SHARDS, post_training=True)

    def build(root: Path, max_rows: int | None = None, **options: Any) -> BuildResult:
        return workshop.pack(root, replace(rules, max_rows=max_rows), **options)

    def task(root: str, shard: int, max_rows: int | None = None, **places: Any) -> dict[str, Any]:
        return pack(
            transcripts=str(workshop.transcripts),
            root=root,
            rules=replace(rules, max_rows=max_rows),
            tokenizer=str(workshop.chat_tokenizer),
            task=StepTask(**{"max_rejects": None, "shard": shard, **places}),
        )

    return Family(build, task, 3)


def reasoning_traces(workshop: Workshop, folder: Path) -> Family:  # as all
    rules = TraceRules(valid_fraction=FRACTION)

    def build(root: Path, **options: Any) -> BuildResult:
        return workshop.tokenize(root, rules, shards=SHARDS, **options)

    def task(root: str, shard: int, max_rows: int | None = None, **places: Any) -> dict[str, Any]:
        return tokenize_traces(
            store=default_url(workshop.traces),
            dataset=str(manifest_file(workshop.traces, "clean-1")),
            root=root,
            tokenizer=str(workshop.trace_tokenizer),
            rules=replace(rules, max_rows=max_rows),
            shards=SHARDS,
            task=StepTask(**{"max_rejects": None, "shard": shard, **places}),
        )

    return Family(build, task, SHARDS)


def tool_calls(workshop: Workshop, folder: Path) -> Family:  # as all
    rules = ToolCallRules(valid_fraction=FRACTION, spans="parts")

    def build(root: Path, **options: Any) -> BuildResult:
        of_both = workshop.mask(root.parent, rules, shards=SHARDS, **options)
        (retain,) = [result for result in of_both if result.root.name == "retain"]
        return retain

    def task(root: str, shard: int, max_rows: int | None = None, **places: Any) -> dict[str, Any]:
        return tokenize_toolcalls(
            data=str(workshop.samples),
            split="retain",
            root=root,
            template=str(workshop.toolcall_template),
            tokenizer=str(workshop.toolcall_tokenizer),
            rules=replace(rules, max_rows=max_rows),
            shards=SHARDS,
            task=StepTask(**{"max_rejects": None, "shard": shard, **places}),
        )

    return Family(build, task, 2 * SHARDS)


def small_batches(patch: pytest.MonkeyPatch) -> None:
    """So that a shard of few rows is of several parts."""
    patch.setattr("spanloom.families.chat.recipe.BATCH_RECORDS", 20)
    patch.setitem(source_batches.__kwdefaults__, "batch_rows", MODEL_ROWS // 2 - 8)


FAMILIES = (model_chat, packed_chat, reasoning_traces, tool_calls)


def content(root: Path) -> dict[str, Any]:
    return manifest.read(root).content.as_dict()


def files(root: Path) -> dict[str, bytes]:
    """All files of a dataset but its manifest and views."""
    paths = [path for path in root.rglob("*") if path.is_file() and path.parent != root]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def tasks(family: Family, root: Path, at: Path, **options: Any) -> Path:
    """A task for each shard, the last one first, and the one that joins them. Returns the root, not validated."""
    names = [(str(at / f"{shard}/rendered.json"), str(at / f"{shard}/inventory.json")) for shard in range(SHARDS)]
    for shard in reversed(range(SHARDS)):
        (at / f"{shard}").mkdir(parents=True, exist_ok=True)
        rendered, inventory = names[shard]
        family.task(str(root), shard, rendered=rendered, inventory=inventory, **options)
    rendered = [name for name, _ in names if Path(name).exists()]
    on_duplicate = "keep"
    run_assemble(rendered=rendered, inventories=[name for _, name in names], root=str(root), on_duplicate=on_duplicate)
    return root
