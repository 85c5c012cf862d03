"""The options that decide the bytes of transcripts."""

from dataclasses import dataclass
from typing import Annotated, Literal

from spanloom.errors import ChatError
from spanloom.families.chat import defaults
from spanloom.options.option import listing, names_in, option


@dataclass(frozen=True, kw_only=True)
class GeneratorRules:
    """The context length, and how to handle what a transcript cannot hold.

    `on_error` None counts control strings, which are a property of the data, and stops at records that are unreadable
    or would lose content, which are errors. `empty_answers`: write them, as the program did that this
    format comes from.

    Raises ChatError for a context of less than one token, and for an unknown `on_error`.
    """

    context_len: Annotated[
        int, option("Tokens that the first pair may have with its system span, and each later pair.", min=1)
    ] = defaults.CONTEXT_LEN
    drop: Annotated[
        frozenset[str],
        option(
            "Keys of messages and records, and roles, to leave out and count, such as reasoning_content,tool_calls,"
            "tool. Any that a transcript has no place for and that is not named here is refused with its line.",
            metavar="NAME,…",
            takes=str,
            given="",
            read=lambda text: frozenset(names_in(text)),
        ),
    ] = frozenset()
    maps: Annotated[
        tuple[str, ...],
        listing(
            "Which key of your records means what, as for `spanloom convert`: messages, query, answer, system, id.",
            "--map",
            metavar="MEANING=KEY,…",
        ),
    ] = ()
    metadata: Annotated[
        frozenset[str],
        listing("Keys of records that are no part of the conversation.", metavar="KEY,…", of=frozenset),
    ] = frozenset()
    text_as_is: Annotated[
        bool,
        option("What chat templates write (`<|im_end|>`, `[INST]`) stays text of an answer. Default: refused."),
    ] = False
    think: Annotated[
        Literal["keep", "drop", "refuse"],
        option("<think>…</think> in an answer: train it as a part of it, leave it out and count it, or refuse."),
    ] = defaults.THINK
    on_error: Annotated[
        Literal["raise", "skip"] | None,
        option(
            "A record that cannot be read or would lose something; a control string in a text: stop at both, or skip "
            "and count both. Default: stop at the first, skip the second."
        ),
    ] = None
    empty_answers: bool = False

    def __post_init__(self) -> None:
        if self.context_len < 1:
            raise ChatError(f"the context must have at least one token, got {self.context_len}")
        if self.on_error not in ("skip", "raise", None):
            raise ChatError(f"on_error is 'skip', 'raise' or None, not {self.on_error!r}")
