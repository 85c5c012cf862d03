"""Public data → samples: one converter per source, and their common code.

In: files as published. Out: `OUT/harmful/NAME.jsonl` and `OUT/retain/NAME.jsonl`, counts, and the records left out in
`OUT/rejects/NAME.ndjson`, each with its place and reason. Records are streamed.

No label is invented. A label that the source lacks is omitted; if the split depends on it, the record is left out.
Every sample is checked against the rules before it is written, with a system message required. A sample with an error
is left out under the rule's code, so everything that is written passes `validate --strict`.

    b4         orchestrated attacks of Fujitsu's B4, with a file of completions
    agentdojo  traces of AgentDojo          ultrachat  dialogues of UltraChat
    tau2       simulations of TAU2          xstest     prompts of XSTest, with completions
    messages   your own chat data of any form, with split and labels in columns or a file
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

from spanloom.conversations.outcomes import in_file
from spanloom.conversations.turns import Dropping
from spanloom.errors import RecordError, SourceError
from spanloom.families.toolcalls.convert import b4, messages, tau2, ultrachat, xstest
from spanloom.families.toolcalls.convert.agentdojo import samples as agentdojo
from spanloom.families.toolcalls.convert.drafts import Completion, Completions, Draft, Options, UnusableError
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.ids import Ids, hash_input
from spanloom.families.toolcalls.format.source import UNREADABLE, check_outside, parse_line
from spanloom.families.toolcalls.format.tables import HARMFUL, RETAIN, SPLITS
from spanloom.families.toolcalls.rules import Rules, check_sample
from spanloom.records.arrow import saved_files
from spanloom.records.files import find_files, passed_over, passed_over_line
from spanloom.records.json_lines import json_lines, written_again
from spanloom.records.record_files import SUFFIXES as SUFFIXES
from spanloom.records.record_files import RecordFile, all_unread_columns, kind_of, read_records, unread_line
from spanloom.storage.folders.repeated import OnSame
from spanloom.storage.folders.repeated_files import all_written_once
from spanloom.storage.unchanged import file_state

Source = Literal["b4", "agentdojo", "tau2", "ultrachat", "xstest", "messages"]
_Converter = Callable[[Any, Options], Iterator[Draft | UnusableError]]

CONVERTERS: dict[str, _Converter] = {
    "b4": b4.drafts,
    "agentdojo": agentdojo.drafts,
    "tau2": tau2.drafts,
    "ultrachat": ultrachat.drafts,
    "xstest": xstest.drafts,
    "messages": messages.drafts,
}
FILES = {
    ("b4", HARMFUL): "fujitsu_b4_harmful",
    ("b4", RETAIN): "adversarial_safe",
    ("agentdojo", HARMFUL): "agentdojo_failures",
    ("agentdojo", RETAIN): "agentdojo_resisted",
    ("tau2", RETAIN): "tau2",
    ("ultrachat", RETAIN): "ultrachat_subset",
    ("xstest", RETAIN): "xstest",
    ("messages", HARMFUL): "messages",
    ("messages", RETAIN): "messages",
}
"""(source, split) → the name of the output file, without suffix."""

INPUTS = {"b4": "data/fujitsu", "agentdojo": "data/agent_dojo", "tau2": "data/tau2_repo"}
"""The default folder of a source."""

NEEDS_COMPLETIONS = ("b4",)

DUPLICATE = "duplicate"
LEFT_OUT = "left out"
NOT_TOLD = "not told"
TELLING = ("agentdojo",)
"""Sources whose records have their own label: `Converted.outcomes` counts all their records."""

NOT_READ = "the record cannot be read"
TOO_DEEP = "the record is nested too deep"
REMEDIES = {"M3": "--system TEXT|FILE gives a system message to records without one"}
"""Codes of rules → the option that helps."""


@dataclass(kw_only=True)
class Converted:
    """Counts: records read, samples written by split, records and samples left out by reason, labels that the source
    lacks, how ambiguous values were read, samples that got `Options.system`, completions without a record. `outcomes`,
    for `TELLING` sources: (the record's own label, what it became, the reason if it was left out) → records.

    `dropped`: what was left out of the messages of records that became samples, as thoughts: name → times, characters.
    `not_read`: files of the folder that are not read; `unread_columns`: name → type of columns that are not.
    `examples`: reason → the first record left out that says more.
    """

    records: int = 0
    written: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    labels_missing: Counter[str] = field(default_factory=Counter)
    read_as: Counter[str] = field(default_factory=Counter)
    systems_given: int = 0
    completions_unused: int = 0
    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    dropped: dict[str, tuple[int, int]] = field(default_factory=dict)
    not_read: list[str] = field(default_factory=list)
    unread_columns: dict[str, str] = field(default_factory=dict)
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)

    def count_dropped(self, dropping: Dropping) -> None:
        """Adds what was left out of one record."""
        for name, times in dropping.counts.items():
            before, characters = self.dropped.get(name, (0, 0))
            self.dropped[name] = before + times, characters + dropping.characters[name]
        self.read_as.update(dropping.read_as)

    def as_dict(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "written": {split: self.written[split] for split in SPLITS},
            "left_out": dict(sorted(self.left_out.items())),
            "labels_missing": dict(sorted(self.labels_missing.items())),
            "systems_given": self.systems_given,
            **({"read_as": dict(sorted(self.read_as.items()))} if self.read_as else {}),
            **(
                {
                    "dropped": {
                        name: {"times": times, "characters": characters}
                        for name, (times, characters) in sorted(self.dropped.items())
                    }
                }
                if self.dropped
                else {}
            ),
            **({"not_read": self.not_read} if self.not_read else {}),
            **({"columns_not_read": self.unread_columns} if self.unread_columns else {}),
            **({"completions_unused": self.completions_unused} if self.completions_unused else {}),
            **({"outcomes": self.outcome_rows()} if self.outcomes else {}),
        }

    def outcome_rows(self) -> list[dict[str, Any]]:
        """The rows of the table *told as → became, reason*; within each label the most frequent outcome first."""
        totals: Counter[str] = Counter()
        for (label, *_), number in self.outcomes.items():
            totals[label] += number
        order = sorted(
            self.outcomes.items(), key=lambda row: (-totals[row[0][0]], row[0][0], bool(row[0][2]), -row[1], row[0])
        )
        return [
            {"told": label, "became": became, **({"reason": reason} if reason else {}), "records": number}
            for (label, became, reason), number in order
        ]


def convert(
    source: Source,
    place: Path,
    out: Path,
    options: Options,
    completions: Path | None = None,
    *,
    overwrite: bool = True,
    on_same: OnSame | None = None,
) -> Converted:
    """Converts all files of a source below `place`. The same files give the same bytes.

    Raises SourceError if there are no files, ToolCallError if the source needs completions and none are given, and
    without `overwrite` ConflictError for files of another conversion of this source. `on_same` is called if all files
    are there already.
    """
    if source in NEEDS_COMPLETIONS and completions is None:
        raise ToolCallError(
            f"{source} has no assistant turns", remedy="give a file of them: --completions FILE (id, text, …)"
        )
    check_outside(out, place)
    files = [file for file in _files(source, place) if not (completions and file.path.samefile(completions))]
    if completions is not None:
        options = replace(options, completions=Completions(read_completions(completions)))
    converted, ids, rules = Converted(), Ids(), Rules(require_system=True)
    if saved_files(place) is None:
        read = {file.path for file in files} | ({completions} if completions is not None else set())
        converted.not_read = passed_over(place, read)
    converted.unread_columns = all_unread_columns(files)
    names = {split: name for (made, split), name in FILES.items() if made == source}
    paths = [*(out / split / f"{name}.jsonl" for split, name in names.items()), out / "rejects" / f"{source}.ndjson"]
    with all_written_once(paths, overwrite=overwrite, on_same=on_same) as (*written_to, rejects):
        streams = dict(zip(names, written_to, strict=True))

        def leave_out(where: str, reason: str, label: str = "", **more: Any) -> None:
            converted.left_out[reason] += 1
            if source in TELLING:
                converted.outcomes[label or NOT_TOLD, LEFT_OUT, reason] += 1
            more = {key: value for key, value in more.items() if value is not None}
            if "detail" in more or "remedy" in more:
                converted.examples.setdefault(reason, {"where": where, **more})
            rejects.write(_line({"where": where, "reason": reason, **more}))

        def unused(where: str, fault: UnusableError) -> None:
            leave_out(where, str(fault), fault.told, detail=fault.detail, remedy=in_file(fault.remedy, where))

        def unreadable(error: RecordError, file: Path) -> None:
            converted.records += 1
            leave_out(str(error.where), NOT_READ, detail=error.what, remedy=written_again(error.what, file))

        for file in files:
            for where, record in _records(source, file, partial(unreadable, file=file.path)):
                converted.records += 1
                try:
                    if isinstance(record, list) and source == "messages":  # a list of messages by itself
                        record = {"messages": record}
                    if isinstance(record, UnusableError):
                        raise record
                    if not isinstance(record, dict):
                        raise UnusableError("no object")
                    made = list(CONVERTERS[source](record, options))
                except UnusableError as fault:
                    unused(where, fault)
                    continue
                except RecursionError:
                    leave_out(where, TOO_DEEP)
                    continue
                written = False
                for draft in made:
                    if isinstance(draft, UnusableError):
                        unused(where, draft)
                    elif _take(draft, where, options, ids, rules, streams, leave_out, converted):
                        if draft.dropped is not None and not written:
                            converted.count_dropped(draft.dropped)
                        written = True
    if options.completions is not None:
        converted.completions_unused = options.completions.unused()
    return converted


def outcome_table(done: Converted) -> list[str]:
    """The table *told as → became, reason* as lines of text; empty if the source has no labels of its own."""
    rows = [("told as", "became", "records", "reason")]
    rows += [(row["told"], row["became"], f"{row['records']:,}", row.get("reason", "")) for row in done.outcome_rows()]
    if len(rows) == 1:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        f"{label:<{widths[0]}}  {became:<{widths[1]}}  {records:>{widths[2]}}  {reason}".rstrip()
        for label, became, records, reason in rows
    ]


def summary(done: Converted) -> list[str]:
    """Lines for the user: the first record left out for each reason that says more, what was left out of messages, the
    files that are not read."""
    lines = []
    for reason, example in sorted(done.examples.items()):
        more = "; ".join(example[key] for key in ("detail", "remedy") if key in example)
        lines.append(f"left out, {reason}: {done.left_out[reason]:,}, such as {example['where']}: {more}")
    if done.dropped:
        parts = [f"{name} {times:,} ({characters:,} characters)" for name, (times, characters) in done.dropped.items()]
        lines.append(f"left out of messages: {', '.join(parts)}")
    if done.not_read:
        lines.append(passed_over_line(done.not_read))
    if done.unread_columns:
        lines.append(unread_line(done.unread_columns))
    return lines


def _take(
    draft: Draft,
    where: str,
    options: Options,
    ids: Ids,
    rules: Rules,
    streams: Mapping[str, BinaryIO],
    leave_out: Callable[..., None],
    done: Converted,
) -> bool:
    """Writes the sample of a draft, unless something is wrong with it. Returns whether it was written."""
    sample, added = _sample(draft, options)
    try:
        readable = parse_line(_line(sample)) is not UNREADABLE
        content = hash_input(sample, **draft.hashed)
    except (ValueError, RecursionError):  # NaN, or a lone surrogate
        readable = False
    if not readable:
        leave_out(where, "J1", draft.told)
        return False
    sample["id"], known = ids.take(draft.id_source, draft.split, content)
    if known:
        leave_out(where, DUPLICATE, draft.told, id=sample["id"])
        return False
    errors = [finding for finding in check_sample(sample, rules).findings if finding.severity == "ERROR"]
    if errors:
        first = errors[0]
        codes = sorted({finding.code for finding in errors})
        remedy = next((REMEDIES[code] for code in codes if code in REMEDIES), None)
        leave_out(where, first.code, draft.told, path=first.path, codes=codes, remedy=remedy)
        return False
    streams[draft.split].write(_line(sample))
    done.written[draft.split] += 1
    if draft.told:
        done.outcomes[draft.told, draft.became, ""] += 1
    done.systems_given += added
    done.labels_missing.update(draft.missing)
    if draft.read_as:
        done.read_as[draft.read_as] += 1
    return True


def _sample(draft: Draft, options: Options) -> tuple[dict[str, Any], bool]:
    added = options.system is not None and all(message["role"] != "system" for message in draft.messages)
    system = [{"role": "system", "content": options.system}] if added else []
    metadata = {"source": draft.source, **draft.metadata}
    if added:
        metadata["system_given"] = True
    sample: dict[str, Any] = {
        "id": "",
        "messages": [*system, *draft.messages],
        "assistant_raw": draft.assistant_raw,
        "tools": draft.tools,
        "labels": {"split": draft.split, **draft.labels},
        **({"training": dict(draft.training)} if draft.training else {}),
        "metadata": metadata,
    }
    return sample, added


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _files(source: Source, place: Path) -> list[RecordFile]:
    """All files of records of a source. A folder's `.json` and `.csv` files are read too, also beside others."""
    paths = saved_files(place) or find_files(place, SUFFIXES)
    if source == "tau2" and place.is_file() and tau2.is_run_folder(place):
        paths = [*paths, *sorted((place.parent / tau2.SIMULATIONS).glob("*.json"))]
    return [RecordFile(path=path, name=path.name, kind=kind_of(path), state=file_state(path)) for path in paths]


def _records(source: Source, file: RecordFile, unreadable: Callable[[RecordError], None]) -> Iterator[tuple[str, Any]]:
    """Yields place and value of each record of a file. Unreadable records are passed to `unreadable`."""
    for where, record in read_records(file, unreadable):
        if source == "tau2":
            yield from tau2.simulations(file.path, where, record)
        else:
            yield where, record


def read_completions(file: Path) -> dict[str, list[Completion]]:
    """Reads a file of completions: id → completions, in order. Raises SourceError or RecordError if it is invalid."""
    completions: dict[str, list[Completion]] = {}
    if not file.is_file():
        raise SourceError("the file of completions is missing", where=str(file), remedy="fix --completions")
    for where, record in json_lines(file):
        name = record.get("id") if isinstance(record, dict) else None
        text = record.get("text") if isinstance(record, dict) else None
        if not isinstance(name, str | int) or not isinstance(text, str):
            raise ToolCallError("a completion needs id and text", where=where, remedy="fix it")
        about = {key: record[key] for key in ("model", "temperature", "created_at") if record.get(key) is not None}
        completions.setdefault(str(name), []).append(Completion(text=text, about=about))
    return completions
