"""A sample → the text that a chat template renders, and the span of the answer in it.

In: a sample, a template, the registries of tools. Out: the whole text, the prompt alone, and the span of the answer in
characters. The answer is not searched for: it must begin exactly where the prompt ends, and be unchanged.

    full    <|begin_of_text|>…<|start_header_id|>assistant<|end_header_id|>⏎⏎<|python_tag|>{…}<|eom_id|>
    prompt  <|begin_of_text|>…<|start_header_id|>assistant<|end_header_id|>⏎⏎
    span                                                                    [len(prompt), len(prompt) + len(answer))
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from spanloom.errors import SpanloomError
from spanloom.families.toolcalls.format.control import END_TOKENS, EOM, EOT
from spanloom.families.toolcalls.format.tools import Registries
from spanloom.no_pandas import allow_pandas
from spanloom.tokenizers.chat_template import ChatTemplate, ChatTemplateError, load_chat_template

Render = Callable[..., str]
"""(messages, `tools`, `add_generation_prompt`) → text, like `ChatTemplate.render`. Raises ChatTemplateError."""

LLAMA_TOKENS = {"bos_token": "<|begin_of_text|>", "eos_token": EOT}
"""The default special tokens of a template whose file does not define them."""


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """The texts of one sample. `prompt`: rendered without the answer; usually, but not always, a prefix of `full`."""

    full: str
    prompt: str


@dataclass(frozen=True, kw_only=True)
class Span:
    """Characters [start, end) of the full text: the answer, and the end token if the template added it."""

    start: int
    end: int


def load_template(place: Path, bos_token: str | None = None) -> ChatTemplate:
    """Loads the template of a file or folder. Special tokens that it does not define are Llama's."""
    template = load_chat_template(place)
    override = {"bos_token": bos_token} if bos_token is not None else {}
    return ChatTemplate(
        template.text, special_tokens={**LLAMA_TOKENS, **template.special_tokens, **override}, where=template.where
    )


def render_sample(sample: Mapping[str, Any], render: Render, registries: Registries) -> Rendered:
    """Renders both texts of a sample with messages and assistant_raw. Raises ChatTemplateError if that fails."""
    messages, raw = list(sample["messages"]), sample["assistant_raw"]
    tools = registries.for_template(sample.get("tools"))
    full = render([*messages, {"role": "assistant", "content": raw}], tools=tools)
    return Rendered(full=full, prompt=render(messages, tools=tools, add_generation_prompt=True))


def answer_span(rendered: Rendered, raw: str) -> Span | None:
    """The span of the answer; None if it cannot be proven.

    If the answer has no end token and the template adds one right after it, the token is part of the span: the model
    must learn to stop. If the answer already ends with one, a second one is not part of the span.
    """
    full, start = rendered.full, len(rendered.prompt)
    end = start + len(raw)
    if not full.startswith(rendered.prompt) or full[start:end] != raw:
        return None
    if not raw.rstrip().endswith(END_TOKENS):
        for token in (EOM, EOT):
            if full.startswith(token, end):
                return Span(start=start, end=end + len(token))
    return Span(start=start, end=end)


def rendered_by_transformers(folder: Path) -> Render:
    """A render function that uses a Hugging Face tokenizer's `apply_chat_template` (extra `hf`).

    Raises SpanloomError if transformers is missing or older than 4.43, which renders templates differently;
    ChatTemplateError if the folder or its tokenizer cannot be read.
    """
    try:
        allow_pandas()
        import transformers
    except ImportError:
        raise SpanloomError(
            "rendering with a Hugging Face tokenizer needs the package transformers",
            remedy="pip install 'spanloom[hf]', or give --template to render with Spanloom's own sandbox",
        ) from None
    check_version(transformers.__version__)
    if not folder.is_dir():
        raise ChatTemplateError("the tokenizer's folder is missing", where=str(folder), remedy="give the folder")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise ChatTemplateError(
            f"not a tokenizer folder: {fault}", where=str(folder), remedy="give a folder with tokenizer.json"
        ) from None
    return rendered_by_tokenizer(tokenizer)


def rendered_by_tokenizer(tokenizer: Any) -> Render:
    """A render function that uses a loaded tokenizer: any object with `apply_chat_template`."""

    def render(
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        try:
            text = tokenizer.apply_chat_template(
                list(messages),
                tools=None if tools is None else list(tools),
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
            )
        except _OF_TEMPLATES as fault:
            raise ChatTemplateError(f"the tokenizer's template failed: {fault}", remedy="fix the template") from None
        return str(text)

    return render


_OF_TEMPLATES = (
    jinja2.TemplateError,
    *(TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError),
)
"""The exceptions of a failing template: Jinja's own, and those of operations on values of messages."""

OLDEST_TRANSFORMERS = (4, 43)


def check_version(version: str) -> None:
    """Raises SpanloomError for a version of transformers that is too old."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST_TRANSFORMERS:
        wanted = ".".join(map(str, OLDEST_TRANSFORMERS))
        raise SpanloomError(
            f"transformers {version} is too old: {wanted} or later is needed",
            remedy=f"pip install 'transformers>={wanted}'",
        )
