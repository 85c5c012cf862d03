"""The documents of a conversation, rendered and encoded a second time by methods B and S.

In: the model's files in the dataset, a conversation, the row of a document. Out: the tokens of the document and the
spans that they may have, or what is wrong. No code is shared with `prove`. One pattern over the completion finds the
texts; everything between them must be the same as with replaced texts. Only `tokenizers` encodes.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import MODEL_FOLDER, TOKENIZER_NAME
from spanloom.dataset.validate.json_tokenizer import CheckedEncoder
from spanloom.families.models.model import UNDATED
from spanloom.families.models.verify.adapted import as_proven
from spanloom.families.models.verify.messages import (
    CALL,
    CONTENT,
    REASONING,
    VALUE,
    PlainConversation,
    PlainMessage,
    Swap,
    control_places,
    plain_conversation,
    template_message,
    template_settings,
    template_tools,
)
from spanloom.families.models.verify.swaps import Swapped, Words, swapping, written
from spanloom.tokenizers.chat_template import ChatTemplateError, load_chat_template

ANALYSIS, FINAL, COMMENTARY = 1, 2, 3
_SETTINGS = frozenset({"reasoning_effort", "model_identity"})


class UnprovenError(Exception):
    """A run is not as its row describes it. The message says why."""


@dataclass(frozen=True, kw_only=True)
class ExpectedDocument:
    """One document, token-aligned, with EOD. `spans`: two valid lists, since white space may be of either text.
    `known`: the tokens whose spans were made again."""

    tokens: list[int]
    spans: list[list[int]]
    known: list[range]


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run. `tokens`: of F; those in [first, last) are trained. `spans`: of these, two valid lists. `end`: the number
    of tokens through the one that ends the turn, which is trained unless the message is truncated."""

    tokens: list[int]
    first: int
    last: int
    end: int
    spans: list[list[int]]


@dataclass(frozen=True)
class _Text:
    """A text in the completion: characters [start, end), its span. `lead`: white space that may precede it."""

    start: int
    end: int
    span: int
    lead: str


class Reference:
    """The model of a dataset, loaded from the dataset's own files. Raises SpanloomError for an invalid file."""

    def __init__(self, root: Path, content: Content) -> None:
        self._content, self.config = content, content.config
        folder, date = root / MODEL_FOLDER, content.config["date"]
        now = UNDATED if date is None else datetime.fromisoformat(date)
        self.template = load_chat_template(folder, now=now)
        self._tokenizer = CheckedEncoder(folder / TOKENIZER_NAME, extra="data")
        self.special = self._tokenizer.special
        added = [token.content for token in self._tokenizer.added]
        words = sorted((text for text in added if text.strip()), key=len, reverse=True)
        self._added = re.compile("|".join(map(re.escape, words)) or "(?!)")
        controls = sorted({*self.special, *self.config["stops"]} - {""}, key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, controls)) or "(?!)")
        self.names = self.template.variables() & _SETTINGS
        self._developer = "developer" in self.template.text
        self.system = self.config.get("inline_calls") is None or self._takes_system()

    def _takes_system(self) -> bool:
        told = [PlainMessage(role="system", text="Kiribati"), PlainMessage(role="user", text="Where?")]
        for variables in self.config["variables"]:
            try:
                if "Kiribati" in self.rendered(PlainConversation(told), len(told), variables):
                    return True
            except ChatTemplateError:
                continue
        return False

    def conversation(self, messages_json: bytes, schema_version: str) -> PlainConversation:
        """The conversation of a row, as it was adapted for the template."""
        return as_proven(plain_conversation(messages_json, schema_version), self.config, system=self.system)

    def document(
        self, conversation: PlainConversation, row: Mapping[str, Any], runs: Sequence[int]
    ) -> ExpectedDocument | str:
        """The document that a row describes, or why the row is wrong. `runs`: which of its runs are rendered, in
        order, with the last one."""
        try:
            return self._document(conversation, row, runs)
        except UnprovenError as fault:
            return str(fault)
        except ChatTemplateError as fault:
            return fault.what

    def _document(
        self, conversation: PlainConversation, row: Mapping[str, Any], numbers: Sequence[int]
    ) -> ExpectedDocument:
        runs = [self._run(conversation, row, number) for number in numbers]
        last = runs[-1]
        spans = [[0] * len(last.tokens)] * 2
        trained = [name in self.config["train"] for name in self._content.span_names]
        for run in runs:
            if run.tokens[: run.end] != last.tokens[: run.end]:
                raise UnprovenError("the text of a run does not begin the next run's prompt")
            for way in (0, 1):
                spans[way] = list(spans[way])
                spans[way][run.first : run.last] = [span if trained[span] else 0 for span in run.spans[way]]
        eod = self._content.tokenizer.eod
        known = [range(len(last.tokens) + 1)]
        if len(numbers) < len(row["run"]):
            known = [*(range(run.first - 1, run.end) for run in runs), range(last.end, len(last.tokens) + 1)]
        return ExpectedDocument(tokens=[*last.tokens, eod], spans=[[*way, 0] for way in spans], known=known)

    def _run(self, conversation: PlainConversation, row: Mapping[str, Any], number: int) -> _Run:
        place = row["run"][number]
        if place not in conversation.runs():
            raise UnprovenError(f"message {place} is not to be trained")
        variables = json.loads(row["variables"][number])
        own = template_settings(conversation, self.names)
        if all({**values, **own} != variables for values in self.config["variables"]):
            raise UnprovenError(f"the template variables {variables} are not in the manifest")
        as_text = self.config.get("control_texts") == "text"
        eod = self.config["eod"]["text"]
        for text, where in control_places(conversation, place):
            if not as_text and eod in text:
                raise UnprovenError(f"the EOD {eod!r} is in {where}, and so in the middle of the document")
        prompt = self.rendered(conversation, place, variables, prompt=True)
        message = conversation.messages[place]
        if (row["turn_end"][number] is None) != message.truncated:
            raise UnprovenError(f"message {place} is {'' if message.truncated else 'not '}truncated")
        if row["boundary"][number] == "declared":
            return self._declared(conversation, place, variables, prompt)
        whole = self.rendered(conversation, place + 1, variables)
        if not whole.startswith(prompt):
            raise UnprovenError(f"the text of message {place} does not begin with its prompt")
        texts, tail, names = self.texts(conversation, place, variables, prompt, whole)
        ended = len(whole) - len(tail)
        boundary, stop = row["boundary"][number], row["turn_end"][number]
        plain = self.plain(conversation, place, variables)
        ids, offsets, first = self.encoded(prompt, whole, boundary, plain)
        end = self.end(ids, offsets, first, ended)
        if end is None:
            if stop is None:
                stop = next(self._markers(conversation, place, variables, tail, names=names), "")
            else:
                self.check_marker(conversation, place, variables, tail, stop, names=names)
            whole += stop
            ids, offsets, first = self.encoded(prompt, whole, boundary, plain and plain + stop)
            end = self.end(ids, offsets, first, ended)
            ids, offsets = ids[:end], offsets[:end]
        if end is None or (stop is not None and self._tokenizer.loaded.id_to_token(ids[end - 1]) != stop):
            raise UnprovenError(f"the turn of message {place} does not end in {stop!r}")
        last = _last_trained(message, offsets, first, end, ended)
        spans = [self._spans(whole, texts, offsets[first:last], way=way) for way in (0, 1)]
        return _Run(tokens=ids, first=first, last=last, end=end, spans=spans)

    def rendered(
        self,
        conversation: PlainConversation,
        count: int,
        variables: Mapping[str, Any],
        *,
        prompt: bool = False,
        swap: Swap | None = None,
        swapped: Collection[int] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        names: bool = True,
        more: Sequence[PlainMessage] = (),
        now: datetime | None = None,
    ) -> str:
        """Renders the first `count` messages and `more`. `swap` replaces the texts of the messages `swapped`, by
        default of the last of `count`. `tools` and `now` override the defaults. Raises ChatTemplateError."""
        places = (count - 1,) if swapped is None else swapped
        messages = [
            template_message(
                message,
                self.config["form"],
                developer=self._developer,
                swap=swap if at in places else None,
                names=names,
            )
            for at, message in enumerate([*conversation.messages[:count], *more])
        ]
        template = self.template if now is None else load_chat_template(self._tokenizer.place.parent, now=now)
        described = template_tools(conversation) if tools is None else tools
        return template.render(messages, tools=described, add_generation_prompt=prompt, **variables)

    def texts(
        self, conversation: PlainConversation, place: int, variables: Mapping[str, Any], prompt: str, whole: str
    ) -> tuple[list[_Text], str, bool]:
        """Where the texts of a message are in F, the rest of F after the last one, and whether names of functions and
        arguments were replaced too. Raises UnprovenError."""
        message, fault = conversation.messages[place], ""
        for names in (True, False):
            words: Words = {}
            try:
                other = self.rendered(conversation, place + 1, variables, swap=swapping(words, whole), names=names)
            except ChatTemplateError as refused:
                fault = refused.what
                continue
            matched = self._matched(other, prompt, whole, words)
            if matched is not None and (names or self._has_names(message, whole[len(prompt) :])):
                groups, tail = matched
                return self._named(message, groups), tail, names
            fault = "with other texts, the text around them changes"
        raise UnprovenError(f"message {place}: {fault}")

    @staticmethod
    def _has_names(message: PlainMessage, completion: str) -> bool:
        """Whether the completion has the name of each call; for names that were not replaced."""
        names = [call["name"] for call in message.calls]
        return all(any(completion.count(form) >= names.count(name) for form in written(name)) for name in names)

    @staticmethod
    def _matched(
        other: str, prompt: str, whole: str, words: Words
    ) -> tuple[list[tuple[Swapped, int, int]], str] | None:
        """Text, begin and end of each word in F, and the rest of F; None if `other` with texts put back is not F."""
        if not other.startswith(prompt):
            return None
        rest = other[len(prompt) :]
        pieces = re.split("(" + "|".join(map(re.escape, words)) + ")", rest) if words else [rest]
        pattern = "".join(
            "(" + "|".join(map(re.escape, words[piece].ways())) + ")" if at % 2 else re.escape(piece)
            for at, piece in enumerate(pieces)
        )
        match = re.compile(pattern, re.DOTALL).fullmatch(whole, len(prompt))
        once = [piece for piece in pieces[1::2] if words[piece].kind != VALUE]
        if match is None or set(pieces[1::2]) != set(words) or len(once) != len(set(once)):
            return None
        groups = [(words[piece], match.start(at + 1), match.end(at + 1)) for at, piece in enumerate(pieces[1::2])]
        return groups, pieces[-1] if groups else rest

    @staticmethod
    def _named(message: PlainMessage, groups: Sequence[tuple[Swapped, int, int]]) -> list[_Text]:
        """The span of each text: reasoning, the answer, or what belongs to calls."""
        answer = COMMENTARY if message.calls or message.spoken else FINAL
        spans = {REASONING: ANALYSIS, CONTENT: answer, CALL: COMMENTARY}
        return [_Text(start, end, spans[each.kind], each.lead) for each, start, end in groups if each.kind != VALUE]

    def plain(self, conversation: PlainConversation, place: int, variables: Mapping[str, Any]) -> str | None:
        """F with crosses in place of the control tokens in texts before the message; None if these stay tokens."""
        if self.config.get("control_texts") != "text":
            return None
        if not any(self._controls.search(text) for text, _ in control_places(conversation, place)):
            return None
        crossed = conversation.crossed(lambda text: self._controls.sub(lambda match: "x" * len(match[0]), text), place)
        values = json.loads(self._controls.sub(lambda match: "x" * len(match[0]), json.dumps(dict(variables))))
        return self.rendered(crossed, place + 1, values)

    def encoded(
        self, prompt: str, whole: str, boundary: str, plain: str | None = None
    ) -> tuple[list[int], list[tuple[int, int]], int]:
        """Ids and offsets of F, and how many ids P has. Raises UnprovenError if the boundary is different.

        `plain`: F with crosses in place of control tokens that are text.
        """
        if plain is not None and len(plain) != len(whole):
            raise UnprovenError("with crosses in place of control tokens, the text around them changes")
        ids_of_prompt, offsets_of_prompt = self._ids(prompt, plain and plain[: len(prompt)])
        ids, offsets = self._ids(whole, plain)
        first = len(ids_of_prompt)
        if (ids[:first] == ids_of_prompt) != (boundary == "joined"):
            raise UnprovenError(f"the boundary of a run is not {boundary}")
        if boundary != "joined":
            rest, offsets_of_rest = self._ids(whole[len(prompt) :])
            ids = [*ids_of_prompt, *rest]
            moved = [(begin + len(prompt), end + len(prompt)) for begin, end in offsets_of_rest]
            offsets = [*offsets_of_prompt, *moved]
        return ids, offsets, first

    def tokens_of(self, text: str) -> int:
        """How many tokens a text has."""
        return len(self._ids(text)[0])

    def _ids(self, text: str, plain: str | None = None) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids and offsets of a text. With `plain`, only what is a control token there is one."""
        controls = None if plain is None else [match.span() for match in self._controls.finditer(plain)]
        return self._tokenizer.encode(text, controls)

    def end(self, ids: Sequence[int], offsets: Sequence[tuple[int, int]], first: int, ended: int) -> int | None:
        """The number of tokens through the first stop token after the texts; None without one."""
        stops = set(self.config["stops"].values())
        places = (at for at in range(first, len(ids)) if ids[at] in stops and offsets[at][0] >= ended)
        return next((at + 1 for at in places), None)

    def check_marker(
        self,
        conversation: PlainConversation,
        place: int,
        variables: Mapping[str, Any],
        tail: str,
        stop: str,
        *,
        names: bool,
    ) -> None:
        """Raises UnprovenError unless the next speaker's marker `stop` follows F when a message is added."""
        if stop not in self._markers(conversation, place, variables, tail, names=names):
            raise UnprovenError(f"no message behind message {place} begins with {stop!r}")

    def _markers(
        self, conversation: PlainConversation, place: int, variables: Mapping[str, Any], tail: str, *, names: bool
    ) -> Iterator[str]:
        """The stop tokens that follow F when a message is added: the next one, then one that may follow any."""
        calls = conversation.messages[place].calls
        answered = {"name": calls[0]["name"]} if calls else {}
        if calls and calls[0]["id"] is not None:
            answered["tool_call_id"] = calls[0]["id"]
        follows = conversation.messages[place + 1 : place + 2]
        following = [*follows, PlainMessage(role="tool" if calls else "user", text="Yes.", names=answered)]
        words: Words = {}
        for message in following:
            words.clear()
            try:
                longer = self.rendered(
                    conversation, place + 1, variables, swap=swapping(words, ""), names=names, more=[message]
                )
            except ChatTemplateError:
                continue
            ends = [match.end() for word in words for match in re.finditer(re.escape(word), longer)]
            yield from (stop for stop in self.config["stops"] if ends and longer.startswith(tail + stop, max(ends)))

    def _spans(self, whole: str, texts: Sequence[_Text], offsets: Sequence[tuple[int, int]], *, way: int) -> list[int]:
        """The span of each token, by its first character. `way` 1: white space before a text belongs to that text."""
        if not texts:
            return [FINAL] * len(offsets)
        begins = []
        for before, text in pairwise(texts):
            closed = self._added.search(whole, before.end, text.start)
            start = text.start
            if way and text.lead and whole.endswith(text.lead, before.end, start):
                start -= len(text.lead)
            begins.append(closed.end() if closed else start)
        return [texts[sum(begin <= offset[0] for begin in begins)].span for offset in offsets]

    def _declared(self, conversation: PlainConversation, place: int, variables: Mapping[str, Any], prompt: str) -> _Run:
        """The run with the completion that the user declared."""
        message = conversation.messages[place]
        stops = self.config["stops"]
        eos = self.template.special_tokens.get("eos_token")
        closing = eos if eos is not None and eos in stops else min(stops, key=lambda text: int(stops[text]))
        texts: list[_Text] = []
        whole = prompt
        spoken = message.spoken or message.calls
        for piece in re.split(r"(\{\w+\})", self.config["emission"]):
            if piece == "{calls}":
                behind, inside = self._spelled(conversation, place, variables) if message.calls else ("", [])
                texts += (replace(text, start=text.start + len(whole), end=text.end + len(whole)) for text in inside)
                whole += behind
                continue
            written = {
                "{reasoning}": ("\n\n".join(message.reasoning), ANALYSIS),
                "{content}": (message.text, COMMENTARY if spoken else FINAL),
                "{eos}": (closing, 0),
            }.get(piece, (piece, 0))
            if written[1] and written[0]:
                texts.append(_Text(len(whole), len(whole) + len(written[0]), written[1], ""))
            whole += written[0]
        plain = self.plain(conversation, place, variables)
        if plain is not None:
            plain = plain[: len(prompt)] + whole[len(prompt) :]
        try:
            ids, offsets, first = self.encoded(prompt, whole, "joined", plain)
        except UnprovenError:
            ids, offsets, first = self.encoded(prompt, whole, "served", plain)
        ended = texts[-1].end if texts else len(prompt)
        last = _last_trained(message, offsets, first, len(ids), ended)
        spans = self._spans(whole, texts, offsets[first:last], way=0)
        return _Run(tokens=ids, first=first, last=last, end=len(ids), spans=[spans, spans])

    def _spelled(
        self, conversation: PlainConversation, place: int, variables: Mapping[str, Any]
    ) -> tuple[str, list[_Text]]:
        """What the template writes behind the content of a message, up to the stop token behind its calls, and where
        the texts of the calls are in it. Raises UnprovenError."""
        message = conversation.messages[place]
        told = replace(message, reasoning=[], text=message.text or "0")
        shorter = replace(conversation, messages=[*conversation.messages[:place], told])
        whole = self.rendered(shorter, place + 1, variables)
        for names in (True, False):
            words: Words = {}
            other = self.rendered(shorter, place + 1, variables, swap=swapping(words, whole), names=names)
            matched = self._matched(other, "", whole, words)
            if matched is not None:
                break
        else:
            raise UnprovenError(f"message {place}: with other texts, the text around its calls changes")
        said = next((end for each, _, end in matched[0] if each.kind == CONTENT), -1)
        space = told.text[len(told.text.rstrip()) :]
        said += len(space) if whole.startswith(space, said) else 0
        behind = [(each, start - said, end - said) for each, start, end in matched[0] if start >= said]
        stops = [at for stop in self.config["stops"] if (at := whole.find(stop, said + behind[-1][2])) >= 0]
        texts = [_Text(start, end, COMMENTARY, each.lead) for each, start, end in behind if each.kind != VALUE]
        return whole[said : min(stops)], texts


def _last_trained(message: PlainMessage, offsets: Sequence[tuple[int, int]], first: int, end: int, ended: int) -> int:
    """The number of tokens through the last trained one. Behind a truncated text nothing is trained; behind the calls
    of a truncated message all but the stop token."""
    if not message.truncated:
        return end
    if message.calls:
        return end - 1
    return next((at for at in range(first, end) if offsets[at][1] > ended), end)
