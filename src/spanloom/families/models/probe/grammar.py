"""A model's template → the tokens of the frames of its messages, found by rendering.

In: a model, the form and variables in which its template takes messages. Out: `Grammar`. Raises ModelError if no
specific token begins the assistant's messages.

Small conversations with known words are rendered. The tokens between the words are the frame:

    … Zanzibar <|im_end|> \\n <|im_start|> assistant \\n Quito …     header: <|im_start|> assistant \\n

A header begins after the last token that closes a message; it is the common part of all such places.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spanloom.errors import SourceError
from spanloom.families.models.conversation import Conversation, Message
from spanloom.families.models.errors import RefusedError
from spanloom.families.models.form import Form
from spanloom.families.models.model import Model
from spanloom.families.models.prove.run import Rendered
from spanloom.law.grammar import ASSISTANT, ROLES, SYSTEM, Grammar, Header, Ids, common_prefix

_TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Finds things.",
            "parameters": {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]},
        },
    }
    for name in ("find_place", "look_up")
)
_CALL_IDS = {"find_place": "call00001", "look_up": "id2222222"}
_WORDS = ("Zanzibar", "Quito", "Ouagadougou", "Reykjavik", "Montevideo", "Kathmandu", "Ljubljana")


def _user(word: str) -> Message:
    return {"role": "user", "content": word}


def _answer(word: str, thought: str | None = None) -> Message:
    return {"role": "assistant", "content": word, **({"reasoning": thought} if thought else {})}


def _call(word: str, tool: str) -> Message:
    call = {"id": _CALL_IDS[tool], "name": tool, "arguments": {"words": word}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _result(word: str, tool: str) -> Message:
    return {"role": "tool", "content": word, "tool_call_id": _CALL_IDS[tool], "name": tool}


def _conversations() -> list[tuple[Message, ...]]:
    a, b, c, d, e, f, g = _WORDS
    system: Message = {"role": "system", "content": g}
    talks: list[tuple[Message, ...]] = [
        (_user(a), _answer(b), _user(c), _answer(d)),
        (system, _user(a), _answer(b), _user(c), _answer(d)),
        (_user(a), _answer(b, e), _user(c), _answer(d, f)),
        (_user(a), _answer(b), system, _user(c), _answer(d)),
    ]
    with_tools = ((_user(a), _call(b, tool), _result(c, tool), _answer(d), _user(e), _answer(f)) for tool in _CALL_IDS)
    return [*talks, *with_tools]


@dataclass(frozen=True)
class _Seen:
    """A rendered text in tokens. `places`: message, first and last token of each word, in order.

    `prompt`: whether it ends with the generation prompt; `variant`: the number of the set of variables.
    """

    ids: tuple[int, ...]
    places: tuple[tuple[int, int, int], ...]
    messages: tuple[Message, ...]
    prompt: bool
    variant: int

    @property
    def tools(self) -> bool:
        return any(message["role"] == "tool" or message.get("tool_calls") for message in self.messages)


def find_grammar(model: Model, form: Form, variables: Sequence[Mapping[str, Any]]) -> Grammar:
    """The grammar of a model's template. Raises SourceError if roles have no distinct tokens."""
    seen = [view for talk in _conversations() for view in _rendered(model, talk, form, variables)]
    if not seen:
        raise SourceError(
            "the template renders no conversation of a user and an assistant", where=model.name, remedy="give another"
        )
    added = frozenset(model.tokenizer.added_texts().values())
    stops = frozenset(model.stops)
    closers = stops | _closers(seen, added)
    headers, prefills = _headers(model, seen, added, closers)
    if not any(header.role == ASSISTANT for header in headers):
        raise SourceError(
            "no token of its own begins the assistant's messages: frames cannot be read off the tokens",
            where=model.name,
            remedy="templates whose roles are plain text cannot be audited; name another with --template FILE",
        )
    special = frozenset(model.tokenizer.id_of(text) for text in model.tokenizer.special_texts()) | stops
    with_tools = _with_tools(model, form, variables)
    written = frozenset(token for view in [*seen, *with_tools] for token in view.ids if token in special)
    whole = [view for view in seen if not view.prompt]
    return Grammar(
        headers=tuple(sorted([*headers, *_definitions(with_tools, headers, added, closers)], key=_core_size)),
        stops=stops,
        closers=closers,
        closed=_closed_roles(whole, closers),
        prefills=prefills,
        reasoning=_reasoning(model, seen, headers),
        bos=_bos(model, seen),
        written=written,
        text_behind=any(_text_behind(model, view, added, closers) for view in [*whole, *with_tools]),
        stop_last=any(stops & set(view.ids[view.places[-1][2] + 1 :]) for view in whole if view.places),
    )


def _core_size(header: Header) -> int:
    return len(header.core)


def _rendered(
    model: Model, talk: tuple[Message, ...], form: Form, variables: Sequence[Mapping[str, Any]]
) -> Iterable[_Seen]:
    """Renders the conversation and each of its prompts with each set of variables that the template accepts."""
    tools = _TOOLS if any(message["role"] == "tool" for message in talk) else None
    rendered = Rendered(model, Conversation(id="frames", messages=talk, tools=tools), form)
    cuts = [(place, True) for place, message in enumerate(talk) if message["role"] == "assistant"]
    for variant, values in enumerate(variables):
        for end, prompt in [*cuts, *((place + 1, False) for place, _ in cuts)]:
            try:
                text = rendered.text(rendered.plain[:end], values, prompt=prompt)
            except RefusedError:
                continue
            yield _seen(model, text, talk[:end], prompt=prompt, variant=variant)


def _seen(model: Model, text: str, messages: tuple[Message, ...], *, prompt: bool, variant: int) -> _Seen:
    encoded = model.tokenizer.encode([text], special=False)[0]
    places = []
    at = 0
    for number, message in enumerate(messages):
        for word in _words_of(message):
            position = text.find(word, at)
            if position < 0:
                continue
            at = position + len(word)
            inside = [n for n, (begin, end) in enumerate(encoded.offsets) if begin < at and end > position]
            if inside:
                places.append((number, inside[0], inside[-1]))
    return _Seen(tuple(encoded.ids.tolist()), tuple(places), messages, prompt, variant)


def _words_of(message: Message) -> list[str]:
    words = [message[key] for key in ("reasoning", "content") if message.get(key)]
    return words + [call["arguments"]["words"] for call in message.get("tool_calls", ())]


def _closers(seen: Sequence[_Seen], added: frozenset[int]) -> frozenset[int]:
    """The first added token after the last word of each system text and of each answer before another message."""
    closers = set()
    for view in seen:
        for (number, _, last), (after, begin, _) in zip(view.places, view.places[1:], strict=False):
            role = view.messages[number]["role"]
            if after == number or role not in ("system", "assistant") or view.messages[number].get("tool_calls"):
                continue
            closers.update([token for token in view.ids[last + 1 : begin] if token in added][:1])
    return frozenset(closers)


def _headers(
    model: Model, seen: Sequence[_Seen], added: frozenset[int], closers: frozenset[int]
) -> tuple[tuple[Header, ...], dict[int, tuple[Ids, ...]]]:
    """The headers of all roles, and the tokens that prompts add after the assistant's header."""
    # By the roles before and behind, and whether there are tools: some templates write them before the last question.
    regions: dict[tuple[int, int, bool], list[tuple[Ids, bool]]] = {}
    for view in seen:
        for (number, _, last), (after, begin, _) in zip(view.places, view.places[1:], strict=False):
            if after != number:
                key = (_role(view, number), _role(view, after), view.tools)
                regions.setdefault(key, []).append((view.ids[last + 1 : begin], False))
        if view.prompt and view.places:
            number, _, last = view.places[-1]
            key = (_role(view, number), ASSISTANT, view.tools)
            regions.setdefault(key, []).append((view.ids[last + 1 :], True))
    headers: dict[tuple[int, Ids], Header] = {}
    tails: dict[Ids, set[Ids]] = {}
    supplied: dict[int, set[Ids]] = {}
    for (before, role, _), group in regions.items():
        cuts: dict[int, list[tuple[Ids, bool]]] = {}
        for ids, prompt in group:
            if cut := _behind_closer(ids, added, closers):
                # By the first token: some templates write one more under some variables.
                cuts.setdefault(cut[0], []).append((cut, prompt))
        for alike in cuts.values():
            # What begins an answer and no prompt ends in is text of the answer, such as a `<think>` that we wrote.
            if role == ASSISTANT and not any(prompt for _, prompt in alike):
                continue
            common = common_prefix([cut for cut, _ in alike])
            core, tail = _split_tail(model, common)
            if not core or core[0] not in added:
                continue
            headers.setdefault((role, core), Header(role=role, core=core, tail=tail))
            tails.setdefault(core, set()).add(tail)
            if role == ASSISTANT:
                supplied.setdefault(before, set()).update(cut[len(common) :] for cut, prompt in alike if prompt)
    # A header that ends in another one of its role says nothing more.
    kept = [
        replace(header, next_byte=_next_byte(model, header.core, tails[header.core], added))
        for header in headers.values()
        if not any(
            other is not header and other.role == header.role and header.core[-len(other.core) :] == other.core
            for other in headers.values()
        )
    ]
    prefills = {before: tuple(sorted(each, key=len)) for before, each in supplied.items()}
    return tuple(sorted(kept, key=_core_size)), prefills


def _with_tools(model: Model, form: Form, variables: Sequence[Mapping[str, Any]]) -> list[_Seen]:
    """A conversation with tools, with and without a system text; the tools in both orders."""
    talk = _conversations()[-1]
    system: Message = {"role": "system", "content": _WORDS[-1]}
    seen = []
    for messages in (talk, (system, *talk)):
        for tools in (_TOOLS, _TOOLS[::-1]):
            rendered = Rendered(model, Conversation(id="frames", messages=messages, tools=tools), form)
            for variant, values in enumerate(variables):
                try:
                    text = rendered.text(rendered.plain, values, prompt=False)
                except RefusedError:
                    continue
                seen.append(_seen(model, text, messages, prompt=False, variant=variant))
    return seen


def _definitions(
    with_tools: Sequence[_Seen], headers: Sequence[Header], added: frozenset[int], closers: frozenset[int]
) -> list[Header]:
    """The beginning of a message of tool definitions between two others. It is context.

    Some templates write them after the system text, some before the last question:

        … <|im_end|> \\n <|im_start|> tools \\n [{"name": … <|im_end|> \\n <|im_start|> user \\n …
    """
    definitions: dict[int, list[Ids]] = {}
    for view in with_tools:
        for (number, _, last), (after, begin, _) in zip(view.places, view.places[1:], strict=False):
            ids = view.ids[last + 1 : begin]
            closer = next((place for place, token in enumerate(ids) if token in closers), None)
            if after == number or closer is None:
                continue
            start = next((place for place in range(closer + 1, len(ids)) if ids[place] in added), len(ids))
            rest = ids[start:]
            own = [header.core for header in headers if header.role == _role(view, after)]
            ends = [place for core in own if (place := _last_place(rest, core)) is not None]
            if ends and min(ends) > 0 and not any(rest[: len(header.core)] == header.core for header in headers):
                definitions.setdefault(rest[0], []).append(rest[: min(ends)])
    # The name of the first tool ends what all have in common. A token before it may reach into the name.
    cores = [common[:-1] if len(common := common_prefix(alike)) > 1 else common for alike in definitions.values()]
    return [Header(role=SYSTEM, core=core, tail=()) for core in cores if core]


def _next_byte(model: Model, core: Ids, tails: set[Ids], added: frozenset[int]) -> int | None:
    """The common first byte of all tails of a core that ends in text; None if one has no tail, or tails differ."""
    if core[-1] in added:
        return None
    first = {b"".join(model.tokenizer.pieces(tail))[:1] for tail in tails}
    (byte,) = first if len(first) == 1 else (b"",)
    return byte[0] if byte else None


def _role(view: _Seen, number: int) -> int:
    return ROLES.index(view.messages[number]["role"])


def _behind_closer(ids: Ids, added: frozenset[int], closers: frozenset[int]) -> Ids:
    """The beginning of the next message: from the first added token after the last closer, or from the closer."""
    last = max((place for place, token in enumerate(ids) if token in closers), default=-1)
    begin = next((place for place in range(last + 1, len(ids)) if ids[place] in added), last)
    return ids[begin:] if begin >= 0 else ()


def _split_tail(model: Model, ids: Ids) -> tuple[Ids, Ids]:
    """Splits ids into the core and the trailing white space."""
    end = len(ids)
    while end and not model.tokenizer.token_bytes(ids[end - 1]).strip():
        end -= 1
    return ids[:end], ids[end:]


def _text_behind(model: Model, view: _Seen, added: frozenset[int], closers: frozenset[int]) -> bool:
    """Whether the template writes ordinary text behind the token that closes a message, as some do before results."""
    for (number, _, last), (after, begin, _) in zip(view.places, view.places[1:], strict=False):
        ids = view.ids[last + 1 : begin]
        closer = max((place for place, token in enumerate(ids) if token in closers), default=None)
        if after == number or closer is None:
            continue
        rest = _without_space(model, ids[closer + 1 :])
        if rest and rest[0] not in added:
            return True
    return False


def _closed_roles(whole: Sequence[_Seen], closers: frozenset[int]) -> frozenset[int]:
    """Context roles whose messages always end in a closer: in many templates those of system and user."""
    closed: set[int] = set()
    others: set[int] = set()
    for view in whole:
        for (number, _, last), (after, begin, _) in zip(view.places, view.places[1:], strict=False):
            if after != number and (role := _role(view, number)) != ASSISTANT:
                (closed if closers & set(view.ids[last + 1 : begin]) else others).add(role)
    return frozenset(closed - others)


def _reasoning(model: Model, seen: Sequence[_Seen], headers: Sequence[Header]) -> Ids | None:
    """The tokens between a header and the reasoning, if a later turn's prompt drops that reasoning."""
    cores = [header.core for header in headers if header.role == ASSISTANT]
    begins: Ids | None = None
    dropped = False
    for view in seen:
        thoughts = [number for number, message in enumerate(view.messages) if message.get("reasoning")]
        if not thoughts:
            continue
        words = [number for number, _, _ in view.places]
        if view.prompt and view.variant == 0 and len(view.messages) == 3:
            dropped = words.count(1) < 2
        if not view.prompt and len(view.messages) == 2 and words.count(1) == 2:
            first = view.places[1][1]
            for core in cores:
                at = _last_place(view.ids[:first], core)
                if at is not None:
                    begins, _ = _split_tail(model, _without_space(model, view.ids[at + len(core) : first]))
    return begins if dropped and begins else None


def _without_space(model: Model, ids: Ids) -> Ids:
    """The ids without leading white space."""
    begin = 0
    while begin < len(ids) and not model.tokenizer.token_bytes(ids[begin]).strip():
        begin += 1
    return ids[begin:]


def _last_place(ids: Ids, core: Ids) -> int | None:
    places = range(len(ids) - len(core), -1, -1)
    return next((place for place in places if ids[place : place + len(core)] == core), None)


def _bos(model: Model, seen: Sequence[_Seen]) -> int | None:
    """The BOS token that the template writes first."""
    bos = model.template.special_tokens.get("bos_token")
    number = model.tokenizer.id_of(bos) if bos else None
    return number if number is not None and all(view.ids[:1] == (number,) for view in seen) else None
