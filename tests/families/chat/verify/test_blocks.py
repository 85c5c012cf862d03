"""What validation works out anew, against the given cases, and against the packing that it is there to doubt."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.families.chat.blocks.markers import Markers
from spanloom.families.chat.blocks.masks import loss_mask
from spanloom.families.chat.packing import pack
from spanloom.families.chat.verify.blocks import (
    CheckedBlocks,
    Rules,
    check_blocks,
    check_blocks_again,
    derived_mask,
    packed_again,
)

X, S, U, A, E = 0, 10, 11, 12, 13
MARKERS = Markers(eos=X, system=S, user=U, assistant=A, end=E)
TOKENS = st.lists(st.sampled_from([X, S, U, A, E, E, 100, 101, 102]), max_size=120)


def rules(block_size: int, **options: Any) -> Rules:
    said = {"post_training": True, "strict_user": False, "keep_lossless": True, "pad_tail": None, **options}
    ids = {"eos": X, "system": S, "user": U, "assistant": A, "end": E}
    return Rules(block_size=block_size, vocab_size=1000, **said, **ids)


def checked(
    tokens: np.ndarray, mask: np.ndarray, injected: np.ndarray, padding: np.ndarray | None = None
) -> CheckedBlocks:
    """Blocks as they stand on disk."""
    labels = np.zeros_like(mask)
    labels[:, :-1] = mask[:, 1:]
    none = np.zeros(len(tokens), dtype=np.int64)
    return CheckedBlocks(
        split="train", shard=0, first=0, tokens=tokens, lossmask=labels, injected=injected.astype(np.int64),
        padding=none if padding is None else padding,
    )  # fmt: skip


def test_the_plain_loop_gives_the_blocks_of_every_case(packing_cases: list[dict[str, Any]]) -> None:
    seen = 0
    for case in packing_cases:
        intended = case["intended"]
        if "error" in intended:
            continue
        again = list(packed_again(case["documents"], rules(case["block_size"])))
        assert [block.tokens for block in again] == intended["input_ids"], case["case"]
        assert [block.injected for block in again] == intended["injected_tokens"], case["case"]
        seen += 1
    assert seen > 30


def test_the_mask_is_derived_as_in_every_case(packing_cases: list[dict[str, Any]]) -> None:
    for case in packing_cases:
        intended = case["intended"]
        if not intended.get("input_ids"):
            continue
        tokens = np.array(intended["input_ids"], dtype=np.int32)
        ends = {"injected": np.array(intended["injected_tokens"]), "padding": np.zeros(len(tokens), dtype=np.int64)}
        size = case["block_size"]
        assert derived_mask(tokens, rules(size), **ends).tolist() == intended["loss_mask"], case["case"]
        strict = intended.get("loss_mask_strict", intended["loss_mask"])
        assert derived_mask(tokens, rules(size, strict_user=True), **ends).tolist() == strict, case["case"]


@given(
    stream=TOKENS,
    size=st.integers(2, 12),
    post=st.booleans(),
    strict=st.booleans(),
    keep=st.booleans(),
    pad=st.booleans(),
)
def test_any_packed_soup_is_clean(
    stream: list[int], size: int, post: bool, strict: bool, keep: bool, pad: bool
) -> None:
    options = {"post_training": post, "strict_user": strict, "keep_lossless": keep, "pad_tail": 14 if pad else None}
    blocks, counts = pack(np.array(stream, dtype=np.int32), block_size=size, markers=MARKERS, **options)
    padding = np.zeros(len(blocks), dtype=np.int64)
    padding[-1:] = counts.padding_tokens
    disk = checked(blocks.input_ids, blocks.loss_mask, blocks.injected, padding)
    assert [str(finding) for finding in check_blocks(disk, rules(size, **options))] == []
    assert [str(finding) for finding in check_blocks_again(disk, [stream], rules(size, **options))] == []


@given(stream=TOKENS, size=st.integers(2, 12), data=st.data())
def test_a_flipped_label_or_a_changed_token_is_found(stream: list[int], size: int, data: st.DataObject) -> None:
    blocks, _ = pack(np.array(stream, dtype=np.int32), block_size=size, markers=MARKERS)
    if not len(blocks):
        return
    block, offset = data.draw(st.integers(0, len(blocks) - 1)), data.draw(st.integers(0, size - 1))
    disk = checked(blocks.input_ids.copy(), blocks.loss_mask, blocks.injected)
    disk.lossmask[block, offset] ^= 1
    places = {(finding.sequence, finding.offset) for finding in check_blocks(disk, rules(size))}
    assert places == {(block, offset)}
    disk.lossmask[block, offset] ^= 1
    disk.tokens[block, offset] += 200
    found = [(finding.sequence, finding.offset) for finding in check_blocks_again(disk, [stream], rules(size))]
    assert found == [(block, offset)]


def test_each_kind_of_fault_is_named() -> None:
    tokens = np.array([[U, 100, E, A, 101, E, X, 100]], dtype=np.int32)
    mask = loss_mask(tokens, markers=MARKERS, strict_user=False)
    assert mask.tolist() == [[0, 0, 0, 1, 1, 1, 0, 0]]
    none = np.zeros(1, dtype=np.int64)

    def faults(**changed: Any) -> list[tuple[str, int | None]]:
        disk = checked(tokens.copy(), mask.copy(), changed.get("injected", none))
        for name in ("tokens", "lossmask"):
            for offset, value in changed.get(name, {}).items():
                getattr(disk, name)[0, offset] = value
        return [(finding.check, finding.offset) for finding in check_blocks(disk, rules(8))]

    assert faults() == []
    assert faults(tokens={1: 1000}) == [("ids", 1)]
    assert faults(tokens={1: -1}) == [("ids", 1)]
    assert faults(lossmask={3: 2}) == [("values", 3), ("loss_mask", 3)]
    assert faults(lossmask={7: 1}) == [("shift", 7), ("loss_mask", 7)]
    assert faults(lossmask={2: 0}) == [("loss_mask", 2)]
    assert faults(injected=np.array([2])) == [("injected", None)]
    assert faults(injected=np.array([1])) == []


@pytest.mark.parametrize("wrong", ["injected", "padding", "more"])
def test_the_source_says_what_was_injected_and_where_it_ends(wrong: str) -> None:
    stream = [S, 1, E, U, 2, 3, 4, 5, 6, 7, E, A, 8, E, X]
    blocks, counts = pack(np.array(stream, dtype=np.int32), block_size=8, markers=MARKERS, pad_tail=14)
    padding = np.array([0, 0, counts.padding_tokens][: len(blocks)])
    assert blocks.injected.tolist() == [0, 4, 0]
    assert counts.padding_tokens == 5
    disk = checked(blocks.input_ids, blocks.loss_mask, blocks.injected, padding)
    by = rules(8, pad_tail=14)
    assert list(check_blocks_again(disk, [stream], by)) == []
    if wrong == "more":
        found = list(check_blocks_again(disk, [stream[:5]], by))
        assert "the source gives" in found[0].message
    else:
        getattr(disk, wrong)[1] += 1
        (found_one,) = check_blocks_again(disk, [stream], by)
        assert found_one.sequence == 1
