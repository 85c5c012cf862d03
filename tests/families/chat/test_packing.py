"""Laws of packing: every token is accounted for, no soup of markers breaks a block, no cut of the stream matters.

`token_by_token` is the rules read aloud, one token at a time.
"""

import json
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.errors import ChatError
from spanloom.families.chat.blocks.markers import Markers, find_markers
from spanloom.families.chat.blocks.masks import loss_mask, targets
from spanloom.families.chat.packing import Blocks, Packer, PackingCounts, pack
from support.nightly import drawn

X, S, U, A, E = 0, 10, 11, 12, 13
MARKERS = Markers(eos=X, system=S, user=U, assistant=A, end=E)
PAD = 14


# The slow reference


@dataclass
class Expected:
    blocks: list[list[int]] = field(default_factory=list)
    injected: list[int] = field(default_factory=list)
    given_up: int = 0
    stops: int = 0
    tail: list[int] = field(default_factory=list)
    tail_injected: int = 0


def token_by_token(stream: list[int], width: int) -> Expected:
    """Packs as it is written down: one state for the stream, one token after the other."""
    expected = Expected()
    role: int | None = None
    reading: list[int] = []  # the system span under way
    system: list[int] = []  # the last complete one of this conversation
    block: list[int] = []
    copies = 0
    began_in_user = still_open = giving_up = False
    for token in stream:
        if giving_up:
            expected.given_up += 1
            if token == X:
                giving_up = False
                role, reading, system = None, [], []
            continue
        if not block:
            began_in_user = still_open = role == U
            if began_in_user:
                block = ([*system, U] if system and len(system) + 1 <= width - 1 else [U])[:]
            copies = len(block)
        block.append(token)
        if token in (X, S, U, A, E):
            still_open = False
        if role == S:
            reading.append(token)
        if token == X:
            role, reading, system = None, [], []
        elif token in (S, U, A):
            role, reading = token, [token] if token == S else []
        elif token == E:
            if role == S:
                system = reading
            role, reading = None, []
        if len(block) == width:
            expected.blocks.append(block)
            expected.injected.append(copies)
            block, copies = [], 0
            if began_in_user and still_open:
                giving_up = True
                expected.stops += 1
    expected.tail, expected.tail_injected = block, copies
    return expected


def mask_token_by_token(block: list[int], copies: int, strict: bool) -> list[int]:
    mask = [0] * len(block)
    role: int | None = None
    user_ok = False
    start: int | None = None
    of_injected = False
    for here, token in enumerate(block):
        if token == X:
            role, user_ok, start = None, False, None
        elif token == S:
            role, user_ok, start = S, False, None
        elif token == U:
            role, user_ok, start = U, False, None
            of_injected = here == copies - 1
        elif token == A:
            role, start = A, here if user_ok else None
        elif token == E:
            if role == A and start is not None:
                mask[start : here + 1] = [1] * (here + 1 - start)
            elif role == U:
                user_ok = not (strict and of_injected)
            role, start = None, None
    return mask


# Streams


soup = st.lists(st.sampled_from([X, S, U, A, E, 100, 101, 102]), max_size=120)


@st.composite
def well_formed(draw: st.DrawFn) -> list[int]:
    """Conversations as they are meant to be, with spans from nothing to longer than blocks."""
    stream: list[int] = []
    content = st.integers(0, 20)
    for _ in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            stream += [S, *[100] * draw(content), E]
        for _ in range(draw(st.integers(1, 4))):
            stream += [U, *[101] * draw(content), E, A, *[102] * draw(content), E]
        stream.append(X)
    return [token + place if token >= 100 else token for place, token in enumerate(stream)]


streams = soup | well_formed()
widths = st.integers(2, 24)


def stream_of(case: dict[str, Any]) -> list[int]:
    return [token for document in case["documents"] for token in document]


def rows(blocks: Blocks) -> tuple[list[list[int]], list[list[int]], list[int]]:
    return blocks.input_ids.tolist(), blocks.loss_mask.tolist(), blocks.injected.tolist()


def joined(parts: list[Blocks]) -> tuple[list[list[int]], list[list[int]], list[int]]:
    ids, masks, injected = zip(*map(rows, parts), strict=True)
    return [*chain(*ids)], [*chain(*masks)], [*chain(*injected)]


def kept(counts: PackingCounts, width: int) -> int:
    """Tokens of the stream that the counts account for."""
    in_blocks = counts.blocks * width - counts.injected_tokens - counts.padding_tokens
    return in_blocks + counts.dropped_tokens + counts.tokens_given_up + counts.tail_tokens


# Cases worked out elsewhere


def test_every_case_gives_the_arrays_worked_out_for_it(packing_cases: list[dict[str, Any]]) -> None:
    seen = 0
    for case in packing_cases:
        name, wanted, width = case["case"], case["intended"], case["block_size"]
        if "error" in wanted:
            with pytest.raises(ValueError, match="block_size must be at least 2"):
                pack(stream_of(case), block_size=width, markers=MARKERS)
            seen += 1
            continue
        blocks, counts = pack(stream_of(case), block_size=width, markers=MARKERS, strict_user=False)
        assert blocks.input_ids.shape == blocks.loss_mask.shape == (len(wanted["input_ids"]), width), name
        assert blocks.input_ids.tolist() == wanted["input_ids"], name
        assert blocks.loss_mask.tolist() == wanted["loss_mask"], name
        assert targets(blocks.input_ids, blocks.loss_mask).tolist() == wanted["targets"], name
        assert blocks.injected.tolist() == wanted["injected_tokens"], name
        assert counts.tokens_given_up == wanted["tokens_given_up"], name
        strict, _ = pack(stream_of(case), block_size=width, markers=MARKERS)
        assert strict.input_ids.tolist() == wanted["input_ids"], name
        assert strict.loss_mask.tolist() == wanted.get("loss_mask_strict", wanted["loss_mask"]), name
        again = loss_mask(blocks.input_ids, markers=MARKERS, injected=blocks.injected)
        assert np.array_equal(again, strict.loss_mask), name
        seen += 1
    assert seen == len(packing_cases) >= 39


def test_the_reference_agrees_with_every_case(packing_cases: list[dict[str, Any]]) -> None:
    for case in packing_cases:
        wanted, width = case["intended"], case["block_size"]
        if "error" in wanted:
            continue
        expected = token_by_token(stream_of(case), width)
        assert expected.blocks == wanted["input_ids"], case["case"]
        assert expected.injected == wanted["injected_tokens"], case["case"]
        assert expected.given_up == wanted["tokens_given_up"], case["case"]
        both = list(zip(expected.blocks, expected.injected, strict=True))
        assert [mask_token_by_token(*block, False) for block in both] == wanted["loss_mask"], case["case"]
        strict = wanted.get("loss_mask_strict", wanted["loss_mask"])
        assert [mask_token_by_token(*block, True) for block in both] == strict, case["case"]


# Laws


@settings(max_examples=drawn(300, 50))
@given(streams, widths, st.booleans())
def test_packing_equals_the_rules_read_token_by_token(stream: list[int], width: int, strict: bool) -> None:
    blocks, counts = pack(stream, block_size=width, markers=MARKERS, strict_user=strict)
    expected = token_by_token(stream, width)
    assert blocks.input_ids.shape == blocks.loss_mask.shape == (len(expected.blocks), width)
    assert blocks.input_ids.tolist() == expected.blocks
    assert blocks.injected.tolist() == expected.injected
    both = zip(expected.blocks, expected.injected, strict=True)
    assert blocks.loss_mask.tolist() == [mask_token_by_token(*block, strict) for block in both]
    assert counts.tokens_given_up == expected.given_up
    assert counts.stops == expected.stops
    assert counts.tail_tokens == len(expected.tail) - expected.tail_injected
    assert counts.loss_tokens == int(blocks.loss_mask.sum())
    assert counts.tokens_in == len(stream) == kept(counts, width)


@settings(max_examples=drawn(300, 50))
@given(streams, widths, st.booleans(), st.booleans(), st.lists(st.integers(0, 40), max_size=12))
def test_how_the_stream_is_cut_into_calls_does_not_matter(
    stream: list[int], width: int, post_training: bool, keep_lossless: bool, cuts: list[int]
) -> None:
    options = {
        "block_size": width,
        "markers": MARKERS,
        "post_training": post_training,
        "keep_lossless": keep_lossless,
        "pad_tail": PAD,
    }
    whole, counts = pack(stream, **options)
    packer, at, parts = Packer(**options), 0, []
    for cut in [*cuts, len(stream)]:
        parts.append(packer.feed(np.array(stream[at : at + cut], np.int32)))
        at += cut
    parts.append(packer.finish())
    assert joined(parts) == rows(whole)
    assert packer.counts == counts
    assert kept(counts, width) == len(stream)


@settings(max_examples=drawn(300, 50))
@given(streams, widths, st.integers(0, 120))
def test_a_block_is_handed_out_as_soon_as_its_last_token_is_fed(stream: list[int], width: int, cut: int) -> None:
    packer = Packer(block_size=width, markers=MARKERS)
    fed = sum(len(packer.feed(stream[at : at + 1])) for at in range(len(stream[:cut])))
    assert fed == len(token_by_token(stream[:cut], width).blocks)


@settings(max_examples=drawn(300, 50))
@given(streams, widths, st.integers(0, 120), st.sampled_from([None, PAD]), st.booleans())
def test_a_packer_goes_on_from_its_state(
    stream: list[int], width: int, cut: int, pad_tail: int | None, post_training: bool
) -> None:
    packer = Packer(block_size=width, markers=MARKERS, pad_tail=pad_tail, post_training=post_training)
    packer.feed(stream[:cut])
    other = Packer.from_state(json.loads(json.dumps(packer.state())))
    for rest in (stream[cut:], None):
        first = packer.finish() if rest is None else packer.feed(rest)
        second = other.finish() if rest is None else other.feed(rest)
        assert rows(first) == rows(second)
    assert packer.counts == other.counts
    assert packer.state() == other.state()


@settings(max_examples=drawn(300, 50))
@given(streams, widths)
def test_every_token_stands_in_one_block_unless_it_was_given_up_or_in_the_tail(stream: list[int], width: int) -> None:
    numbered = [token if token < 100 else 1000 + place for place, token in enumerate(stream)]
    blocks, counts = pack(numbered, block_size=width, markers=MARKERS)
    own = [row[copies:] for row, copies in zip(blocks.input_ids.tolist(), blocks.injected.tolist(), strict=True)]
    content = [token for row in own for token in row if token >= 1000]
    assert content == sorted(set(content)), "in order, none of them twice"
    assert counts.tokens_in - sum(map(len, own)) == counts.tokens_given_up + counts.tail_tokens


@settings(max_examples=drawn(300, 50))
@given(streams, widths)
def test_loss_lies_only_on_assistant_spans_that_are_complete_in_their_block(stream: list[int], width: int) -> None:
    blocks, _ = pack(stream, block_size=width, markers=MARKERS)
    for ids, mask in zip(blocks.input_ids.tolist(), blocks.loss_mask.tolist(), strict=True):
        edges = np.flatnonzero(np.diff([0, *mask, 0]))
        for first, last in zip(edges[::2], edges[1::2] - 1, strict=True):
            spans = "".join({A: "A", E: "E", U: "?", S: "?", X: "?"}.get(token, ".") for token in ids[first : last + 1])
            assert all(span.strip(".") == "A" for span in spans.split("E")[:-1]), spans
            assert spans.endswith("E"), spans
            assert U in ids[:first]


@settings(max_examples=drawn(300, 50))
@given(streams, widths)
def test_the_padded_tail_is_what_dropping_would_have_dropped(stream: list[int], width: int) -> None:
    blocks, counts = pack(stream, block_size=width, markers=MARKERS, pad_tail=PAD)
    expected = token_by_token(stream, width)
    wanted = list(expected.blocks)
    if len(expected.tail) > expected.tail_injected:
        wanted.append(expected.tail + [PAD] * (width - len(expected.tail)))
        mask = mask_token_by_token(expected.tail, expected.tail_injected, True)
        assert blocks.loss_mask[-1].tolist() == mask + [0] * (width - len(mask))
        assert counts.padding_tokens == width - len(expected.tail)
    assert blocks.input_ids.tolist() == wanted
    assert counts.tail_tokens == 0
    assert kept(counts, width) == len(stream)


@settings(max_examples=drawn(300, 50))
@given(streams, widths)
def test_blocks_without_loss_go_where_that_is_asked_for(stream: list[int], width: int) -> None:
    everything, counts = pack(stream, block_size=width, markers=MARKERS)
    fewer, dropping = pack(stream, block_size=width, markers=MARKERS, keep_lossless=False)
    some = everything.loss_mask.any(axis=1)
    assert np.array_equal(fewer.input_ids, everything.input_ids[some])
    assert np.array_equal(fewer.loss_mask, everything.loss_mask[some])
    assert np.array_equal(fewer.injected, everything.injected[some])
    assert dropping.dropped_blocks == dropping.lossless_blocks == counts.lossless_blocks == int((~some).sum())
    assert counts.dropped_blocks == 0
    assert kept(dropping, width) == len(stream)


@settings(max_examples=drawn(300, 50))
@given(streams, widths)
def test_without_post_training_the_stream_is_cut_and_every_token_counts(stream: list[int], width: int) -> None:
    blocks, counts = pack(stream, block_size=width, markers=MARKERS, post_training=False)
    whole = len(stream) // width
    assert blocks.input_ids.reshape(-1).tolist() == stream[: whole * width]
    assert blocks.loss_mask.tolist() == [[1] * width] * whole
    assert not blocks.injected.any()
    assert (counts.blocks, counts.tail_tokens) == (whole, len(stream) % width)


@settings(max_examples=drawn(300, 50))
@given(st.integers(2, 12), st.integers(1, 60), st.booleans())
def test_what_is_held_does_not_grow_with_the_stream(width: int, longest: int, close: bool) -> None:
    stream = [S, *[100] * 3, E, S, *[100] * longest, *([E] if close else []), U, *[101] * (3 * longest), 102] * 3
    packer = Packer(block_size=width, markers=MARKERS)
    for token in stream:
        packer.feed([token])
        # a system span that fits, one under way or a marker, and less than a block
        assert len(packer.state()["held"]) <= (width - 2) + width + (width - 1)


# The examples of docs/families/chat.md

LETTERS = {"S": S, "U": U, "A": A, "E": E, "X": X}


def spelled(text: str) -> list[int]:
    """`S s E U a`: markers, and a token of text for each small letter."""
    return [LETTERS.get(letter, 100 + ord(letter)) for letter in text.split()]


def test_the_page_draws_a_block_that_begins_inside_a_user_span() -> None:
    for strict_user, mask in ((True, [0] * 10), (False, [0, 0, 0, 0, 0, 0, 1, 1, 1, 0])):
        stream = spelled("S s E U a b c d e f g E A h E X")
        blocks, _ = pack(stream, block_size=10, markers=MARKERS, strict_user=strict_user)
        assert blocks.input_ids.tolist() == [spelled("S s E U a b c d e f"), spelled("S s E U g E A h E X")]
        assert blocks.loss_mask.tolist() == [[0] * 10, mask]


def test_the_page_draws_the_stop_rule() -> None:
    stream = spelled("U a b c d e f g h i j k l E A m E X U n E A o E")
    blocks, counts = pack(stream, block_size=6, markers=MARKERS)
    assert blocks.input_ids.tolist() == list(map(spelled, ["U a b c d e", "U f g h i j", "U n E A o E"]))
    assert counts.tokens_given_up == 7


@pytest.mark.parametrize(
    ("block", "mask"),
    [
        ("U q E A r E", [0, 0, 0, 1, 1, 1]),
        ("U q E A r E A t E", [0, 0, 0, 1, 1, 1, 1, 1, 1]),
        ("U q E A r X", [0, 0, 0, 0, 0, 0]),
        ("U q E A r A t E", [0, 0, 0, 0, 0, 1, 1, 1]),
        ("U q A r E", [0, 0, 0, 0, 0]),
        ("U q E S s E A r E", [0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_the_page_spells_masks_out(block: str, mask: list[int]) -> None:
    found = loss_mask(np.array([spelled(block)], np.int32), markers=MARKERS, injected=np.zeros(1, np.int32))
    assert found.tolist() == [mask]


# Places where the rules are easily misread


def test_an_unfinished_system_span_leaves_the_one_before_it_in_force() -> None:
    # S a E S b U c …: U ends the second system span as incomplete; the first is what is injected.
    stream = [S, 100, E, S, 101, U, 102, 103, 104, 105, E, A, 106, E, X]
    blocks, _ = pack(stream, block_size=8, markers=MARKERS)
    assert blocks.input_ids.tolist() == [[S, 100, E, S, 101, U, 102, 103], [S, 100, E, U, 104, 105, E, A]]


def test_a_system_span_that_is_too_long_hides_the_one_before_it() -> None:
    # The last complete one counts; it does not fit, so U is injected alone.
    stream = [S, 100, E, S, *[101] * 5, E, U, *[102] * 6, E, A, 103, E, X, X]
    blocks, _ = pack(stream, block_size=8, markers=MARKERS)
    assert blocks.input_ids.tolist() == [
        [S, 100, E, S, 101, 101, 101, 101],
        [101, E, U, 102, 102, 102, 102, 102],
        [U, 102, E, A, 103, E, X, X],
    ]


def test_an_over_long_system_span_under_way_is_too_long_however_it_is_fed() -> None:
    stream = [S, 100, E, S, *[101] * 40, E, U, *[102] * 9, E, A, 103, E, X]
    whole, counts = pack(stream, block_size=6, markers=MARKERS)
    packer = Packer(block_size=6, markers=MARKERS)
    parts = [packer.feed([token]) for token in stream]
    assert joined([*parts, packer.finish()]) == rows(whole)
    assert packer.counts == counts
    assert counts.injected_tokens == counts.injected_blocks, "U alone"


def test_the_rest_of_a_conversation_is_given_up_across_calls_and_states() -> None:
    packer = Packer(block_size=4, markers=MARKERS)
    packer.feed([U, 100, 101, 102, 103, 104, 105])
    assert packer.counts.stops == 1
    packer.feed([106, E, A, 107])
    resumed = Packer.from_state(packer.state())
    blocks = resumed.feed([E, X, U, 108, E, A])
    assert blocks.input_ids.tolist() == [[U, 108, E, A]]
    assert resumed.counts.tokens_given_up == 6


def test_the_stop_rule_does_not_apply_where_the_span_ends_with_the_block() -> None:
    # E is the block's last token: the span it began in is closed.
    blocks, counts = pack([U, 100, 101, 102, 103, 104, E, A, 105, E, X], block_size=4, markers=MARKERS)
    assert blocks.input_ids.tolist() == [[U, 100, 101, 102], [U, 103, 104, E], [A, 105, E, X]]
    assert counts.stops == 0


def test_no_stream_gives_no_blocks_of_the_right_shape() -> None:
    for post_training in (True, False):
        blocks, counts = pack([], block_size=5, markers=MARKERS, post_training=post_training, pad_tail=PAD)
        assert blocks.input_ids.shape == blocks.loss_mask.shape == (0, 5)
        assert blocks.injected.shape == (0,)
        assert counts == PackingCounts()
    assert targets(blocks.input_ids, blocks.loss_mask).shape == (0, 4)


# Arrays and ids


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, ">i4"])
def test_any_integers_are_taken(dtype: Any) -> None:
    stream = np.array([U, 100, E, A, 101, E, X, U], dtype)
    blocks, _ = pack(stream, block_size=4, markers=MARKERS)
    assert blocks.input_ids.dtype == np.int32
    assert blocks.input_ids.tolist() == [[U, 100, E, A], [101, E, X, U]]


def test_ids_beyond_int32_are_packed_as_int64_and_nothing_else_changes() -> None:
    far = 2**40
    blocks, _ = pack([U, far, E, A, far + 1, E, X, X], block_size=8, markers=MARKERS)
    assert blocks.input_ids.dtype == np.int64
    assert blocks.input_ids.tolist() == [[U, far, E, A, far + 1, E, X, X]]
    assert blocks.loss_mask.tolist() == [[0, 0, 0, 1, 1, 1, 0, 0]]


@pytest.mark.parametrize("far", [2**31, 2**40, 2**63 - 1])
def test_markers_may_have_ids_that_the_tokens_dtype_cannot_hold(far: int) -> None:
    markers = Markers(eos=far, system=S, user=U, assistant=A, end=E)
    found = find_markers(np.array([S, 1, E, 2, U], np.int32), markers)
    assert (found.positions.tolist(), found.kinds.tolist()) == ([0, 2, 4], [1, 4, 2])
    blocks, _ = pack([U, 1, E, A, 2, E, far], block_size=7, markers=markers)
    assert blocks.loss_mask.tolist() == [[0, 0, 0, 1, 1, 1, 0]]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([U, -1, E], "token id -1 is negative"),
        (np.array([1, 2, -7], np.int64), "token id -7 is negative\n  where: token 2"),
        ([U, 2**63], "9223372036854775808"),
        ([U, 2**80], "1208925819614629174706176"),
        ([U, -(2**80)], "-1208925819614629174706176"),
        ([1.5, 2.0], "whole numbers"),
        ([True, False], "whole numbers"),
        (["a"], "whole numbers"),
        ([None, 1], "whole numbers"),
        ([[1, 2], [3, 4]], "one flat stream"),
        ([[1, 2], [3]], "no tokens"),
    ],
)
def test_what_is_no_token_id_is_refused_by_name(tokens: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack(tokens, block_size=4, markers=MARKERS)
    with pytest.raises(ChatError, match=message):
        pack(tokens, block_size=4, markers=MARKERS, post_training=False)


def test_a_refused_call_leaves_the_packer_as_it_was() -> None:
    packer = Packer(block_size=4, markers=MARKERS)
    packer.feed([U, 100, E])
    before = packer.state()
    with pytest.raises(ChatError, match="does not fit into int32"):
        packer.feed([A, 2**31])
    assert packer.state() == before


@pytest.mark.parametrize("size", [1, 0, -3, True, 2.0, None])
def test_a_block_predicts_one_token_or_more(size: Any) -> None:
    with pytest.raises(ValueError, match="block_size must be at least 2"):
        Packer(block_size=size, markers=MARKERS)


@pytest.mark.parametrize("pad", [S, U, A, E, -1, 2**31])
def test_padding_that_would_be_read_as_structure_is_refused(pad: int) -> None:
    with pytest.raises(ChatError, match="padd"):
        Packer(block_size=4, markers=MARKERS, pad_tail=pad)


def test_the_tail_may_be_padded_with_the_eos() -> None:
    blocks, _ = pack([U, 1, E, A, 2, E], block_size=8, markers=MARKERS, pad_tail=X)
    assert blocks.loss_mask.tolist() == [[0, 0, 0, 1, 1, 1, 0, 0]]


def test_a_finished_packer_takes_no_more() -> None:
    packer = Packer(block_size=4, markers=MARKERS)
    packer.finish()
    assert len(packer.finish()) == 0
    with pytest.raises(ChatError, match="has been finished"):
        packer.feed([1])


@pytest.mark.parametrize("state", [{}, {"version": 99}, {"version": 1, "options": {"block_size": 4}}])
def test_what_is_no_state_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(ChatError, match="packing state"):
        Packer.from_state(state)


def test_the_caller_may_write_into_its_array_and_into_the_blocks() -> None:
    buffer = np.array([U, 100, E], np.int32)
    packer = Packer(block_size=4, markers=MARKERS)
    packer.feed(buffer)
    buffer[:] = 7
    blocks = packer.feed(np.array([A, 9], np.int32))
    assert blocks.input_ids.tolist() == [[U, 100, E, A]]
    blocks.input_ids[:] = 0
    assert packer.state()["held"][-1] == 9


def test_strict_masks_need_to_know_what_was_injected() -> None:
    with pytest.raises(ChatError, match="needs `injected`"):
        loss_mask(np.array([[U, E]], np.int32), markers=MARKERS, strict_user=True)
    with pytest.raises(ChatError, match="two dimensions"):
        loss_mask(np.array([U, E], np.int32), markers=MARKERS)


# Markers


def test_missing_and_colliding_markers_are_named() -> None:
    with pytest.raises(ValueError, match=r"no id for <\|SYSTEM\|>, <\|END\|>"):
        Markers(eos=0, system=None, user=1, assistant=2, end=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"share an id: <\|USER\|> 1, <\|ASSISTANT\|> 1"):
        Markers(eos=0, system=3, user=1, assistant=1, end=2)
    with pytest.raises(ChatError, match=r"share an id: <\|PAD\|> 0, <\|EOS\|> 0"):
        Markers(eos=0, system=3, user=1, assistant=4, end=2, pad=0)
    with pytest.raises(ChatError, match=r"the id of <\|USER\|> is -1"):
        Markers(eos=0, system=3, user=-1, assistant=4, end=2)


@settings(max_examples=drawn(300, 50))
@given(st.permutations([0, 1, 2, 3, 4, 5, 6, 7, 300]), st.lists(st.integers(0, 8) | st.just(300), max_size=300))
def test_markers_are_found_whatever_their_ids(ids: list[int], tokens: list[int]) -> None:
    markers = Markers(eos=ids[0], system=ids[1], user=ids[2], assistant=ids[3], end=ids[4])
    found = find_markers(np.array(tokens, np.int32), markers)
    wanted = [(place, ids[:5].index(token)) for place, token in enumerate(tokens) if token in ids[:5]]
    assert list(zip(found.positions.tolist(), found.kinds.tolist(), strict=True)) == wanted


def test_markers_are_found_far_into_a_long_stream() -> None:
    tokens = np.full(100_000, 100, np.int32)
    tokens[[0, 32_767, 32_768, 65_536, 99_999]] = [S, E, U, E, X]
    found = find_markers(tokens, MARKERS)
    assert found.positions.tolist() == [0, 32_767, 32_768, 65_536, 99_999]
    assert found.kinds.tolist() == [1, 4, 2, 4, 0]
