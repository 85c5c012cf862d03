"""A dataset for a model checked against its source: ids, weights, runs, and documents made a second time.

In: the dataset, a source folder, how many rows are made again. Out: findings.

    all rows          ids, compared with row tables and rejects
    a sample of rows  their documents are rendered and encoded again (`reference`) and compared token by token. A
                      refused row is judged again: its class must be one that fits (`faults`)
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from spanloom.conversations.source.folder import Source, SourceShard, first_rows
from spanloom.conversations.source.rejects import Reason
from spanloom.dataset.family import SourceCheck, WholeCheck
from spanloom.dataset.manifest import ShardEntry
from spanloom.dataset.rows.places import PlacedRows, RejectedRow, RowPlaces, row_numbers
from spanloom.dataset.validate.placed_documents import PlacedDocument, drawn_rows, reading_in_order
from spanloom.dataset.validate.source import carried, check_against_folder, deep_shares
from spanloom.families.models.defaults import SPAN_NAMES
from spanloom.families.models.documents.made import ABOUT_SCHEMA
from spanloom.families.models.prove.refusals import REMEDIES
from spanloom.families.models.verify.adapted import as_proven
from spanloom.families.models.verify.documents import LISTS
from spanloom.families.models.verify.faults import fitting_classes, lost_texts, most_tokens
from spanloom.families.models.verify.frames import frames_of
from spanloom.families.models.verify.messages import PlainConversation, plain_conversation
from spanloom.families.models.verify.reference import Reference
from spanloom.families.models.verify.texts import Texts, said_by, texts_of
from spanloom.families.models.workarounds.declared import DECLARED
from spanloom.findings import Finding, Report
from spanloom.law.declared import TRAINED_SPANS
from spanloom.megatron.readers import OpenIndexed

TOKENS_OF_ROW = 8192
"""How many tokens are rendered for each row of a sample, on average at most."""

LARGEST_SHARE = 0.2
"""The share of a sample's tokens that one document takes at most, but for its last run."""

_COLUMNS = ("sequence", "tokens", *ABOUT_SCHEMA.names)


@dataclass
class _Budget:
    """The tokens that are rendered for the sample of a shard. `most`: for one document; `rows`: that are left."""

    left: int
    most: int
    rows: int

    def runs(self, row: Mapping[str, Any]) -> list[int]:
        """Which runs of a document are rendered, with the last one: it gives the text of the whole document. A run is
        rendered with all that is before it, so that all runs of a long conversation would take the square of its
        length."""
        runs, tokens = len(row["run"]), max(row["tokens"], 1)
        share = min(self.most, 4 * max(self.left, 0) // max(self.rows, 1))  # most rows take less than the average
        fitting = min(runs, 2 * share // tokens)
        chosen = sorted({runs - 1, *np.linspace(0, runs - 1, fitting, dtype=np.int64).tolist()})
        self.left -= sum(tokens * (number + 1) // runs for number in chosen)
        return chosen


def check_source(report: Report, check: SourceCheck) -> None:
    """Checks that the source is the manifest's, byte by byte; compares all ids; makes some rows again."""
    content = check.whole.content
    shares = deep_shares(content, check.deep)
    most = int(check.deep * TOKENS_OF_ROW * LARGEST_SHARE)

    def opened(own: Report, source: Source) -> list[Reference] | None:  # noqa: ARG001  # nothing depends on it
        """What makes documents again, or nothing if none is; what tools are described to needs the template too."""
        if not check.deep and "inline_calls" not in content.config:
            return []
        return carried(own, lambda: [Reference(check.whole.root, content)])

    def check_shard(own: Report, shard: ShardEntry, source: SourceShard, references: list[Reference]) -> None:
        again = drawn_rows(shard.rows_read, shares[shard.shard])
        budget = None if len(again) == shard.rows_read else _Budget(len(again) * TOKENS_OF_ROW, most, len(again))
        reference = next(iter(references), None)
        rows = _ShardRows(check.whole, shard, source, reference if "inline_calls" in content.config else None)
        every = range(shard.rows_read)
        alone = rows.reference is not None  # it is not pickled
        of_pieces = [rows.checked(every)] if alone else check.whole.run.spread(rows.checked, len(every))
        for piece in of_pieces:
            own.include(piece.report)
        own.ran("source rows", shard.rows_read)
        own.add(rows.wrong_counts(of_pieces))
        if reference is not None:
            _Again(own, rows, reference, budget).check(every, again)

    check_against_folder(report, check, opened, check_shard)


@dataclass(frozen=True)
class _Row:
    """A row of the source, with its documents in order, and what the rejects file says of it."""

    number: int
    id: str | None
    messages_json: bytes
    made: Sequence[PlacedDocument]
    refused: RejectedRow | None


@dataclass(kw_only=True)
class _Checked:
    """What is found in rows; how many messages follow a last run, and how many runs are not trained."""

    report: Report = field(default_factory=Report)
    left_out: int = 0
    untrained: int = 0


@dataclass(frozen=True)
class _ShardRows:
    """The rows of a shard's source file, with their documents. `reference`: where conversations need the template."""

    whole: WholeCheck
    shard: ShardEntry
    source: SourceShard
    reference: Reference | None

    @property
    def config(self) -> Mapping[str, Any]:
        return self.whole.content.config

    def read(self, rows: range, wanted: set[int] | None = None) -> Iterator[_Row]:
        """These rows, or the wanted ones among them."""
        open_with = reading_in_order(self.whole.open_with)
        splits, id_column = self.whole.readable_splits(self.shard), self.source.format.id_column
        # What is wrong in the rejects file is reported with the places of all rows.
        places = RowPlaces(self.whole.root, self.shard, splits, _COLUMNS, id_column, lambda _: None)
        places.skip(rows.start)
        for batch in first_rows(self.source, rows.stop, first=rows.start):
            placed = places.before(batch.first_row + len(batch))
            if wanted is not None and wanted.isdisjoint(range(batch.first_row, batch.first_row + len(batch))):
                continue
            documents = self._documents(placed, wanted, open_with)
            refused = {each.row: each for each in placed.rejected}
            ids = batch.columns.get(id_column)
            for at, text in enumerate(batch.messages_json.to_pylist()):
                row = batch.first_row + at
                if wanted is None or row in wanted:
                    made = sorted(documents.get(row, ()), key=lambda place: place.row["cut"])
                    yield _Row(row, None if ids is None else ids[at], text, made, refused.get(row))

    def _documents(
        self, placed: PlacedRows, wanted: set[int] | None, open_with: OpenIndexed
    ) -> dict[int, list[PlacedDocument]]:
        """Row → its documents."""
        documents: dict[int, list[PlacedDocument]] = {}
        for split, table in placed.tables.items():
            chosen = table if wanted is None else table.filter(pa.array(np.isin(row_numbers(table), [*wanted])))
            for row in chosen.to_pylist():
                place = {"split": split, "shard": self.shard.shard, "sequence": row["sequence"]}
                documents.setdefault(row["row"], []).append(PlacedDocument(**place, row=row, open_with=open_with))
        return documents

    def checked(self, rows: range) -> _Checked:
        """Checks ids, runs and texts of these rows, without rendering."""
        frames, _ = frames_of(self.whole.root, self.whole.content)
        texts = None if frames is None else Texts(frames)
        found = _Checked()
        for row in self.read(rows):
            if row.refused is not None and None not in (row.refused.id, row.id) and row.refused.id != row.id:
                message = f"the rejects file has the id {row.refused.id!r}, the source {row.id!r}"
                found.report.add([self.finding(row.number, message)])
            if not row.made:
                continue
            if row.id is not None and (stated := row.made[0].row["conversation"]) != row.id:
                message = f"the conversation is {stated!r}, the source has {row.id!r}"
                found.report.add([row.made[0].finding("source", message)])
            whole = self.conversation(row.messages_json)
            conversation = self.trained(whole)
            if wanted := conversation.runs():
                found.left_out += len(conversation.messages) - 1 - wanted[-1]
            if self._last_alone:
                found.untrained += len(whole.runs()) - sum(len(place.row["run"]) for place in row.made)
            found.report.add(_wrong_runs(row.made, conversation, self.config))
            found.report.add(each for place in row.made for each in self._wrong_texts(place, conversation, texts))
        return found

    def wrong_counts(self, of_pieces: Sequence[_Checked]) -> Iterator[Finding]:
        """Checks what the manifest says of the shard's conversations."""
        left_out, untrained = sum(piece.left_out for piece in of_pieces), sum(piece.untrained for piece in of_pieces)
        cutting = self.shard.cutting or {}
        # Conversations of which nothing is trained have no document, and messages behind their last run too.
        if cutting.get("left_out_messages") != left_out and not cutting.get("untrained"):
            message = f"{left_out} messages follow a last run, cutting.left_out_messages is"
            message = f"{message} {cutting.get('left_out_messages')}"
            yield Finding(check="source", message=message, shard=self.shard.shard)
        if cutting.get("untrained_runs", 0) != untrained:
            message = f"{untrained} runs are not trained, cutting.untrained_runs is {cutting.get('untrained_runs', 0)}"
            yield Finding(check="source", message=message, shard=self.shard.shard)

    def conversation(self, messages_json: bytes) -> PlainConversation:
        version = self.source.format.schema_version
        if self.reference is not None:
            return self.reference.conversation(messages_json, version)
        return as_proven(plain_conversation(messages_json, version), self.config, system=True)

    @property
    def _last_alone(self) -> bool:
        return bool(self.config.get("turns") == "last")

    def trained(self, conversation: PlainConversation) -> PlainConversation:
        """The conversation with what the options leave to be trained."""
        return conversation.with_last_turn() if self._last_alone else conversation

    def finding(self, row: int, message: str) -> Finding:
        return Finding(check="rejects", message=f"source row {row}: {message}", shard=self.shard.shard)

    def _wrong_texts(
        self, place: PlacedDocument, conversation: PlainConversation, texts: Texts | None
    ) -> Iterator[Finding]:
        """Compares the texts of messages with those in the document, without rendering."""
        runs, config = place.row["run"], self.config
        if not runs or not set(runs) <= set(range(len(conversation.messages))):
            return  # reported with the runs
        if place.row["weight"] != conversation.weight:
            yield place.finding("source", f"weight is {place.row['weight']}, the source has {conversation.weight}")
        if any(place.row["trimmed"]) and not conversation.has_outer_space():
            yield place.finding("source", "trimmed is true, and no text begins or ends in white space")
        names = {
            *conversation.variables,
            *conversation.settings,
            *(name for each in config["variables"] for name in each),
        }
        if other := {name for each in set(place.row["variables"]) for name in _names(each)} - names:
            yield place.finding("source", f"neither the options nor the source have the variables {sorted(other)}")
        arrays = place.read(self.whole.root, ("tokens", "span"))
        if arrays is None or texts is None or not texts.kept or DECLARED in place.row["boundary"]:
            return
        spans = np.concatenate([arrays["span"][-1:], arrays["span"][:-1]])
        answers, prompts = texts_of(conversation, runs)
        if len(config["train"]) < TRAINED_SPANS:  # of an answer, some is context
            prompts += [text for reasoning, said in answers for text in (*reasoning, said)]
            answers = []
        known = all(json.loads(each) in config["variables"] for each in set(place.row["variables"]))
        alone = [said_by(conversation.messages[run]) for run in runs] if answers and known else []
        for message in texts.differences(arrays["tokens"], spans, answers, prompts, alone):
            yield place.finding("source", message)


@dataclass(frozen=True)
class _Again:
    """Makes some rows of a shard again. `budget`: None where these are all."""

    report: Report
    rows: _ShardRows
    reference: Reference
    budget: _Budget | None

    def check(self, rows: range, again: set[int]) -> None:
        for row in self.rows.read(rows, again):
            judged = row.refused is not None and row.refused.reason in {*REMEDIES, Reason.TOO_LONG}
            if not judged and not row.made:
                continue
            given = self.reference.conversation(row.messages_json, self.rows.source.format.schema_version)
            conversation = self.rows.trained(given)
            if row.refused is not None and judged:
                self.report.ran("refused rows judged again", 1)
                self.report.add(self._wrong_refusal(row.refused, conversation))
            if row.made:
                self.report.ran("rows rendered again", 1)
                self.report.add(each for place in row.made for each in self._wrong_document(place, conversation))
                if self.budget is not None:
                    self.budget.rows -= 1

    def _wrong_refusal(self, refused: RejectedRow, conversation: PlainConversation) -> Iterator[Finding]:
        if refused.reason == Reason.TOO_LONG:
            most, longest = most_tokens(self.reference, conversation), self.rows.config["caps"].get("longest")
            if most is not None and longest is not None and most <= longest:
                yield self.rows.finding(refused.row, f"it is refused as too_long, but has {most} tokens at most")
            return
        fitting = fitting_classes(self.reference, conversation)
        if not fitting:
            yield self.rows.finding(refused.row, f"it is refused as {refused.reason}, but nothing is wrong with it")
        elif refused.reason not in fitting:
            classes = ", ".join(sorted(fitting))
            yield self.rows.finding(refused.row, f"it is refused as {refused.reason}, but should be as {classes}")

    def _wrong_document(self, place: PlacedDocument, conversation: PlainConversation) -> Iterator[Finding]:
        lists = [place.row[name] for name in ("run", *LISTS)]
        if len({*map(len, lists)}) > 1 or max(place.row["run"], default=0) >= len(conversation.messages):
            return  # reported with the rows or with the runs
        runs = list(range(len(place.row["run"]))) if self.budget is None else self.budget.runs(place.row)
        for number in runs:
            run, variables = place.row["run"][number], json.loads(place.row["variables"][number])
            for text in lost_texts(self.reference, conversation, run, variables):
                yield place.finding("source", f"the template drops {text[:40]!r} before message {run}")
        self.report.ran("runs rendered again", len(runs))
        self.report.ran("runs in these rows", len(place.row["run"]))
        expected = self.reference.document(conversation, place.row, runs)
        if isinstance(expected, str):
            yield place.finding("source", expected)
            return
        masks = [[int(span > 0) for span in spans] for spans in expected.spans]
        labels = {"span": expected.spans, "lossmask": masks}
        root = self.rows.whole.root
        yield from place.differences_in(expected.known, root, "the conversation", expected.tokens, labels)


@lru_cache(maxsize=64)
def _names(variables: str) -> frozenset[str]:
    """The names of the variables that a run is rendered with. `variables`: as JSON."""
    return frozenset(json.loads(variables))


def _wrong_runs(
    made: Sequence[PlacedDocument], conversation: PlainConversation, config: Mapping[str, Any]
) -> Iterator[Finding]:
    """Checks that each run is in one document and, if all spans are trained, that none is missing; of a last turn, that
    there is one document, with the last run."""
    runs = sorted(run for place in made for run in place.row["run"])
    wanted = conversation.runs()
    complete = set(config["train"]) == set(SPAN_NAMES[1:])
    if config.get("turns") == "last":
        complete = False
        if len(made) > 1 or runs[-1:] != wanted[-1:]:
            yield made[0].finding(
                "source", f"{len(made)} documents have the runs {runs}, the last one is {wanted[-1:]}"
            )
    if len(set(runs)) != len(runs) or not set(runs) <= set(wanted) or (complete and runs != wanted):
        yield made[0].finding("source", f"the documents have the runs {runs}, the conversation has {wanted}")
