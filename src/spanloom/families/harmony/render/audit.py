"""The audit: sampled rows of a fast render are rendered again by openai-harmony; a difference stops the build.

In: batches with their renders. Out: how many documents were compared, or `AuditError` with row, position and text.
The sample depends on row numbers, shapes and lengths alone, part by part, so that every run audits the same rows.
openai-harmony takes about a hundred times as long as the fast renderer, so the number of audited tokens is limited.

If a row has several documents, one is audited. The tokens before its last trained run are compared with
openai-harmony's render for completion, which is the prompt that a server gives the model for this run. The prompts of
its earlier runs are prefixes of it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from openai_harmony import HarmonyEncoding

from spanloom.conversations.source.structure import LabelledConversation
from spanloom.errors import AuditError, SpanloomError
from spanloom.families.harmony.contract.history import Cut, CutRules
from spanloom.families.harmony.contract.profile import SYNTH_KD, Profile
from spanloom.families.harmony.render.official import (
    RefusedByRendererError,
    RenderedBatch,
    render_prompt,
    render_through_harmony,
)
from spanloom.families.harmony.tokenizer import START
from spanloom.supervision import TokenDocuments, Tokens

AUDITED_AT_LEAST = 64
AUDITED_SHARE = 0.05
"""Maximum audited share of the tokens of a part so far, besides the first row of each shape; higher if a larger
fraction is requested."""
AUDITED_TOKENS = 200_000
"""Tokens of a shard that may be audited regardless of the share."""
_CHARACTERS_PER_TOKEN = 4
AROUND = 12
"""Tokens shown on either side of a difference."""


def audit_stride(rows: int, fraction: float) -> int:
    """The n for which every n-th of `rows` rows is audited: `fraction` of them, but at least 64 rows; 0 for none.

    20,000 rows at 0.001: every 312th, since every 1,000th would be only 20 rows.
    """
    if fraction <= 0:
        return 0
    return max(1, min(int(1 / fraction), rows // AUDITED_AT_LEAST))


def audit_share(fraction: float) -> float:
    """The share of tokens that is audited at most, see `AUDITED_SHARE`."""
    return max(fraction, AUDITED_SHARE)


def audit_floor(rows: int, of_rows: int) -> int:
    """The part of `AUDITED_TOKENS` for `rows` of a shard's `of_rows` rows: parts are audited one by one."""
    return AUDITED_TOKENS * rows // max(1, of_rows)


def check_fraction(fraction: float) -> None:
    """Raises SpanloomError for a fraction outside [0, 1]."""
    if not 0 <= fraction <= 1:
        raise SpanloomError(f"the audit fraction must be in [0, 1], not {fraction}")


class Auditor:
    """Audits the batches of a part; remembers the audited shapes of conversations, and the number of audited tokens.

    `share`, `floor`: at most this share of the tokens, or this number of tokens, is audited; the first row of each
    shape is always audited.
    """

    def __init__(
        self,
        encoding: HarmonyEncoding,
        stride: int,
        profile: Profile = SYNTH_KD,
        rules: CutRules | None = None,
        *,
        share: float = AUDITED_SHARE,
        floor: int = AUDITED_TOKENS,
    ) -> None:
        self._encoding, self._stride, self._profile, self._rules = encoding, stride, profile, rules
        self._share, self._floor = share, floor
        self._seen: set[tuple[int, ...]] = set()
        self._kinds: dict[tuple[str, ...], int] = {}
        self._kind_of_header: dict[tuple[Any, ...], int] = {}
        self._tokens = self._audited_tokens = 0

    def audit(
        self,
        shard: int,
        places: Sequence[tuple[int, str]],
        conversations: Sequence[LabelledConversation],
        rendered: RenderedBatch,
        cuts: Sequence[Cut] = (),
    ) -> int:
        """Compares the sampled rows of a batch with the record route: refusals, tokens, span and mask; and the tokens
        before a run with openai-harmony's render for completion.

        `places`: row and id of each conversation; `cuts`: the cut of each, if they are cuts of conversations.
        Returns the number of compared documents; raises AuditError at a difference.
        """
        lengths = dict(zip(rendered.kept, rendered.documents.lengths.tolist(), strict=True))
        documents_of = Counter(row for row, _ in places)
        number_of: Counter[int] = Counter()
        chosen: list[int] = []
        for index, (row, _) in enumerate(places):
            its_turn = number_of[row] == row // max(self._stride, 1) % documents_of[row]
            number_of[row] += 1
            shape = () if len(self._seen) >= AUDITED_AT_LEAST else self._shape(conversations[index].messages)
            if self._chooses(row, conversations[index], lengths.get(index), shape, its_turn=its_turn, twice=bool(cuts)):
                chosen.append(index)
        document_of = {index: document for document, index in enumerate(rendered.kept)}
        for index in chosen:
            row, name = places[index]
            where = f"shard {shard:02d}, row {row}, {self._profile.source.id_column} {name!r}"
            record = render_through_harmony(
                [conversations[index]], self._encoding
            )  # one at a time: renders take much memory
            document = document_of.get(index)
            if (document is None) == bool(record.kept):
                decision = "refuses" if record.kept else "renders"
                raise AuditError(
                    f"the fast renderer {decision} a conversation on which openai-harmony decides otherwise",
                    where=where,
                    remedy=_REMEDY,
                )
            if document is not None:
                fast = rendered.documents.between(document, document + 1)
                self._compare(fast, record.documents, where)
                if cuts:
                    self._check_prompt(cuts[index], fast.tokens, where)
        return len(chosen)

    def _shape(self, messages: Sequence[dict[str, Any]]) -> tuple[int, ...]:
        """The kinds of a document's messages: role, channel and keys, each kind as a number."""
        known = self._kind_of_header
        try:
            return tuple([known[message["role"], message.get("channel"), *message] for message in messages])
        except (KeyError, TypeError):  # a kind that is new, or a channel that cannot be looked up
            return tuple(map(self._kind, messages))

    def _kind(self, message: dict[str, Any]) -> int:
        """The number of a message's role, channel and keys, whatever the order of the keys."""
        channel = message.get("channel")
        if channel is not None and not isinstance(channel, str):  # an accepted record may have any value there
            channel = (repr(channel),)
        header = (message["role"], channel, *message)
        number = self._kind_of_header.get(header)
        if number is None:
            kind = (message["role"], repr(message.get("channel")), *sorted(message))
            number = self._kind_of_header[header] = self._kinds.setdefault(kind, len(self._kinds))
        return number

    def _chooses(
        self,
        row: int,
        conversation: LabelledConversation,
        tokens: int | None,
        shape: tuple[int, ...],
        *,
        its_turn: bool,
        twice: bool,
    ) -> bool:
        """Whether a document is audited. `tokens`: None if it was refused. `shape`: see `_shape`; ignored once enough
        were seen. `its_turn`: it is the one document of its row to audit. `twice`: its prompt is rendered too."""
        if tokens is None:
            tokens = len(repr(conversation.messages)) // _CHARACTERS_PER_TOKEN
        self._tokens += tokens
        new = len(self._seen) < AUDITED_AT_LEAST and shape not in self._seen
        if new:
            self._seen.add(shape)
        rendered = 2 * tokens if twice else tokens
        within = self._audited_tokens + rendered <= max(self._floor, self._share * self._tokens)
        chosen = new or (row % self._stride == 0 and its_turn and within)
        if chosen:
            self._audited_tokens += rendered
        return chosen

    def _compare(self, fast: TokenDocuments, record: TokenDocuments, where: str) -> None:
        for name in ("tokens", "span_id", "loss_mask"):
            value, expected = getattr(fast, name), getattr(record, name)
            if np.array_equal(value, expected):
                continue
            at = _first_difference(value, expected)
            raise AuditError(
                f"the fast renderer differs from openai-harmony in {name} at token {at}: {value[at : at + 3].tolist()} "
                f"instead of {expected[at : at + 3].tolist()}, around {self._around(at, fast.tokens, record.tokens)}",
                where=where,
                remedy=_REMEDY,
            )

    def _check_prompt(self, cut: Cut, tokens: Tokens, where: str) -> None:
        if self._rules is None or self._rules.history == "keep":
            return
        starts = np.flatnonzero(tokens == START)
        wanted = prompt_before_last(cut, self._rules.history, self._encoding)
        at = _first_difference(tokens[: wanted.size], wanted)
        last, _ = cut.begins[-1]
        if at == wanted.size and int(starts[last]) == at:
            return
        raise AuditError(
            f"what comes before the last run of the document of run {cut.number} is not what openai-harmony renders "
            f"for completion, from token {at} on: {self._around(at, tokens, wanted)}",
            where=where,
            remedy="report this row: with this --history the two must never differ",
        )

    def _around(self, at: int, *sides: Tokens) -> str:
        """The text around a token on either side."""
        shown = slice(max(at - AROUND, 0), at + AROUND)
        return " instead of ".join(repr(self._encoding.decode(side[shown].tolist())) for side in sides)


def prompt_before_last(cut: Cut, history: str, encoding: HarmonyEncoding) -> Tokens:
    """openai-harmony's render for the completion of a document's last trained run, without the last two tokens
    `<|start|>assistant`, which belong to the run. Returns int32 [T].

    With `serve` it gets the shown messages and drops none; with `openai-harmony` it gets all and drops its default.
    """
    place, at = cut.begins[-1]
    if history != "serve":
        try:
            return render_prompt(cut.source[:at], encoding, drop_analysis=True)
        except RefusedByRendererError:  # a run that is not trained may have any content in reasoning that is not shown
            pass
    return render_prompt(cut.shown.messages[:place], encoding, drop_analysis=False)


_REMEDY = "build with --renderer harmony, and report this row: the two must never differ"


def _first_difference(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> int:
    common = min(one.size, other.size)
    different = np.flatnonzero(one[:common] != other[:common])
    return int(different[0]) if different.size else common
