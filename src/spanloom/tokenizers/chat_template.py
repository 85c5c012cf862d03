"""Chat templates: messages → one text, as transformers' `apply_chat_template` makes it, but with limits.

In: the template of a `.jinja` file, a `tokenizer_config.json` or a tokenizer's folder; messages and tools as plain JSON
values. Out: text. A template is untrusted code. It runs in a process of its own (`rendering/`), in Jinja's sandbox,
which blocks private attributes and changes to its input. A template that reaches a limit of time, memory or output
stops the command.

As in transformers (5.23): `trim_blocks`, `lstrip_blocks`, `raise_exception`, `tojson` without ASCII or HTML escapes,
the tags `break`, `continue` and `generation`, the special tokens as variables. Unlike transformers: null values of a
message are left out, or templates would write `None`; `strftime_now` is defined only when a time is given, since the
same input must give the same text; `random` and `lipsum` are missing for the same reason.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from spanloom.errors import SpanloomError
from spanloom.storage import read_object, read_small
from spanloom.text import is_utf8
from spanloom.tokenizers.json_limits import LONGEST_TOKEN
from spanloom.tokenizers.rendering import wire
from spanloom.tokenizers.rendering.process import Source, TemplateProcess, shared_process
from spanloom.tokenizers.rendering.wire import BEGIN_GENERATION, END_GENERATION, Reply
from spanloom.tokenizers.traced_text import TracedText

MAX_TEMPLATE = 1_000_000
"""Characters of a template."""

RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt", "self"})
"""What every template is given, not by variables."""


class ChatTemplateError(SpanloomError):
    """A chat template is missing, is invalid Jinja, or raised an error."""


class TemplateRaisedError(ChatTemplateError):
    """A chat template called `raise_exception`."""


_GENERATION = re.compile(r"{%[-+]?\s*generation\s*[-+]?%}")
_REMEDY = "fix the template, or leave such messages out"
_WHAT = {
    wire.FAILED: "the template failed",
    wire.UNREAD: "the messages cannot be passed on",
    wire.FORBIDDEN: "the template asks for what the sandbox forbids",
    wire.RAISED: "the template refuses the messages",
}


@dataclass(frozen=True)
class Rendering:
    """What is rendered: messages, tools, template variables; `prompt`: with what makes the model answer; `traced`: with
    the marks of texts."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    variables: Mapping[str, Any]
    prompt: bool = False
    traced: bool = False


class ChatTemplate:
    """A chat template. `text`: its source; `special_tokens`: `bos_token` and others, passed as variables.

    `now`: the time of `strftime_now`. Without it the function is undefined, and templates use their fixed date.
    `process`: where it runs; by default the one of this process.

    Raises ChatTemplateError for a template that cannot be compiled. This and all methods raise TemplateLimitError if
    the template reaches a limit.
    """

    def __init__(
        self,
        text: str,
        *,
        special_tokens: Mapping[str, str] | None = None,
        now: datetime | None = None,
        where: str | None = None,
        process: TemplateProcess | None = None,
    ) -> None:
        self.text, self.special_tokens, self.where = text, dict(special_tokens or {}), where
        self.now = now
        if len(text) > MAX_TEMPLATE:
            raise ChatTemplateError(
                f"the template has {len(text):,} characters, more than {MAX_TEMPLATE:,}",
                where=where,
                remedy="give a file with only the template",
            )
        self._source, self._process = Source(text, now, where), process or shared_process()
        compiled = self._process.compile(self._source)
        if compiled.kind != wire.DONE:
            raise ChatTemplateError(compiled.text, where=where, remedy="fix it")

    @cached_property
    def marks_generation(self) -> bool:
        """Whether the template has the tag `{% generation %}`."""
        return bool(_GENERATION.search(self.text))

    def variables(self) -> frozenset[str]:
        """The names that the template reads and does not set itself."""
        return frozenset(self._process.variables(self._source))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """The text of a conversation. Raises ChatTemplateError if the template raises."""
        return self._rendered(wire.PLAIN, Rendering(messages, tools, variables, prompt=add_generation_prompt)).text

    def render_traced(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """Like `render`, for values with texts of `traced_text`: the result records which characters came from them."""
        given = Rendering(messages, tools, variables, prompt=add_generation_prompt)
        return _traced(self._rendered(wire.TRACED, given))

    def render_all(self, renderings: Sequence[Rendering]) -> list[str | ChatTemplateError]:
        """The text of each, or its error. Takes less than one call for each of them."""
        ways = [(wire.TRACED if given.traced else wire.PLAIN, self._values(given)) for given in renderings]
        replies = self._process.render(self._source, ways)
        return [self._fault(reply) or _traced(reply) for reply in replies]

    def generated_spans(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> tuple[str, list[tuple[int, int]]]:
        """The text, and the characters [start, end) inside `{% generation %}` blocks.

        Raises ChatTemplateError like `render`; also if the blocks are nested, or a text has their marks.
        """
        text = self._rendered(wire.MARKED, Rendering(messages, tools, variables)).text
        spans: list[tuple[int, int]] = []
        pieces: list[str] = []
        length, begin = 0, None
        for piece in re.split(f"([{BEGIN_GENERATION}{END_GENERATION}])", text):
            if piece == BEGIN_GENERATION and begin is None:
                begin = length
            elif piece == END_GENERATION and begin is not None:
                spans.append((begin, length))
                begin = None
            elif piece in (BEGIN_GENERATION, END_GENERATION):
                raise self._error("the marks of {% generation %} cannot be distinguished from texts")
            else:
                pieces.append(piece)
                length += len(piece)
        return "".join(pieces), spans

    def _rendered(self, how: str, given: Rendering) -> Reply:
        (reply,) = self._process.render(self._source, [(how, self._values(given))])
        if (fault := self._fault(reply)) is not None:
            raise fault
        return reply

    def _values(self, given: Rendering) -> dict[str, Any]:
        return {
            **self.special_tokens,
            **given.variables,
            "messages": [{key: value for key, value in each.items() if value is not None} for each in given.messages],
            "tools": given.tools,
            "documents": None,
            "add_generation_prompt": given.prompt,
        }

    def _fault(self, reply: Reply) -> ChatTemplateError | None:
        if reply.kind == wire.DONE:
            return None
        kind = TemplateRaisedError if reply.kind == wire.RAISED else ChatTemplateError
        return kind(f"{_WHAT.get(reply.kind, _WHAT[wire.FAILED])}: {reply.text}", where=self.where, remedy=_REMEDY)

    def _error(self, what: str) -> ChatTemplateError:
        return ChatTemplateError(what, where=self.where, remedy=_REMEDY)


def _traced(reply: Reply) -> str:
    return TracedText(reply.text, reply.marks) if reply.marks else reply.text


def load_chat_template(
    place: Path,
    *,
    name: str | None = None,
    special_tokens: Mapping[str, str] | None = None,
    now: datetime | None = None,
) -> ChatTemplate:
    """The template at `place`: a `.jinja` file, a `tokenizer_config.json`, or the folder of a tokenizer.

    `name` chooses among several; the default is `default`. `special_tokens` override those of the files. Raises
    ChatTemplateError if there is no template, or no such name.
    """
    if not place.exists():
        raise ChatTemplateError(
            "no chat template",
            where=str(place),
            remedy="give a .jinja file, a tokenizer_config.json or the folder of a tokenizer",
        )
    if not place.is_dir() and not place.is_file():
        raise ChatTemplateError("not a regular file", where=str(place), remedy="give a file or a folder")
    templates, tokens, file = _from_folder(place) if place.is_dir() else _from_file(place)
    wanted = name or "default"
    if wanted not in templates:
        known = ", ".join(sorted(templates)) or "none"
        raise ChatTemplateError(
            f"no chat template named {wanted!r}; found: {known}", where=str(place), remedy="give another file"
        )
    return ChatTemplate(
        templates[wanted],
        special_tokens={**tokens, **(special_tokens or {})},
        now=now,
        where=str(file),
    )


def _from_folder(folder: Path) -> tuple[dict[str, str], dict[str, str], Path]:
    """Templates by name, special tokens, and the file of the default template.

    Newer tokenizers keep the template in its own file, which overrides the one in `tokenizer_config.json`.
    """
    templates: dict[str, str] = {}
    tokens: dict[str, str] = {}
    file = folder
    config = folder / "tokenizer_config.json"
    if config.is_file():
        templates, tokens, file = _from_file(config)
    extra = folder / "special_tokens_map.json"
    if extra.is_file():
        tokens = {**_special_tokens(read_object(extra, ChatTemplateError), extra), **tokens}
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        templates["default"], file = _text(alone), alone
    others = folder / "additional_chat_templates"
    if others.is_dir():
        templates |= {path.stem: _text(path) for path in sorted(others.glob("*.jinja")) if path.is_file()}
    return templates, tokens, file


def _from_file(path: Path) -> tuple[dict[str, str], dict[str, str], Path]:
    if path.suffix != ".json":
        return {"default": _text(path)}, {}, path
    config = read_object(path, ChatTemplateError)
    stored = config.get("chat_template")
    if isinstance(stored, str):
        templates = {"default": stored}
    elif isinstance(stored, list) and all(
        isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("template"), str)
        for item in stored
    ):
        templates = {item["name"]: item["template"] for item in stored}
    elif stored is None:
        templates = {}
    else:
        raise ChatTemplateError(
            "chat_template is neither text nor a list of name and template", where=str(path), remedy="fix it"
        )
    return templates, _special_tokens(config, path), path


def _special_tokens(config: Mapping[str, Any], path: Path) -> dict[str, str]:
    """`bos_token` and similar keys, whose values are text or `{"content": text, …}`."""
    tokens = {}
    for key, value in config.items():
        if not key.endswith("_token"):
            continue
        if isinstance(value, dict):
            value = value.get("content", 0)
        if value is None or (not isinstance(value, str) and key not in _TOKENS):
            continue
        if not isinstance(value, str) or len(value) > LONGEST_TOKEN or not is_utf8(value):
            what = f"{key} is no text of at most {LONGEST_TOKEN:,} characters"
            raise ChatTemplateError(what, where=str(path), remedy="fix it")
        tokens[key] = value
    return tokens


_TOKENS = frozenset(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""The keys of special tokens that every tokenizer may have. Others, such as `add_bos_token`, may have other values."""


def _text(path: Path) -> str:
    try:
        return read_small(path, ChatTemplateError, "the file", "fix it").decode()
    except UnicodeDecodeError as fault:
        raise ChatTemplateError(f"the file is not UTF-8: {fault.reason}", where=str(path), remedy="fix it") from None
