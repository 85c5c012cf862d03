"""Step generate-chat: conversations → transcripts that fit the context, and a report of what was left out.

In: a file or folder of conversations, a tokenizer. Out: one file of transcripts and a report, JSON. Streamed: memory
does not grow with the number of conversations. Neither file has its final name before it is complete.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spanloom.conversations.forms import key_map
from spanloom.errors import ChatError
from spanloom.families.chat.tokenizer import load_tokenizer
from spanloom.families.chat.transcripts.convert import generate
from spanloom.families.chat.transcripts.files import TranscriptWriter, is_line_based
from spanloom.families.chat.transcripts.left_out import GeneratorCounts, Skip
from spanloom.families.chat.transcripts.left_out import GeneratorRules as GeneratorRules
from spanloom.families.chat.transcripts.places import staged_tokenizer
from spanloom.families.chat.transcripts.source import Conversation, conversation_files, read_conversations
from spanloom.provenance import git_sha, readable_json
from spanloom.records.files import passed_over, stop
from spanloom.records.record_files import SUFFIXES, all_unread_columns
from spanloom.records.staging import staged_records
from spanloom.storage import sha256_file, write_atomically
from spanloom.storage.folders.repeated import OnSame, check_overwritable
from spanloom.storage.scratch import scratch_for
from spanloom.storage.unchanged import check_unchanged
from spanloom.storage.uri import is_uri
from spanloom.workers import OnProgress

PROGRESS_EVERY = 500


def generate_chat(
    *,
    source: Path,
    out: Path,
    tokenizer: Path | None = None,
    rules: GeneratorRules,
    report: Path | None = None,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    on_same: OnSame | None = None,
) -> dict[str, Any]:
    """Writes the transcripts of `source` to `out` (.parquet, .jsonl or .txt), and the returned facts to `report`.
    Calls `on_same` if `out` holds them already.

    Raises SourceError (a file), RecordError (a record), ChatError (a control string; a key, role or tag that no option
    drops; nothing to write), ConflictError if `out` exists with other bytes, unless `overwrite` is set.
    """
    files = conversation_files(source)
    inputs: list[dict[str, Any]] = [
        {"path": file.name, "bytes": file.state.bytes, "sha256": sha256_file(file.path)} for file in files
    ]
    not_read = passed_over(source, {file.path for file in files})
    unread = all_unread_columns(files)
    if report is not None and report.resolve() in {path.resolve() for path in (out, *(file.path for file in files))}:
        raise ChatError(
            "the report would take the place of the conversations or of the transcripts",
            where=str(report),
            remedy="give another --report",
        )
    loaded = load_tokenizer(tokenizer)
    counts = GeneratorCounts()

    def write_report(output: dict[str, Any] | None) -> dict[str, Any]:
        """Messages of the run, also for the report."""
        result = {
            "output": output,
            "context_len": rules.context_len,
            "drop": sorted(rules.drop),
            **({"maps": list(rules.maps)} if rules.maps else {}),
            **({"metadata": sorted(rules.metadata)} if rules.metadata else {}),
            **({"text_as_is": True} if rules.text_as_is else {}),
            "think": rules.think,
            "on_error": rules.on_error,
            "line_based": is_line_based(out),
            "tokenizer": loaded.as_dict(),
            "git_sha": git_sha(),
            **counts.as_dict(),
            "inputs": inputs,
            **({"not_read": not_read} if not_read else {}),
            **({"columns_not_read": unread} if unread else {}),
        }
        if report is not None:
            write_atomically(report, readable_json(result))
        return result

    with TranscriptWriter(out) as writer:
        transcripts = generate(
            _read(source, rules, counts, on_progress),
            rules,
            count_tokens=loaded.count,
            line_based=is_line_based(out),
            counts=counts,
        )
        for text in transcripts:
            writer.write(text)
        for file, hashed in zip(files, inputs, strict=True):
            check_unchanged(file.path, file.state, sha256=hashed["sha256"])
        if not counts.conversations_written:
            write_report(None)
            skipped = ", ".join(f"{count} {reason.value}" for reason, count in counts.conversations_skipped.items())
            too_long = Skip.FIRST_PAIR_TOO_LONG in counts.conversations_skipped
            raise ChatError(
                f"no conversation gives a transcript ({counts.conversations_read} read; {skipped or 'there are none'})",
                where=str(source),
                remedy="allow a longer --context-len" if too_long else "look at the conversations, and at --report",
            )
        return write_report(writer.publish(overwrite=overwrite, on_same=on_same))


def _read(
    source: Path, rules: GeneratorRules, counts: GeneratorCounts, on_progress: OnProgress | None
) -> Iterator[Conversation]:
    """The conversations; reports from time to time how many were read. The total is unknown."""
    unreadable = counts.unreadable if rules.on_error == "skip" else stop
    reading = read_conversations(source, unreadable, key_map(rules.maps, sorted(rules.metadata)))
    for number, conversation in enumerate(reading, start=1):
        if on_progress is not None and number % PROGRESS_EVERY == 0:
            on_progress(number, number)
        yield conversation


def run(
    *,
    source: str,
    out: str,
    rules: GeneratorRules,
    tokenizer: str | None = None,
    report: str | None = None,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    on_same: OnSame | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step on paths or URIs."""
    check_overwritable(out, overwrite)
    with scratch_for("generate-chat", [source, out, tokenizer, report], scratch) as staging:
        if report and is_uri(report):
            staging.path(report).unlink(missing_ok=True)  # left by an earlier run in a scratch folder that was kept
        try:
            result = generate_chat(
                source=staged_records(staging, source, SUFFIXES),
                out=staging.path(out),
                tokenizer=staged_tokenizer(staging, tokenizer),
                rules=rules,
                report=staging.path(report) if report else None,
                overwrite=overwrite,
                on_progress=on_progress,
                on_same=on_same,
            )
            staging.publish_file(out)
        finally:  # if nothing fits, the report gives the reason
            if report and is_uri(report) and staging.path(report).is_file():
                staging.publish_file(report, replace=True)
    return result


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {
        name: result[name]
        for name in (
            "conversations_read", "conversations_written", "conversations_shortened", "pairs_written", "pairs_dropped"
        )
    }  # fmt: skip
    skipped = {f"skipped_{reason}": count for reason, count in result["conversations_skipped"].items()}
    lost = {
        "messages_left_out": sum(result["messages_left_out"].values()),
        "keys_dropped": sum(result["keys_dropped"].values()),
        "roles_dropped": sum(result["roles_dropped"].values()),
        "think_blocks_dropped": result["think_blocks_dropped"],
    }
    return {
        "report": {"context_len": result["context_len"], "sha256": result["output"]["sha256"], **counts},
        "metrics": {**counts, **skipped, **lost},
    }
