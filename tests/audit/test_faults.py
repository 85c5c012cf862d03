"""Faults seeded into right documents: each is named by its own class, in each container, and nothing else is found.

A fault changes one document. A reference of its own says where messages begin: it splits at `<|start|>`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from audit.conftest import FIM, SmallModel
from support.audited import Document, write_indexed, write_masks, write_packed, write_saved


@dataclass(frozen=True)
class Message:
    """A message of a document: its role; tokens [start, end); `text`: behind its header; `stop`: its `<|end|>`."""

    role: str
    start: int
    text: int
    stop: int
    end: int


@dataclass(frozen=True)
class Seeding:
    """A document to be changed, with what a fault needs to know of it."""

    model: SmallModel
    tokens: list[int]
    mask: list[int]

    def messages(self) -> list[Message]:
        (start,), (stop,) = self.model.ids("<|start|>"), self.model.ids("<|end|>")
        begins = [place for place, token in enumerate(self.tokens) if token == start]
        found = []
        for begin, end in zip(begins, [*begins[1:], len(self.tokens)], strict=True):
            for role in ("tools", "system", "user", "assistant", "tool"):
                header = self.model.ids(f"<|start|>{role}\n")
                if self.tokens[begin : begin + len(header)] == header:
                    place = begin + len(header)
                    found.append(Message(role, begin, place, self.tokens.index(stop, place), end))
        assert len(found) == len(begins)
        return found

    def last(self, role: str) -> Message:
        return [message for message in self.messages() if message.role == role][-1]

    def trained(self, *places: int, value: int = 1) -> Document:
        mask = list(self.mask)
        for place in places:
            assert mask[place] != value
            mask[place] = value
        return self.tokens, mask

    def without(self, first: int, last: int) -> Document:
        return self.tokens[:first] + self.tokens[last:], self.mask[:first] + self.mask[last:]

    def with_tokens(self, place: int, tokens: list[int], trained: int) -> Document:
        mask = self.mask[:place] + [trained] * len(tokens) + self.mask[place:]
        return self.tokens[:place] + tokens + self.tokens[place:], mask


Fault = Callable[[Seeding], Document]


def _answer_untrained(seeding: Seeding) -> Document:
    """The last answer, where an earlier one is trained."""
    answer = seeding.last("assistant")
    return seeding.trained(*(place for place in range(answer.start, answer.end) if seeding.mask[place]), value=0)


def _letter_by_letter(seeding: Seeding) -> Document:
    """A word of the last answer in its letters, where the tokenizer has longer tokens."""
    letters = [token for letter in "answer" for token in seeding.model.ids(letter)]
    assert seeding.model.ids("answer") != letters
    return seeding.with_tokens(seeding.last("assistant").stop, letters, 1)


def _reasoning_kept(seeding: Seeding) -> Document:
    """A reasoning in an answer that another question follows."""
    answer = next(message for message in seeding.messages() if message.role == "assistant")
    return seeding.with_tokens(answer.text, seeding.model.ids("<think>\nmaps\n</think>\n\n"), 0)


def _unknown(seeding: Seeding) -> Document:
    return seeding.with_tokens(seeding.last("user").text, [seeding.model.auditor.model.tokenizer.vocab_size + 7], 0)


FAULTS: dict[str, tuple[str, Fault]] = {
    "a question is trained": ("context_trained", lambda s: s.trained(*range(s.last("user").text, s.last("user").stop))),
    "one token of a question is trained": ("context_trained", lambda s: s.trained(s.last("user").text)),
    "the header of a question is trained": ("context_trained", lambda s: s.trained(s.last("user").start)),
    "the stop token of a question is trained": ("context_trained", lambda s: s.trained(s.last("user").stop)),
    "the system text is trained": ("context_trained", lambda s: s.trained(s.last("system").text)),
    "a tool's result is trained": (
        "tool_result_trained",
        lambda s: s.trained(*range(s.last("tool").text, s.last("tool").stop)),
    ),
    "the header of a tool's result is trained": ("tool_result_trained", lambda s: s.trained(s.last("tool").start)),
    "the generation prompt is trained": (
        "prompt_supplied_trained",
        lambda s: s.trained(*range(s.last("assistant").start, s.last("assistant").text)),
    ),
    "the line feed of the prompt is trained": (
        "prompt_supplied_trained",
        lambda s: s.trained(s.last("assistant").text - 1),
    ),
    "the last answer is not trained": ("completion_untrained", _answer_untrained),
    "the first token of an answer is not trained": (
        "completion_untrained",
        lambda s: s.trained(s.last("assistant").text, value=0),
    ),
    "a token in an answer is not trained": (
        "completion_untrained",
        lambda s: s.trained((s.last("assistant").text + s.last("assistant").stop) // 2, value=0),
    ),
    "the stop token is not trained": ("stop_untrained", lambda s: s.trained(s.last("assistant").stop, value=0)),
    "the line feed behind the stop token is trained": (
        "trained_behind_stop",
        lambda s: s.trained(s.last("assistant").stop + 1),
    ),
    "EOS behind the stop token is trained": (
        "trained_behind_stop",
        lambda s: s.with_tokens(len(s.tokens), s.model.ids("<|eof|>"), 1),
    ),
    "nothing is trained": ("no_loss", lambda s: (s.tokens, [0] * len(s.tokens))),
    "all is trained": ("all_trained", lambda s: (s.tokens, [1] * len(s.tokens))),
    "the answer is cut": ("truncated", lambda s: s.without(s.last("assistant").stop, len(s.tokens))),
    "the question behind the answer is cut": (
        "truncated",
        lambda s: s.with_tokens(len(s.tokens), s.model.ids("<|start|>user\nand the"), 0),
    ),
    "BOS is there twice": ("double_bos", lambda s: s.with_tokens(0, s.model.ids("<|bos|>"), 0)),
    "BOS is missing": ("missing_bos", lambda s: s.without(0, 1)),
    "a question holds the stop token": (
        "special_in_text",
        lambda s: s.with_tokens(s.last("user").text, s.model.ids("by <|end|> it"), 0),
    ),
    "a question holds a control token": (
        "special_in_text",
        lambda s: s.with_tokens(s.last("user").text, s.model.ids(FIM), 0),
    ),
    "the ids are not the tokenizer's": ("retokenised", _letter_by_letter),
    "there are ids without a token": ("unknown_ids", _unknown),
    "reasoning is kept in history": ("history_rewritten", _reasoning_kept),
    "a document is there twice": ("duplicate", lambda s: (s.tokens, s.mask)),
}

CONTAINERS = {
    "parquet": lambda folder, documents: write_masks(folder / "data.parquet", documents),
    "save_to_disk": lambda folder, documents: write_saved(folder / "saved", documents),
    "megatron-bridge": lambda folder, documents: write_packed(folder / "packed.idx.parquet", documents, per_row=1),
    "indexed": lambda folder, documents: write_indexed(folder / "corpus", documents),
}


def _seeded(model: SmallModel) -> tuple[list[Document], dict[str, int]]:
    """Right documents, then each fault in a document that has what it needs. Returns the row of each fault."""
    needs = {"tool": "tool", "system": "system"}
    documents = list(model.documents)
    rows = {}
    used = {0}
    for name, (_, fault) in FAULTS.items():
        for number, (tokens, mask) in enumerate(model.documents):
            seeding = Seeding(model, tokens, mask)
            roles = [message.role for message in seeding.messages()]
            wanted = [needs[word] for word in needs if word in name.split("'")[0]]
            enough = roles.count("assistant") > 1 and roles.count("user") > 1
            both = sum(mask[message.text] for message in seeding.messages() if message.role == "assistant") > 1
            if number in used or not enough or not both or any(role not in roles for role in wanted):
                continue
            used.add(number)
            rows[name] = len(documents)
            documents.append(fault(seeding))
            if name != "a document is there twice":
                documents[number] = model.documents[0]  # the right one would be a duplicate of some
            break
        assert name in rows, name
    kept = [number for number in range(len(documents)) if number == 0 or documents[number] is not documents[0]]
    places = {old: new for new, old in enumerate(kept)}
    return [documents[number] for number in kept], {name: places[row] for name, row in rows.items()}


@pytest.mark.parametrize("container", CONTAINERS)
def test_each_fault_is_named_by_its_own_class(container: str, forgetful: SmallModel, tmp_path: Path) -> None:
    documents, rows = _seeded(forgetful)
    path = CONTAINERS[container](tmp_path, documents)
    result = forgetful.audit(path)
    assert result.documents == len(documents)
    named: dict[int, set[str]] = {}
    for name, examples in result.examples.items():
        for each in examples:
            named.setdefault(each.row, set()).add(name)
    assert named == {row: {FAULTS[name][0]} for name, row in rows.items()}
    assert sum(result.found.values()) == len(rows)
    assert result.exit_code == 4


def test_an_earlier_answer_that_is_not_trained_is_named(faithful: SmallModel, tmp_path: Path) -> None:
    for tokens, mask in faithful.documents:
        seeding = Seeding(faithful, tokens, mask)
        answers = [message for message in seeding.messages() if message.role == "assistant"]
        if len(answers) > 1:
            first = range(answers[0].text, answers[0].stop + 1)
            break
    path = write_masks(tmp_path / "data.parquet", [seeding.trained(*first, value=0)])
    assert faithful.audit(path).found == {"history_untrained": 1}
    declared = faithful.audit(path, declare=("history_untrained",))
    assert (declared.findings, declared.notes, declared.exit_code) == ({}, {"history_untrained": 1}, 0)


def test_labels_that_are_shifted_are_named(faithful: SmallModel, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tokens, mask = faithful.documents[0]
    labels = [token if trained else -100 for token, trained in zip(tokens, mask, strict=True)]
    table = {"input_ids": [tokens, tokens[:-1]], "labels": [[*labels[1:], -100], labels[:-1]]}
    pq.write_table(pa.table(table), tmp_path / "data.parquet")
    found = faithful.audit(tmp_path / "data.parquet").examples
    assert [each.row for each in found["labels_differ"]] == [0]


def test_definitions_of_tools_before_the_last_question_are_context(later: SmallModel, tmp_path: Path) -> None:
    header = later.ids("<|start|>tools\n")

    def definitions(tokens: list[int]) -> int:
        places = range(1, len(tokens) - len(header))
        return next((place for place in places if tokens[place : place + len(header)] == header), 0)

    rows = [row for row, (tokens, _) in enumerate(later.documents) if definitions(tokens)]
    assert rows
    assert later.audit(write_masks(tmp_path / "a.parquet", later.documents)).found == {}
    documents = list(later.documents)
    tokens, mask = documents[rows[0]]
    place = definitions(tokens)
    for wrong in (place, place + len(header), tokens.index(later.ids("<|end|>")[0], place)):
        changed = [*mask[:wrong], 1, *mask[wrong + 1 :]]
        documents[rows[0]] = (tokens, changed)
        data = write_masks(tmp_path / "b.parquet", documents)
        assert later.audit(data).found == {"context_trained": 1}
