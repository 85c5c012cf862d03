"""The vocabulary rebuilt by its rule, held against the list."""

from typing import Any

import numpy as np

from spanloom.families.chess.encoding.vocabulary import (
    BOARD_INDICES,
    BOARD_TOKENS,
    CASTLING_INDICES,
    ID_TO_INDEX,
    INDEX_TO_ID,
    MOVES,
    TOKEN_IDS,
    TOKENS,
)


def test_the_tokens_are_those_of_the_list(facts: dict[str, Any]) -> None:
    assert list(TOKENS) == facts["vocab"]["tokens_in_id_order"]
    assert {name: TOKEN_IDS[name] for name in facts["special_ids"]} == facts["special_ids"]


def test_the_board_tokens_are_those_of_the_list(facts: dict[str, Any]) -> None:
    assert list(BOARD_TOKENS) == facts["board_vocab"]["tokens_in_index_order"]
    assert INDEX_TO_ID.tolist() == facts["board_vocab"]["board_idx_to_full_idx"]


def test_there_are_1924_moves_1968_tokens_and_41_board_tokens() -> None:
    assert (len(MOVES), len(set(MOVES)), len(TOKENS), len(set(TOKENS)), len(BOARD_TOKENS)) == (
        1924,
        1924,
        1968,
        1968,
        41,
    )


def test_both_ways_between_ids_and_board_indices() -> None:
    assert ID_TO_INDEX[INDEX_TO_ID].tolist() == list(range(41))
    outside = np.setdiff1d(np.arange(1968), INDEX_TO_ID)
    assert (ID_TO_INDEX[outside] == -100).all()


def test_castling_rights_by_their_bits() -> None:
    assert [BOARD_TOKENS[CASTLING_INDICES[rights]] for rights in (0, 1, 2, 4, 8, 3, 12, 15)] == [
        *("no_castling_rights", "K", "Q", "k", "q", "KQ", "kq", "KQkq")
    ]
    assert BOARD_INDICES["start_think"] == 40
