"""Checks what the manifest of a dataset for a model says about options, split, model and input.

In: a manifest's `content`; the files that the dataset carries. Out: findings for values that differ from constants of
the family, do not follow from other values, or contradict counts or files. The rules are implemented a second time.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from spanloom.conversations.source.format import format_named
from spanloom.conversations.source.rejects import Reason
from spanloom.dataset.family import WholeCheck
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.root.layout import MODEL_FOLDER, rows_file
from spanloom.dataset.rows.table import row_batches
from spanloom.dataset.validate.content import (
    check_caps,
    check_documents_by_id,
    check_files,
    check_rejected,
    check_stated,
    wrong,
)
from spanloom.families.models.documents.made import ABOUT_SCHEMA
from spanloom.families.models.documents.rules import PROBE_NAME
from spanloom.families.models.errors import ModelError
from spanloom.families.models.model import declared_stops
from spanloom.families.models.prove.refusals import REMEDIES
from spanloom.families.models.workarounds.declared import DECLARED
from spanloom.findings import Finding, Report
from spanloom.provenance import sha256_json
from spanloom.tokenizers.chat_template import ChatTemplateError, load_chat_template

REASONS = {*map(str, Reason), *REMEDIES}
CUTTING = (
    "conversations",
    "runs",
    "documents",
    "left_out_messages",
    "declared",
    "untrained",
    "dropped_settings",
    "dropped_names",
    "forgotten_texts",
    "generation_equal",
    "generation_other",
)
NOTED = frozenset({"empty_thoughts", "truncated", "control_texts", "untrained_runs"})
"""Counts of `cutting` that are there only where they are not 0."""

_SPLIT_RULE = "blake2b-64(conversation) < int(Decimal(valid_fraction) * 2**64)"


def check_content(content: Content) -> Iterator[Finding]:
    """Checks all sections except the counts."""
    config = content.config
    wanted = {
        **config,
        "eod": {"text": config["eod"]["text"], "id": content.tokenizer.eod},
        "train": [name for name in content.span_names[1:] if name in config["train"]],
    }
    yield from check_documents_by_id(content, wanted, _SPLIT_RULE, documents="these documents", rendered=True)
    if (renderer := content.renderer) is not None:
        if renderer.name not in ("fastokens", "tokenizers"):
            yield wrong(f"renderer.name is {renderer.name!r}")
        most = (content.totals.cutting or {}).get("runs", 0)
        if renderer.fallback_rows or renderer.audited_rows > most:
            yield wrong(f"renderer counts {renderer.fallback_rows} and {renderer.audited_rows} rows, of {most} runs")
    if config.get("turns", "last") != "last":
        yield wrong(f"config.turns is {config['turns']!r}")
    files = {f"{MODEL_FOLDER}/{name}": digest for name, digest in config["model_files"].items()}
    yield from check_files(content, {**files, PROBE_NAME: None})
    if files.get(f"{MODEL_FOLDER}/tokenizer.json") != content.tokenizer.sha256:
        yield wrong(f"tokenizer.sha256 is {content.tokenizer.sha256}, but the model's file has another one")
    if format_named(content.input.schema_version) is None:
        yield wrong(f"input.schema_version is {content.input.schema_version!r}")
    yield from check_caps(content, ("max_rows", "max_rows_per_shard"))


def check_sums(content: Content, shard: ShardEntry) -> Iterator[Finding]:
    """Checks the counts of a shard: each conversation has documents, or was refused for a known reason."""
    in_shard = partial(wrong, shard=shard.shard)
    documents = sum(counts.sequences for counts in shard.splits.values())
    cutting = shard.cutting or {}
    if set(cutting) - NOTED != set(CUTTING) or not all(cutting[name] > 0 for name in NOTED & set(cutting)):
        yield in_shard(f"cutting has the keys {sorted(cutting)}")
        return
    yield from check_rejected(shard, written=cutting["conversations"], reasons=REASONS.__contains__, listed=True)
    if cutting["documents"] != documents:
        yield in_shard(f"cutting.documents is {cutting['documents']}, {documents} were written")
    if cutting["runs"] < documents + cutting["untrained"] or cutting["declared"] > cutting["runs"]:
        yield in_shard(f"cutting.runs is {cutting['runs']}, which the documents contradict")
    if cutting["generation_equal"] + cutting["generation_other"] > cutting["runs"]:
        yield in_shard("cutting compares more runs with {% generation %} than there are")
    if any(cutting.get(name, 0) > cutting["runs"] for name in ("empty_thoughts", "truncated")):
        yield in_shard("cutting counts more empty thoughts or truncated runs than there are runs")
    if cutting.get("control_texts") and "control_texts" not in content.config:
        yield in_shard("cutting counts control tokens in texts, which the options refuse")
    last = content.config.get("turns") == "last"
    if last and cutting["documents"] != cutting["conversations"]:
        yield in_shard(f"{cutting['documents']} documents of {cutting['conversations']} conversations, not one of each")
    if cutting.get("untrained_runs") and not last:
        yield in_shard("cutting counts runs that are not trained, and the options train all turns")


def _check_folder(content: Content, folder: Path) -> Iterator[Finding]:
    """Checks that the model's folder holds the files of the manifest and nothing else, and that they can be read."""
    listed = {file.path for file in content.files}
    for path in (folder, *sorted(folder.rglob("*"))):
        name = path.relative_to(folder.parent).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            yield Finding(check="carried", message="it is a link, or no file", file=name)
        elif path.is_file() and name not in listed:
            yield Finding(check="carried", message="the dataset has no such file", file=name)
    try:
        declared_stops(folder)
    except ModelError as fault:
        yield Finding(check="carried", message=fault.what, file=f"{MODEL_FOLDER}/generation_config.json")


def check_run_counts(report: Report, whole: WholeCheck) -> None:
    """Checks the counts of runs of each shard against its row tables. A document that was left out, since nothing is
    trained in it, had runs too: then the rows are a bound."""

    def check_shard(own: Report, shard: ShardEntry) -> None:
        cutting = shard.cutting or {}
        runs = declared = 0
        for split in whole.readable_splits(shard):
            for batch in row_batches(rows_file(whole.root, split, shard.shard), _RUN_COLUMNS):
                runs += pc.sum(batch.column("runs")).as_py() or 0
                declared += pc.sum(pc.equal(batch.column("boundary").flatten(), DECLARED)).as_py() or 0
        for name, counted in (("runs", runs), ("declared", declared)):
            stated = cutting.get(name, 0)
            if counted > stated or (counted != stated and not cutting.get("untrained")):
                own.wrong("rows", f"cutting.{name} is {stated}, the rows have {counted}", shard=shard.shard)

    whole.run.each(report, whole.content.shards, check_shard)


_RUN_COLUMNS = pa.schema([ABOUT_SCHEMA.field(name) for name in ("runs", "boundary")])


def check_carried(content: Content, root: Path) -> Iterator[Finding]:
    """Checks the template and the probe in the dataset against `config`."""
    folder = root / MODEL_FOLDER
    yield from _check_folder(content, folder)
    try:
        template = load_chat_template(folder)
    except (ChatTemplateError, OSError) as fault:
        yield Finding(check="carried", message=f"the chat template cannot be read: {fault}", file=MODEL_FOLDER)
    else:
        stated = {"template_sha256": content.config["template_sha256"]}
        yield from check_stated(stated, {"template_sha256": sha256_json(template.text)}, "config", check="carried")
    try:
        probe = json.loads((root / PROBE_NAME).read_bytes())
    except FileNotFoundError:  # in the report already
        return
    except (OSError, ValueError, RecursionError) as fault:
        yield Finding(check="carried", message=f"{PROBE_NAME} cannot be read: {type(fault).__name__}", file=PROBE_NAME)
        return
    named = probe.get("model") if isinstance(probe, dict) else None
    yield from check_stated({"model": named}, {"model": content.config["model"]}, PROBE_NAME, check="carried")
    form = probe.get("form") if isinstance(probe, dict) else None
    said = {name: form.get(name) for name in content.config["form"]} if isinstance(form, dict) else None
    yield from check_stated(said, content.config["form"], "config.form", check="carried")
