"""`spanloom convert`: chat data in any known form → a source for `spanloom build`."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import typer
from rich.console import Console

from spanloom.api.converting import conversion_of, system_fields
from spanloom.api.options import ConvertOptions, local
from spanloom.cli.app import print_json, say
from spanloom.cli.convert import Convert
from spanloom.conversations.outcomes import LEFT_OUT, Counts, Rejected
from spanloom.conversations.runs import calls_in_a_row, run_fault
from spanloom.errors import EXIT_INTERRUPTED, SourceError, TokenizerError
from spanloom.families.harmony.convert import chat as chats
from spanloom.families.harmony.convert.chat_input import (
    LOOKED_AT,
    ChatInput,
    open_chat,
    remedy_of,
    reopened,
    text_beside,
)
from spanloom.families.harmony.convert.conversion import REMEDIES, ChatConversion, Converted
from spanloom.families.harmony.convert.preview import preview_documents
from spanloom.report.terminal import Shown, print_documents, print_legend, print_outline
from spanloom.storage.folders.repeated import already_there
from spanloom.storage.scratch import scratch_for
from spanloom.tokenizers.o200k.asset import locate_asset


def convert(given: Convert) -> None:
    out, dry_run, options, printed = given.out, given.dry_run, given.options, given.printed
    if out is None and not (given.preview or dry_run):
        raise typer.BadParameter("give a folder for the source: --out DIR (or --preview, or --dry-run)")
    conversion = conversion_of(options)
    may_ask = not (given.yes or printed.quiet or printed.as_json or dry_run)
    progress = printed.progress()
    with scratch_for("convert", [*given.inputs, out], local(options.scratch)) as staging:
        chat = open_chat(chats.local_inputs(staging, given.inputs), conversion)
        for line in chat.described():
            progress.say(line)
        if may_ask and sys.stdin.isatty() and sys.stderr.isatty():
            chat, conversion = _with_beside(chat, conversion)
            conversion = replace(conversion, system_fields=system_fields(_answered_settings(options)))
        if given.preview:
            if not _show_first(chat, conversion, Console(), whole=printed.verbose):
                raise SourceError(
                    f"none of the first {LOOKED_AT:,} records makes a conversation",
                    where=chat.first.where,
                    remedy="--dry-run shows the first record of each reason",
                )
            return
        if not printed.quiet:
            try:
                _show_first(chat, conversion, progress.console, whole=printed.verbose, counting=dry_run)
            except TokenizerError:
                progress.say(
                    "the first conversation is not shown as gpt-oss reads it: `spanloom fetch-tokenizer` was not run; "
                    "`build --model` needs no such file"
                )
        with progress.stage("convert"), progress.counting("convert", "bytes") as on_progress:
            if dry_run:
                counts, examples = chats.count_chat(chat, conversion, on_progress)
            else:
                assert out is not None
                written = chats.run(
                    staging=staging,
                    chat=chat,
                    out=out,
                    conversion=conversion,
                    overwrite=options.overwrite,
                    on_progress=on_progress,
                    workers=options.workers,
                    on_same=lambda: progress.say(already_there(out)),
                )
    if dry_run:
        _tell_dry_run(counts, examples, conversion.drop, printed.as_json)
    elif printed.as_json:
        unread = chat.not_read()
        print_json({**written, **({"not_read": unread} if unread else {})})
    else:
        _tell(written, out or "", conversion.drop, for_any_model=options.format == "conversations")


QUESTIONS = {
    "identity": "Who is the model? (--identity)",
    "effort": "Reasoning effort: low, medium, high? (--effort)",
    "date": "Current date? (--date)",
    "cutoff": "Knowledge cutoff? (--cutoff)",
    "developer": "Instructions for conversations without a system text? (--developer)",
}


def _answered_settings(options: ConvertOptions) -> ConvertOptions:
    """With answers for the settings that no option sets: an empty answer leaves one out."""
    answers = {}
    for name, question in QUESTIONS.items():
        if getattr(options, name) is None:
            try:
                answers[name] = typer.prompt(
                    f"{question} Enter leaves it out", default="", show_default=False, err=True
                )
            except typer.Abort:  # Ctrl-C, or the end of the input
                raise typer.Exit(EXIT_INTERRUPTED) from None
    return replace(options, **answers)


def _with_beside(chat: ChatInput, conversion: ChatConversion) -> tuple[ChatInput, ChatConversion]:
    """Asks whether a text next to the question belongs to it, unless an option decides."""
    while (asked := text_beside(chat)) is not None:
        key, query = asked
        question = f"{key!r} beside the question looks like a part of it. Append it to the question?"
        try:
            is_part = typer.confirm(question, default=None, err=True)
        except typer.Abort:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        if is_part:
            maps = (*conversion.maps, f"query={'+'.join((*query, key))}")
            conversion = replace(conversion, maps=maps)
        else:
            conversion = replace(conversion, metadata=(*conversion.metadata, key))
        chat = reopened(chat, conversion)
    return chat, conversion


PREVIEWED = 3
"""Documents of the first conversation shown in full; the later ones of a long conversation show nothing new."""


_AS_READ = "the first conversation, for gpt-oss; other models: `build`, then `inspect`"


def _show_first(
    chat: ChatInput, conversion: ChatConversion, console: Console, *, whole: bool, counting: bool = False
) -> bool:
    """Shows the first conversation as it will be trained. Returns whether there was one. Raises the error of a record
    before it, unless some records may be refused or all are only counted."""
    asset = locate_asset(None)
    is_named = False
    for outcome in islice(chats.conversations(chat, conversion), LOOKED_AT):
        if isinstance(outcome, Converted) and outcome.fault is not None:
            if not is_named:
                line = _unheld(outcome.fault.reason.value, f"{outcome.where}: {outcome.fault.detail}", REMEDIES)
                console.print(line, markup=False, highlight=False, soft_wrap=True)
                if calls_in_a_row(outcome.conversation.messages):
                    console.print("calls follow each other: --join-consecutive makes one message of them")
            is_named = True
        elif isinstance(outcome, Converted):
            documents, total = preview_documents(outcome, asset, PREVIEWED if whole else 1)
            console.print(_AS_READ, markup=False, highlight=False, soft_wrap=True)
            if whole:
                print_documents(console, documents, Shown())
            else:
                print_legend(console, documents[0].span_names)
                print_outline(console, documents[0])
            if more := total - len(documents):
                console.print(f"… and {more:,} more document{'s' if more > 1 else ''} of this conversation")
            if (unfit := run_fault(outcome.conversation.messages)) is not None:
                console.print(f"build --model would refuse it: {unfit.detail} ({unfit.remedy})", soft_wrap=True)
            for name in outcome.read_as:
                console.print(f"note: this conversation has {_NOTES[name][0]}s {_NOTES[name][1]}", soft_wrap=True)
            if not whole:
                console.print("all of the text: --preview --verbose")
            return True
        if isinstance(outcome, Rejected) and outcome.counts and conversion.max_rejects == "0" and not counting:
            raise outcome.as_error(allowed=conversion.max_rejects, remedy=remedy_of(outcome, chat))
    return is_named


def _unheld(reason: str, detail: str, remedies: Mapping[Any, str]) -> str:
    """The reason for which a build of a Harmony dataset would refuse a conversation, and the option that helps."""
    remedy = f" ({remedies[reason]})" if reason in remedies else ""
    return f"Harmony cannot hold this conversation, a build would refuse it: {reason}: {detail}{remedy}"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _tell_dry_run(counts: Counts, examples: chats.Examples, drop: Sequence[str], as_json: bool) -> None:
    if as_json:
        refused = sorted(examples.refused.items())
        shown = {name: {"where": rejected.read.where, "detail": rejected.detail} for name, rejected in refused}
        print_json({**counts.as_dict(), "examples": shown})
        return
    written, read = _number(counts.written, "conversation"), _number(counts.read, "record")
    say(f"{written} of {read}; nothing was written")
    _tell_messages(counts.messages, counts.read_as)
    _tell_loss(counts.skipped, counts.dropped, counts.dropped_characters, drop)
    _tell_keys(counts.metadata, counts.refused_keys)
    for reason, rejected in sorted(examples.refused.items()):
        remedy = f" ({rejected.remedy})" if rejected.remedy else ""
        say(f"  {reason}: {rejected.read.where}: {rejected.detail}{remedy}")
    _tell_models(counts.refused_by_models)
    _tell_harmony(counts.refused_by_harmony, counts.not_rendered)
    for reason, converted in sorted(examples.unheld.items()):
        assert converted.fault is not None
        say(f"  {reason}: {converted.where}: {converted.fault.detail}")


def _tell(written: dict[str, Any], out: str, drop: Sequence[str], *, for_any_model: bool) -> None:
    conversion, shards = written["conversion"], written["storage"]["shards"]
    rows, read = _number(conversion["rows_written"], "conversation"), _number(conversion["rows_read"], "record")
    say(f"{rows} in {_number(len(shards), 'shard')} under {out} ({read} read)")
    _tell_messages(conversion["messages"], conversion.get("read_as", {}))
    _tell_loss(conversion["skipped"], conversion["dropped"], conversion["dropped_characters"], drop)
    if conversion["rejects"]:
        say(f"records set aside: {', '.join(entry['path'] for entry in conversion['rejects'])} under {out}")
    summary = {
        "identity": conversion["model_identity"],
        "effort": conversion["reasoning_effort"],
        "date": conversion["conversation_start_date"],
        "cutoff": conversion["knowledge_cutoff"],
        "developer": conversion["developer"],
    }
    _tell_keys(conversion["metadata"], conversion.get("refused_keys", {}))
    around = ", ".join(f"{name} {value!r}" if value else f"no {name}" for name, value in summary.items())
    say(f"settings: {around}")
    _tell_models(conversion.get("models", {}).get("refused", {}))
    _tell_harmony(conversion["harmony"]["refused"], conversion["harmony"]["not_rendered"])
    say(f"next: spanloom build --source {shlex.quote(out)} --out ROOT")
    if for_any_model:
        say("      for gpt-oss; for another model add --model DIR, the folder of its tokenizer and chat template")


def _tell_messages(counts: Mapping[str, int], read_as: Mapping[str, int]) -> None:
    say("messages: " + (", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "none"))
    for name, (noun, what) in _NOTES.items():
        if count := counts.get(name) or read_as.get(name):
            say(f"note: {_number(count, noun)} {what}")


_NOTES = {
    "with_placeholder": (
        "answer", "with a placeholder such as {{name}}, trained as text: replace it in the data first"
    ),
    "with_react": ("answer", "with a call written as text (Action: … Action Input: …), trained as text of the answer"),
    "truncated": ("answer", "cut off before its end: the text is trained, the end of the turn is not"),
    "calls_undeclared": ("call", "of tools that the record does not define"),
    "calls_without_tools": ("call", "in records that define no tools: --map tools=KEY names their definitions"),
    "rendered_harmony": ("text", "rendered for Harmony, read as messages: each renders to the same text again"),
    "null_padding": ("null", "of absent keys removed from tools and calls, as Arrow writes them"),
}  # fmt: skip
"""Notes on what is trained unchanged but may need a repair, and on what was read otherwise than it is written: by its
name in `Counts.messages` or `Counts.read_as`."""


def _tell_models(refused: Mapping[str, int]) -> None:
    """Prints what a dataset for a model with a chat template would lose of the conversations."""
    if refused:
        lost = _number(sum(refused.values()), "conversation")
        say(f"build --model would refuse: {chats.counts_text(refused)} ({lost})")
        for reason in sorted(refused):
            say(f"  {reason}: {_FOR_MODELS[reason]}")


_FOR_MODELS = {
    "assistant_in_a_row": "--join-consecutive makes one message of messages of the assistant in a row",
    "answer_missing": "an answer has reasoning, and neither text nor a call: add it, or leave such records out",
}
"""What helps with each reason of `conversations.runs.run_fault`."""


def _tell_harmony(refused: Mapping[str, int], not_rendered: Mapping[str, int]) -> None:
    """Prints what a Harmony dataset would lose of the conversations."""
    if refused:
        count, remedies = sum(refused.values()), {reason.value: remedy for reason, remedy in REMEDIES.items()}
        noun = "conversation" if count == 1 else "conversations"
        say(f"Harmony: {count:,} {noun} would be refused by build: {chats.counts_text(refused)}")
        for reason in sorted(set(refused) & set(remedies)):
            say(f"  {reason}: {remedies[reason]}")
        say(f"  or build with --max-rejects {count}, which sets them aside")
    if not_rendered:
        say(f"for gpt-oss, keys that openai-harmony leaves out: {chats.counts_text(not_rendered)}")


def _tell_keys(metadata: Mapping[str, int], refused: Mapping[str, int]) -> None:
    """Prints the keys of all records, including keys that only the last record has."""
    for title, keys in (("metadata, not trained on", metadata), ("keys that refused a record", refused)):
        if keys:
            say(f"{title}: " + ", ".join(f"{name} ({count:,})" for name, count in sorted(keys.items())))


def _tell_loss(
    skipped: Mapping[str, int], dropped: Mapping[str, int], characters: Mapping[str, int], drop: Sequence[str]
) -> None:
    say(f"refused: {chats.counts_text({name: count for name, count in skipped.items() if name not in LEFT_OUT})}")
    if left_out := {name: count for name, count in skipped.items() if name in LEFT_OUT}:
        say(f"left out: {chats.counts_text(left_out)}")
    sizes = {name: f" ({count:,} characters)" for name, count in characters.items()}  # not of columns that are not read
    parts = [f"{count:,} {name}{sizes.get(name, '')}" for name, count in sorted(dropped.items())]
    say(f"dropped: {', '.join(parts) or 'none'}")
    if absent := [name for name in dict.fromkeys(drop) if name not in dropped]:
        say(f"to be dropped, but not found: {', '.join(absent)}")
