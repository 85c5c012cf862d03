"""What a sample holds, key by key, and how a batch lays samples side by side."""

from typing import Any

import torch

from spanloom.families.chat.loader import PackedChatDataset
from spanloom.families.chat.samples import Sample, collate
from support.chat_transcripts import MARKERS, A, E, S, U, X


def samples(records: list[list[int]], *, post_training: bool = True, **options: Any) -> list[Sample]:
    return list(PackedChatDataset(records, markers=MARKERS, post_training=post_training, **options))


def test_the_mask_marks_only_assistant_spans_markers_included() -> None:
    record = [S, 90, E, U, 91, E, A, 92, 93, E, X]
    (sample,) = samples([record], block_size=11, position_ids=True, cu_seqlens=True)
    assert {key: value.tolist() for key, value in sample.items()} == {
        "input_ids": record,
        "loss_mask": [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0],
        "targets": [-100, -100, -100, -100, -100, A, 92, 93, E, -100],
        "attention_mask": [1] * 11,
        "position_ids": list(range(11)),
        "cu_seqlens": [0, 11],
    }
    assert {key: value.dtype for key, value in sample.items()} == {
        key: torch.int32 if key == "cu_seqlens" else torch.int64 for key in sample
    }


def test_positions_begin_anew_behind_eos() -> None:
    record = [[20, X], [21, 22, X], [X], [23, 24, 25]]
    (sample,) = samples(record, block_size=9, position_ids=True, cu_seqlens=True, post_training=False)
    assert sample["input_ids"].tolist() == [20, X, 21, 22, X, X, 23, 24, 25]
    assert sample["position_ids"].tolist() == [0, 1, 0, 1, 2, 0, 0, 1, 2]
    assert sample["cu_seqlens"].tolist() == [0, 2, 5, 6, 9]


def test_a_block_that_ends_in_eos_has_no_empty_conversation_behind_it() -> None:
    (sample,) = samples([[20, X, 21, X]], block_size=4, cu_seqlens=True, post_training=False)
    assert sample["cu_seqlens"].tolist() == [0, 2, 4]


def test_a_batch_lays_the_conversations_of_its_blocks_end_to_end() -> None:
    records = [[20, X, 21, X], [22, 23, 24, X]]
    batch = collate(samples(records, block_size=4, cu_seqlens=True, post_training=False))
    assert batch["input_ids"].tolist() == [[20, X, 21, X], [22, 23, 24, X]]
    assert batch["targets"].shape == (2, 3)
    assert batch["cu_seqlens"].tolist() == [0, 2, 4, 8]
    assert batch["cu_seqlens"].dtype == torch.int32
