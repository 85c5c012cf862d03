"""A dataset for a model checked against its source: ids, weights, runs, and documents made a second time.

In: the dataset, a source folder, how many rows are made again. Out: findings.

    all rows          ids, compared with row tables and rejects
    a sample of rows  their documents are rendered and encoded again (`reference`) and compared token by token. A
                      refused row is judged again: its class must be one that fits (`faults`)
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from spanloom.conversations.source.folder import Source, SourceRows, SourceShard, first_rows
from spanloom.conversations.source.rejects import Reason
from spanloom.dataset.family import SourceCheck, WholeCheck
from spanloom.dataset.manifest import ShardEntry
from spanloom.dataset.rows.places import PlacedRows, RejectedRow, RowPlaces
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

    frames, _ = frames_of(check.whole.root, content)
    texts = None if frames is None else Texts(frames)

    def opened(own: Report, source: Source) -> list[Reference] | None:  # noqa: ARG001  # nothing depends on it
        """What makes documents again, or nothing if none is; what tools are described to needs the template too."""
        if not check.deep and "inline_calls" not in content.config:
            return []
        return carried(own, lambda: [Reference(check.whole.root, content)])

    def check_shard(own: Report, shard: ShardEntry, source: SourceShard, references: list[Reference]) -> None:
        again = drawn_rows(shard.rows_read, shares[shard.shard])
        budget = None if len(again) == shard.rows_read else _Budget(len(again) * TOKENS_OF_ROW, most, len(again))
        _ShardCheck(own, check.whole, shard, source, next(iter(references), None), texts, again, budget).run()

    check_against_folder(report, check, opened, check_shard)


@dataclass
class _ShardCheck:
    """Checks one shard against its source file. `again`: the rows that are made again; `budget`: None where these
    are all."""

    report: Report
    whole: WholeCheck
    shard: ShardEntry
    source: SourceShard
    reference: Reference | None
    texts: Texts | None
    again: set[int]
    budget: _Budget | None
    left_out: int = 0
    untrained: int = 0

    def run(self) -> None:
        whole, source = self.whole, self.source
        open_with = reading_in_order(whole.open_with)
        places = RowPlaces(
            whole.root,
            self.shard,
            whole.readable_splits(self.shard),
            _COLUMNS,
            source.format.id_column,
            lambda finding: self.report.add([finding]),
        )
        rows = 0
        for batch in first_rows(source, self.shard.rows_read):
            whole.run.go_on()
            self._check_batch(batch, places.before(batch.first_row + len(batch)), open_with)
            rows += len(batch)
        self.report.ran("source rows", rows)
        cutting = self.shard.cutting or {}
        # Conversations of which nothing is trained have no document, and messages behind their last run too.
        if cutting.get("left_out_messages") != self.left_out and not cutting.get("untrained"):
            message = f"{self.left_out} messages follow a last run, cutting.left_out_messages is"
            self.report.wrong("source", f"{message} {cutting.get('left_out_messages')}", shard=self.shard.shard)
        if cutting.get("untrained_runs", 0) != self.untrained:
            message = f"{self.untrained} runs are not trained, cutting.untrained_runs is"
            self.report.wrong("source", f"{message} {cutting.get('untrained_runs', 0)}", shard=self.shard.shard)

    def _check_batch(self, batch: SourceRows, placed: PlacedRows, open_with: OpenIndexed) -> None:
        documents: dict[int, list[PlacedDocument]] = {}
        for split, table in placed.tables.items():
            for row in table.to_pylist():
                place = PlacedDocument(
                    split=split,
                    shard=self.shard.shard,
                    sequence=row["sequence"],
                    row=row,
                    open_with=open_with,
                )
                documents.setdefault(row["row"], []).append(place)
        refused = {each.row: each for each in placed.rejected}
        id_column = self.source.format.id_column
        for at, text in enumerate(batch.messages_json.to_pylist()):
            row = batch.first_row + at
            columns = {name: values[at] for name, values in batch.columns.items()}
            name = columns.get(id_column)
            if (each := refused.get(row)) is not None:
                self.report.add(self._wrong_refusal(each, name, text if row in self.again else None))
            made = sorted(documents.get(row, ()), key=lambda place: place.row["cut"])
            if made and name is not None and made[0].row["conversation"] != name:
                message = f"the conversation is {made[0].row['conversation']!r}, the source has {name!r}"
                self.report.add([made[0].finding("source", message)])
            if made:
                whole = self._conversation(text)
                conversation = self._trained(whole)
                if wanted := conversation.runs():
                    self.left_out += len(conversation.messages) - 1 - wanted[-1]
                if self._last_alone:
                    self.untrained += len(whole.runs()) - sum(len(place.row["run"]) for place in made)
                self.report.add(_wrong_runs(made, conversation, self.whole.content.config))
                self.report.add(finding for place in made for finding in self._wrong_texts(place, conversation))
                if row in self.again and self.reference is not None:
                    self.report.ran("rows rendered again", 1)
                    self.report.add(finding for place in made for finding in self._wrong_document(place, conversation))
                    if self.budget is not None:
                        self.budget.rows -= 1

    def _conversation(self, messages_json: bytes) -> PlainConversation:
        version = self.source.format.schema_version
        if self.reference is not None:
            return self.reference.conversation(messages_json, version)
        return as_proven(plain_conversation(messages_json, version), self.whole.content.config, system=True)

    def _wrong_refusal(self, refused: RejectedRow, name: str | None, text: bytes | None) -> Iterator[Finding]:
        if refused.id is not None and name is not None and refused.id != name:
            yield self._finding(refused.row, f"the rejects file has the id {refused.id!r}, the source {name!r}")
        if refused.reason not in {*REMEDIES, Reason.TOO_LONG} or text is None or self.reference is None:
            return
        self.report.ran("refused rows judged again", 1)
        conversation = self._trained(self._conversation(text))
        if refused.reason == Reason.TOO_LONG:
            most, longest = most_tokens(self.reference, conversation), self.whole.content.config["caps"].get("longest")
            if most is not None and longest is not None and most <= longest:
                yield self._finding(refused.row, f"it is refused as too_long, but has {most} tokens at most")
            return
        fitting = fitting_classes(self.reference, conversation)
        if not fitting:
            yield self._finding(refused.row, f"it is refused as {refused.reason}, but nothing is wrong with it")
        elif refused.reason not in fitting:
            classes = ", ".join(sorted(fitting))
            yield self._finding(refused.row, f"it is refused as {refused.reason}, but should be as {classes}")

    @property
    def _last_alone(self) -> bool:
        return bool(self.whole.content.config.get("turns") == "last")

    def _trained(self, conversation: PlainConversation) -> PlainConversation:
        """The conversation with what the options leave to be trained."""
        return conversation.with_last_turn() if self._last_alone else conversation

    def _finding(self, row: int, message: str) -> Finding:
        return Finding(check="rejects", message=f"source row {row}: {message}", shard=self.shard.shard)

    def _wrong_texts(self, place: PlacedDocument, conversation: PlainConversation) -> Iterator[Finding]:
        """Compares the texts of messages with those in the document, without rendering."""
        runs, config = place.row["run"], self.whole.content.config
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
        if arrays is None or self.texts is None or not self.texts.kept or DECLARED in place.row["boundary"]:
            return
        spans = np.concatenate([arrays["span"][-1:], arrays["span"][:-1]])
        answers, prompts = texts_of(conversation, runs)
        if len(config["train"]) < TRAINED_SPANS:  # of an answer, some is context
            prompts += [text for reasoning, said in answers for text in (*reasoning, said)]
            answers = []
        known = all(json.loads(each) in config["variables"] for each in set(place.row["variables"]))
        alone = [said_by(conversation.messages[run]) for run in runs] if answers and known else []
        for message in self.texts.differences(arrays["tokens"], spans, answers, prompts, alone):
            yield place.finding("source", message)

    def _wrong_document(self, place: PlacedDocument, conversation: PlainConversation) -> Iterator[Finding]:
        assert self.reference is not None
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
        yield from place.differences_in(expected.known, self.whole.root, "the conversation", expected.tokens, labels)


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
