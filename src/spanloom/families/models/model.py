"""A model's folder → what proving needs of it: tokenizer, encoder, chat template, stop tokens.

In: a folder or hub snapshot with `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja` (or the template in
the config) and `generation_config.json`. Out: a `Model`. Nothing is fetched.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from spanloom.families.models.errors import ModelError, folder_missing
from spanloom.storage import read_object
from spanloom.text import AnyOf
from spanloom.tokenizers.chat_template import ChatTemplate, load_chat_template
from spanloom.tokenizers.encoding import JsonTokenizer
from spanloom.tokenizers.json_ids import IdEncoder, fast_ahead

UNDATED = datetime(2025, 1, 1)
"""Today's date for templates if none is given. Proving then compares the prompt with that of another day."""

STOPS_FILE = "generation_config.json"
MOST_STOPS = 1024

_NOTHING = re.compile("(?!)")


@dataclass(frozen=True)
class Model:
    """A loaded model. `stops`: declared stop tokens, id → text. `name`: of its folder. `dated`: a date was given."""

    name: str
    tokenizer: JsonTokenizer
    encoder: IdEncoder
    template: ChatTemplate
    stops: Mapping[int, str]
    dated: bool

    @cached_property
    def special(self) -> re.Pattern[str]:
        """Matches texts that the tokenizer encodes as a control token wherever they occur."""
        return _any_of([*self.tokenizer.special_texts(), *self.stops.values()])

    def special_and(self, eod: str | None) -> re.Pattern[str]:
        """`special`, and the text of the EOD."""
        if eod is None or self.special.fullmatch(eod):
            return self.special
        return re.compile(f"{self.special.pattern}|{re.escape(eod)}")

    def controls(self, eod: str | None) -> AnyOf:
        """Looks for what `special_and` matches."""
        return AnyOf([*self.tokenizer.special_texts(), *self.stops.values(), eod or ""])

    @cached_property
    def ends(self) -> AnyOf:
        """Looks for stop tokens."""
        return AnyOf(self.stops.values())

    @cached_property
    def added(self) -> re.Pattern[str]:
        """Matches the texts of added tokens, except white space: the tokenizer splits a text at them."""
        return _any_of([text for text in self.tokenizer.added_texts() if text.strip()])

    @property
    def undated(self) -> bool:
        """Whether the template may write today's date and no date was given."""
        return self.asks_for_date and not self.dated

    @cached_property
    def asks_for_date(self) -> bool:
        """Whether the template mentions the function that gives today's date."""
        return "strftime_now" in self.template.text


def find_eod(model: Model) -> dict[str, Any]:
    """The token after each document, as the manifest's `text` and `id`. Raises ModelError if there is none.

    The first declared stop token that the template does not write, so that it occurs only at the end of a document;
    otherwise the tokenizer's `eos_token`, otherwise the first stop token.
    """
    unwritten = [text for text in model.stops.values() if text not in model.template.text]
    eos = model.template.special_tokens.get("eos_token")
    for text in (*unwritten, *([] if eos is None else [eos]), *model.stops.values()):
        token = model.tokenizer.id_of(text)
        if token is not None:
            return {"text": text, "id": token}
    raise ModelError("no token ends a document: the tokenizer has no stop token", remedy="give one: --stop")


def load_model(
    folder: Path,
    *,
    stops: Sequence[str] = (),
    date: datetime | None = None,
    template: Path | None = None,
    fast: bool = True,
) -> Model:
    """The model in a folder.

    Args: `stops`, texts or ids of stop tokens instead of those of `generation_config.json`; `date`, today's date for
    the template; `template`, a file instead of the folder's; `fast`, false to encode with `tokenizers` alone, for few
    texts: fastokens takes a second to load.
    Raises ModelError for a missing folder, undeclared or unknown stop tokens; TokenizerError; ChatTemplateError.
    """
    if not folder.is_dir():
        raise folder_missing(str(folder))
    path = folder / "tokenizer.json"
    loading = fast_ahead(path) if fast else None
    tokenizer = JsonTokenizer(path, extra="data")
    encoder = IdEncoder(tokenizer, loading)
    config = folder / "tokenizer_config.json"
    tokens = load_special_tokens(config) if template is not None and config.is_file() else None
    chat_template = load_chat_template(template or folder, special_tokens=tokens, now=date or UNDATED)
    return Model(
        name=folder.resolve().name,
        tokenizer=tokenizer,
        encoder=encoder,
        template=chat_template,
        stops=stop_tokens(tokenizer, stops or declared_stops(folder), where=folder if stops else folder / STOPS_FILE),
        dated=date is not None,
    )


def load_special_tokens(config: Path) -> dict[str, str]:
    """`bos_token`, `eos_token` … of a `tokenizer_config.json`, by name. Raises ModelError for an invalid file."""
    values = read_object(config, ModelError)
    texts = {key: value.get("content") if isinstance(value, dict) else value for key, value in values.items()}
    return {key: text for key, text in texts.items() if key.endswith("_token") and isinstance(text, str)}


def declared_stops(folder: Path) -> list[str | int]:
    """`eos_token_id` of `generation_config.json` as a list; empty if it is missing. Raises ModelError."""
    path = folder / STOPS_FILE
    declared = read_object(path, ModelError).get("eos_token_id") if path.is_file() else None
    stops = [] if declared is None else declared if isinstance(declared, list) else [declared]
    wrong = next((stop for stop in stops if isinstance(stop, bool) or not isinstance(stop, int | str)), None)
    if wrong is not None or len(stops) > MOST_STOPS or None in stops:
        what = f"eos_token_id is no id, and no list of at most {MOST_STOPS} ids"
        raise ModelError(what, where=str(path), remedy="fix it, or give --stop")
    return stops


_TURN_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<turn|>", "<｜end▁of▁sentence｜>", "<|return|>", "</s>", "<|end|>",
)  # fmt: skip
"""Ends of turns, for a remedy that names one that the tokenizer has."""


def stop_tokens(tokenizer: JsonTokenizer, stops: Sequence[str | int], *, where: Path) -> dict[int, str]:
    """Stop tokens, id → text. A number, or digits that are not a token, is an id. Raises ModelError."""
    if not stops:
        example = next((end for end in _TURN_ENDS if tokenizer.id_of(end) is not None), _TURN_ENDS[0])
        raise ModelError(
            "no stop tokens are declared: generation_config.json has no eos_token_id",
            where=str(where),
            remedy=f"give them: --stop '{example}'",
        )
    named: dict[int, str] = {}
    for stop in stops:
        number = tokenizer.id_of(stop) if isinstance(stop, str) else stop
        if number is None and isinstance(stop, str) and stop.isdecimal():
            number = int(stop)
        known = number is not None and 0 <= number < tokenizer.vocab_size
        text = tokenizer.token_bytes(number).decode(errors="replace") if number is not None and known else ""
        if number is None or not text:
            raise ModelError(
                f"the stop token {stop!r} (eos_token_id) is not in the tokenizer"
                if where.name == STOPS_FILE
                else f"the stop token {stop!r} is not in the tokenizer",
                where=str(where),
                remedy="give another --stop",
            )
        named[number] = text
    return named


def _any_of(texts: Sequence[str]) -> re.Pattern[str]:
    longest_first = sorted({text for text in texts if text}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else _NOTHING
