"""Faults as tools make them, seeded into proven documents of a model's conversations.

In: a model, records of conversations. Out: documents without a fault, and for each kind of fault documents that have
it. What is changed is found in the text of a document by the texts of its messages, not by tokens of frames.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spanloom.families.models.conversation import Conversation, read_conversation
from spanloom.families.models.errors import RefusedError
from spanloom.families.models.model import Model
from spanloom.families.models.prove.conversation import Proven, Proving, prove_conversation
from spanloom.families.models.prove.documents import Document
from spanloom.families.models.prove.run import Rendered
from support.audited import Document as Arrays

WORDS = [
    *("tide", "lantern", "harbor", "copper", "violin", "meadow", "thunder"),
    *("pepper", "castle", "window", "silver", "garden", "planet", "rocket"),
]


def conversation(seed: int) -> dict[str, Any]:
    """A record whose texts are unlike each other: each has a number of its own."""
    drawn = random.Random(seed)
    numbers = iter(range(100, 1000))

    def text(begin: str) -> str:
        return f"{begin} {next(numbers)}{seed} {' '.join(drawn.choices(WORDS, k=drawn.randint(2, 6)))}."

    tools = seed % 3 == 1
    messages: list[dict[str, Any]] = [{"role": "system", "content": text("Obey rule")}] if seed % 2 else []
    call = 0
    for _ in range(drawn.choice([1, 2, 2, 3])):
        messages.append({"role": "user", "content": text("What of")})
        if tools and drawn.random() < 0.7:
            call += 1
            function = {"name": "look_up", "arguments": {"words": text("about")}}
            thought = {"reasoning_content": text("I must search")} if seed % 4 else {}
            calls = [{"id": f"call{call:05d}", "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": "", **thought, "tool_calls": calls})
            messages.append(
                {"role": "tool", "content": text("Found"), "tool_call_id": f"call{call:05d}", "name": "look_up"}
            )
        thought = {"reasoning_content": text("Consider that")} if seed % 4 > 1 else {}
        messages.append({"role": "assistant", "content": text("It is"), **thought})
        if seed % 7 == 6:
            messages.append({"role": "system", "content": text("Now obey rule")})
            messages.append({"role": "user", "content": text("And what of")})
            messages.append({"role": "assistant", "content": text("That is")})
    parameters = {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]}
    tool = {"type": "function", "function": {"name": "look_up", "description": "Finds.", "parameters": parameters}}
    return {"id": f"c{seed}", "messages": messages, **({"tools": [tool]} if tools else {})}


@dataclass(frozen=True)
class Seeding:
    """A proven document with its conversation. `starts`: the first byte of each token, and the end, int64 [T + 1]."""

    model: Model
    proving: Proving
    conversation: Conversation
    document: Document

    @property
    def tokens(self) -> list[int]:
        return self.document.tokens.tolist()

    @property
    def mask(self) -> list[int]:
        return self.document.mask.tolist()

    @property
    def text(self) -> bytes:
        return b"".join(map(self.model.tokenizer.token_bytes, self.tokens))

    def stretches(self) -> list[tuple[int, int]]:
        """The trained stretches of tokens, [first, end)."""
        edges = np.flatnonzero(np.diff([0, *self.mask, 0]))
        return [(first, end) for first, end in edges.reshape(-1, 2).tolist()]

    def tokens_of(self, text: str, after: int = 0) -> range:
        """The tokens that hold a text; empty if it is not there."""
        sizes = [len(self.model.tokenizer.token_bytes(token)) for token in self.tokens]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        at = self.text.find(text.strip().encode(), after)
        if at < 0:
            return range(0)
        first = int(np.searchsorted(starts, at, side="right")) - 1
        return range(first, int(np.searchsorted(starts, at + len(text.strip().encode()))))

    def text_of(self, place: int) -> bytes:
        return self.model.tokenizer.token_bytes(self.tokens[place])

    def texts(self, role: str) -> Iterator[range]:
        """The tokens of the texts of a role, in order."""
        for message in self.conversation.messages:
            if message["role"] == role and (places := self.tokens_of(message["content"] or "")) and message["content"]:
                yield places

    def masked(self, places: Sequence[int] | range, value: int) -> Arrays | None:
        mask = self.mask
        if not places or all(mask[place] == value for place in places):
            return None
        for place in places:
            mask[place] = value
        return self.tokens, mask

    def rewritten(self, old: bytes, new: bytes, at: int) -> Arrays | None:
        """The document with other bytes at a place of its text, encoded anew; trained is what was trained."""
        text = self.text
        assert text[at : at + len(old)] == old
        changed = (text[:at] + new + text[at + len(old) :]).decode()
        pieces = self.model.tokenizer.encode([changed], special=False)[0].ids.tolist()
        sizes = [len(self.model.tokenizer.token_bytes(token)) for token in self.tokens]
        trained = np.repeat(np.array(self.mask, np.uint8), sizes)
        inside = trained[at : at + 1].tolist() or [0]
        trained = np.concatenate([trained[:at], np.full(len(new), inside[0]), trained[at + len(old) :]])
        mask, place = [], 0
        for token in pieces:
            mask.append(int(trained[place]) if place < trained.size else 0)
            place += len(self.model.tokenizer.token_bytes(token))
        return (pieces, mask) if pieces != self.tokens else None


Fault = Callable[[Seeding], Arrays | None]
FAULTS: dict[str, Fault] = {}


def fault(make: Fault) -> Fault:
    FAULTS[make.__name__.replace("_", " ")] = make
    return make


def _drawn(seeding: Seeding) -> random.Random:
    return random.Random(len(seeding.tokens))


@fault
def user_trained(s: Seeding) -> Arrays | None:
    return s.masked(list(s.texts("user"))[-1], 1)


@fault
def system_trained(s: Seeding) -> Arrays | None:
    return next((s.masked(places, 1) for places in s.texts("system")), None)


@fault
def tool_trained(s: Seeding) -> Arrays | None:
    return next((s.masked(places, 1) for places in s.texts("tool")), None)


@fault
def prompt_trained(s: Seeding) -> Arrays | None:
    """All from the text of the last question to the answer."""
    first = s.stretches()[-1][0]
    ends = [places.stop for role in ("user", "tool") for places in s.texts(role) if places.stop < first]
    return s.masked(range(max(ends) + 1, first), 1) if ends else None


@fault
def header_trained(s: Seeding) -> Arrays | None:
    first = s.stretches()[0][0]
    return s.masked([first - 1], 1)


@fault
def stop_untrained(s: Seeding) -> Arrays | None:
    return s.masked([_drawn(s).choice(s.stretches())[1] - 1], 0)


@fault
def stop_doubled(s: Seeding) -> Arrays | None:
    end = _drawn(s).choice(s.stretches())[1]
    tokens, mask = s.tokens, s.mask
    return [*tokens[:end], tokens[end - 1], *tokens[end:]], [*mask[:end], 1, *mask[end:]]


@fault
def stop_another(s: Seeding) -> Arrays | None:
    """EOS or another control token in its place."""
    end = s.stretches()[-1][1]
    special = [s.model.tokenizer.id_of(text) for text in sorted(s.model.tokenizer.special_texts())]
    others = [token for token in special if token is not None and token not in s.model.stops]
    if not others:
        return None
    tokens = s.tokens
    tokens[end - 1] = _drawn(s).choice(others)
    return tokens, s.mask


@fault
def answer_untrained(s: Seeding) -> Arrays | None:
    stretches = s.stretches()
    return s.masked(range(*_drawn(s).choice(stretches)), 0) if len(stretches) > 1 else None


@fault
def last_alone_trained(s: Seeding) -> Arrays | None:
    stretches = s.stretches()
    places = [place for stretch in stretches[:-1] for place in range(*stretch)]
    return s.masked(places, 0) if places else None


@fault
def bos_twice(s: Seeding) -> Arrays | None:
    bos = s.model.template.special_tokens.get("bos_token")
    token = s.model.tokenizer.id_of(bos) if bos else None
    return ([token, *s.tokens], [0, *s.mask]) if token is not None and s.tokens[0] == token else None


@fault
def mask_ahead(s: Seeding) -> Arrays | None:
    return s.tokens, [*s.mask[1:], 0]


@fault
def mask_behind(s: Seeding) -> Arrays | None:
    return s.tokens, [0, *s.mask[:-1]]


@fault
def cut_in_answer(s: Seeding) -> Arrays | None:
    first, end = s.stretches()[-1]
    at = _drawn(s).randrange(first + 1, end - 1) if end - first > 3 else 0
    return (s.tokens[:at], s.mask[:at]) if at else None


@fault
def cut_in_question(s: Seeding) -> Arrays | None:
    """Where an answer is before it."""
    for places in reversed(list(s.texts("user"))):
        if any(s.mask[: places.start]) and len(places) > 2:
            at = places.start + len(places) // 2
            return s.tokens[:at], s.mask[:at]
    return None


@fault
def trained_behind_stop(s: Seeding) -> Arrays | None:
    """The line feed behind each stop token, where the template writes one."""
    places = [end for _, end in s.stretches() if end < len(s.tokens) and not s.text_of(end).strip()]
    return s.masked(places, 1) if places else None


def _thought(s: Seeding) -> tuple[bytes, bytes] | None:
    """What the template writes before and behind the reasoning of an answer, up to its text."""
    words, said = "because of ravens", "It is Quito"
    messages = ({"role": "user", "content": "Why?"}, {"role": "assistant", "content": said, "reasoning": words})
    rendered = Rendered(s.model, Conversation(id="thought", messages=messages, tools=None), s.proving.form)
    values = s.proving.variables[0]
    prompt = rendered.text(rendered.plain[:1], values, prompt=True)
    text = rendered.text(rendered.plain, values, prompt=False)
    at = text.find(words)
    if at < 0 or not text.startswith(prompt):
        return None
    return text[len(prompt) : at].encode(), text[at + len(words) : text.find(said)].encode()


def _earlier(s: Seeding) -> Iterator[tuple[int, dict[str, Any]]]:
    """The place in the text of each answer before the last trained one, with its message."""
    last = s.document.runs[-1].run
    for number, message in enumerate(s.conversation.messages[:last]):
        if message["role"] == "assistant" and message.get("content"):
            at = s.text.find(message["content"].strip().encode())
            if at >= 0 and number != last:
                yield at, dict(message)


@fault
def thought_kept(s: Seeding) -> Arrays | None:
    """The reasoning of an earlier answer, where the template leaves it out."""
    around = _thought(s)
    if around is None or not around[0].strip():
        return None
    for at, message in _earlier(s):
        thought = (message.get("reasoning") or "").strip().encode()
        if thought and thought not in s.text:
            return s.rewritten(b"", around[0] + thought + around[1], at)
    return None


@fault
def thought_missing(s: Seeding) -> Arrays | None:
    """An earlier answer without its reasoning, where the template shows it."""
    around = _thought(s)
    if around is None or not around[0].strip():
        return None
    for at, message in _earlier(s):
        thought = around[0] + (message.get("reasoning") or "").strip().encode() + around[1]
        if message.get("reasoning") and s.text[:at].endswith(thought):
            return s.rewritten(thought, b"", at - len(thought))
    return None


@fault
def beginning_of_answer_missing(s: Seeding) -> Arrays | None:
    """An earlier answer without the control tokens that the template writes between its header and its text."""
    for at, message in _earlier(s):
        if message.get("reasoning"):
            continue
        for text in ("<think>\n\n</think>\n\n", "<think></think>\n", "<think></think>", "</think>"):
            if s.text[:at].endswith(text.encode()):
                return s.rewritten(text.encode(), b"", at - len(text.encode()))
    return None


@fault
def thought_of_call_missing(s: Seeding) -> Arrays | None:
    """An earlier call without its reasoning, where the template shows it."""
    around = _thought(s)
    if around is None or not around[0].strip():
        return None
    for message in s.conversation.messages[: s.document.runs[-1].run]:
        thought = (message.get("reasoning") or "").strip().encode()
        if message.get("tool_calls") and thought and (at := s.text.find(around[0].lstrip() + thought)) >= 0:
            whole = around[0].lstrip() + thought + around[1].rstrip()
            return s.rewritten(whole, b"", at) if s.text[at : at + len(whole)] == whole else None
    return None


@fault
def bos_missing(s: Seeding) -> Arrays | None:
    bos = s.model.template.special_tokens.get("bos_token")
    token = s.model.tokenizer.id_of(bos) if bos else None
    return (s.tokens[1:], s.mask[1:]) if token is not None and s.tokens[0] == token else None


@fault
def empty_thought_trained(s: Seeding) -> Arrays | None:
    """What the generation prompt holds of a thought that is switched off."""
    first = s.stretches()[-1][0]
    begin = first
    while begin > 0 and s.tokens[begin - 1] not in s.model.tokenizer.added_texts().values():
        begin -= 1
    names = {number: text for text, number in s.model.tokenizer.added_texts().items()}
    if begin == 0 or "think" not in names[s.tokens[begin - 1]]:
        return None
    opening = begin - 1
    if names[s.tokens[opening]].startswith("</"):
        while opening > 0 and s.tokens[opening - 1] in names and "think" in names[s.tokens[opening - 1]]:
            opening -= 1
        before = [place for place in range(max(0, opening - 2), opening) if "think" in names.get(s.tokens[place], "")]
        opening = min([opening, *before])
    return s.masked(range(opening, first), 1)


@fault
def tools_as_text(s: Seeding) -> Arrays | None:
    """The schema of tools as JSON in the first message, in place of what the template makes of it."""
    if not s.conversation.tools:
        return None
    plain = Conversation(id="text", messages=s.conversation.messages, tools=None)
    outcome = prove_conversation(s.model, plain, s.proving)
    if not isinstance(outcome, Proven):
        return None
    schema = json.dumps(s.conversation.tools).encode()
    made = Seeding(s.model, s.proving, s.conversation, outcome.documents[-1])
    first = min((places.start for role in ("system", "user") for places in made.texts(role)), default=0)
    at = len(b"".join(map(s.model.tokenizer.token_bytes, made.tokens[:first])))
    return made.rewritten(b"", schema + b"\n\n", at)


QUESTION = {"role": "user", "content": "And what is it for?"}


def _with_question(s: Seeding) -> Arrays | None:
    """The document with another question behind its last answer."""
    messages = (*s.conversation.messages, QUESTION)
    rendered = Rendered(
        s.model, Conversation(id="asked", messages=messages, tools=s.conversation.tools), s.proving.form
    )
    for values in s.proving.variables:
        try:
            text = rendered.text(rendered.plain, values, prompt=False)
        except RefusedError:
            continue
        tokens = s.model.tokenizer.encode([text], special=False)[0].ids.tolist()
        if tokens[: len(s.tokens)] == s.tokens:
            return tokens, [*s.mask, *[0] * (len(tokens) - len(s.tokens))]
    return None


def seeded(model: Model, proving: Proving, count: int) -> tuple[list[Arrays], list[tuple[str, Arrays]]]:
    """Documents without a fault of so many conversations, and those with one, each with its kind."""
    clean: list[Arrays] = []
    faulty: list[tuple[str, Arrays]] = []
    for seed in range(count):
        read = read_conversation(conversation(seed), name="seeded")
        outcome = prove_conversation(model, read, proving)
        if not isinstance(outcome, Proven):
            continue
        for document in outcome.documents:
            seeding = Seeding(model, proving, read, document)
            clean.append((seeding.tokens, seeding.mask))
            if document is outcome.documents[-1] and (asked := _with_question(seeding)) is not None:
                clean.append(asked)
            for name, make in FAULTS.items():
                if (made := make(seeding)) is not None:
                    faulty.append((name, made))
    return clean, faulty
