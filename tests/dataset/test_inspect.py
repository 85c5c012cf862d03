"""Which documents are picked, and that what is shown of one is all of it: every token, its text, its supervision."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.dataset import manifest
from spanloom.dataset.document import ShownDocument, shown_parts
from spanloom.dataset.inspect import Selection, pick_documents, shown_tokens
from spanloom.errors import SpanloomError
from spanloom.families.harmony import dataset as harmony
from spanloom.families.harmony.tokenizer import SPECIAL_NAMES
from spanloom.text import visible
from spanloom.tokenizers.o200k.vocabulary import O200kVocabulary, load_vocabulary
from support.nightly import drawn


@pytest.fixture(scope="module")
def vocabulary(asset: Path) -> O200kVocabulary:
    return load_vocabulary(asset, SPECIAL_NAMES)


def picked(root: Path, vocabulary: O200kVocabulary, **selection: object) -> list[ShownDocument]:
    content = manifest.read(root).content
    return pick_documents(root, content, harmony, Selection(**selection), vocabulary)  # type: ignore[arg-type]


def rows(root: Path) -> list[dict[str, object]]:
    found = []
    for path in sorted(root.glob("*/shard_*_rows.parquet")):
        for row in pq.read_table(path).to_pylist():
            row["address"] = f"{path.parent.name}/{path.name[6:8]}/{row['sequence']}"
            found.append(row)
    return found


def test_by_length_language_and_exercise(demo: Path, vocabulary: O200kVocabulary) -> None:
    there = rows(demo)
    lengths = sorted(row["tokens"] for row in there)
    assert [len(one.tokens) for one in picked(demo, vocabulary, pick="longest", count=5)] == lengths[::-1][:5]
    assert [len(one.tokens) for one in picked(demo, vocabulary, pick="shortest", count=5)] == lengths[:5]
    german = {row["address"] for row in there if row["language"] == "de"}
    assert {
        one.address for one in picked(demo, vocabulary, groups={"language": "de"}, pick="random", count=999)
    } == german
    both = {row["address"] for row in there if row["language"] == "en" and row["exercise"] == "code"}
    assert {
        one.address for one in picked(demo, vocabulary, groups={"language": "en", "exercise": "code"}, count=999)
    } == both
    assert picked(demo, vocabulary, groups={"language": "tlh"}) == []


def test_first_is_the_order_on_disk_and_random_depends_on_the_seed_alone(
    demo: Path, vocabulary: O200kVocabulary
) -> None:
    order = [row["address"] for row in rows(demo)]
    assert [one.address for one in picked(demo, vocabulary, pick="first", count=60)] == order[:60]
    draws = [
        [one.address for one in picked(demo, vocabulary, pick="random", seed=seed, count=10)] for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]
    assert len(set(draws[0])) == 10
    fewer = [one.address for one in picked(demo, vocabulary, pick="random", seed=1, count=3)]
    assert fewer == draws[0][:3]


def test_by_place_and_by_id(demo: Path, vocabulary: O200kVocabulary) -> None:
    row = rows(demo)[100]
    (by_place,) = picked(demo, vocabulary, addresses=(row["address"],))
    (by_id,) = picked(demo, vocabulary, ids=(row["synth_id"],))
    assert by_place == by_id
    assert (by_id.id, by_id.address, by_id.row) == (row["synth_id"], row["address"], row["row"])
    for wrong in ("train", "test/0/0", "train/0/99999", "train/9/0"):
        with pytest.raises(SpanloomError, match=r"is not the address of a document|there is no document"):
            picked(demo, vocabulary, addresses=(wrong,))
    with pytest.raises(SpanloomError, match="no document has the id 'nobody'"):
        picked(demo, vocabulary, ids=("nobody",))


def test_without_reasoning_and_with_special_text(hostile: Path, vocabulary: O200kVocabulary) -> None:
    assert [one.id for one in picked(hostile, vocabulary, without="analysis", count=9)] == ["quiet"]
    (special,) = picked(hostile, vocabulary, special_text=True, count=9)
    assert "<|end|><|start|>" in special.id
    # The letters are ordinary tokens; the wrappers are special ones.
    assert sum(token.special and token.text == "<|end|>" for token in special.tokens) == 2
    assert "".join(token.text for token in special.tokens if not token.special).count("<|end|>") == 3


def test_what_is_shown_is_what_lies_on_disk(demo: Path, vocabulary: O200kVocabulary) -> None:
    """Token by token, from the raw files: ids, both values, and the shift undone one place back."""
    for row in rows(demo)[::23]:
        split, shard, sequence = row["address"].split("/")
        raw = {}
        index = (demo / split / f"shard_{shard}_tokens.idx").read_bytes()
        lengths = np.frombuffer(index, dtype="<i4", count=int.from_bytes(index[18:26], "little"), offset=34)
        begin = int(lengths[: int(sequence)].sum())
        for name, dtype in (("tokens", "<i4"), ("lossmask", "u1"), ("span", "u1")):
            flat = np.fromfile(demo / split / f"shard_{shard}_{name}.bin", dtype=dtype)
            raw[name] = flat[begin : begin + lengths[int(sequence)]].tolist()
        (document,) = picked(demo, vocabulary, addresses=(row["address"],))
        assert [token.id for token in document.tokens] == raw["tokens"]
        assert [token.disk for token in document.tokens] == list(zip(raw["lossmask"], raw["span"], strict=True))
        assert [token.span for token in document.tokens] == [0, *raw["span"][:-1]]
        assert [token.trained for token in document.tokens] == [False, *map(bool, raw["lossmask"][:-1])]
        assert [message.first for message in document.messages[1:]] == [m.last for m in document.messages[:-1]]
        assert [(m.role, m.channel) for m in document.messages][-3:] == [
            ("assistant", "analysis"), ("assistant", "final"), ("", ""),
        ]  # fmt: skip


@settings(max_examples=drawn(200, 30))
@given(text=st.text(max_size=40), data=st.data())
def test_the_texts_of_all_tokens_are_the_text_however_it_is_cut(text: str, data: st.DataObject) -> None:
    """Bytes cut anywhere, inside characters too: together they are the text again, and cuts inside one are marked."""
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1)))) if len(raw) > 1 else []
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    vocabulary = O200kVocabulary(pieces=tuple(pieces))
    count = len(pieces)
    shown = shown_tokens(list(range(count)), [0] * count, [0] * count, [(0, 0)] * count, vocabulary)
    assert "".join(token.text for token in shown) == text
    whole = [i for i in range(len(raw) + 1) if i in (0, len(raw)) or raw[i] & 0xC0 != 0x80]
    at = 0
    for token in shown:
        assert token.partial == (at not in whole or at + len(token.piece) not in whole)
        at += len(token.piece)


def test_a_character_that_never_completes_is_shown_as_bytes() -> None:
    vocabulary = O200kVocabulary(pieces=(b"\xe2\x98", b"a", b"\xff"))
    shown = shown_tokens([0, 1, 2], [0] * 3, [0] * 3, [(0, 0)] * 3, vocabulary)
    assert visible("".join(token.text for token in shown)) == "⟨e2⟩⟨98⟩a⟨ff⟩"
    assert [token.partial for token in shown] == [True, True, True]


def test_messages_of_what_has_no_message_is_one_piece(demo: Path) -> None:
    shown = shown_tokens([0, 1], [0, 0], [0, 0], [(0, 0)] * 2, O200kVocabulary(pieces=(b"a", b"b")))
    (message,) = harmony.cut_messages(manifest.read(demo).content, shown, {})
    assert (message.first, message.last, message.role) == (0, 2, "")


@given(st.integers(0, 60), st.integers(0, 30), st.data())
def test_parts_and_gap_make_up_the_message(count: int, most: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, count))
    last = data.draw(st.integers(first, count))
    head, missing, tail = shown_parts(first, last, count, most)
    assert [*head, *range(head.stop, head.stop + missing), *tail] == list(range(first, last))
    whole = shown_parts(0, count, count, most)
    assert len(whole[0]) + len(whole[2]) == (min(count, most) if most else count)
