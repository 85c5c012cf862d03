"""What torch gets: the packer's blocks, field by field, whatever ranks, workers, shuffling and interruptions do."""

import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.errors import ChatError, DatasetError, RecordError
from spanloom.families.chat.blocks.markers import Markers
from spanloom.families.chat.loader import (
    PackedChatDataset,
    PackedChatLoader,
    TranscriptFiles,
    shuffled,
)
from spanloom.families.chat.packing import pack
from spanloom.families.chat.samples import Sample
from spanloom.families.chat.tokenizer import ChatTokenizer, load_tokenizer
from support.chat_transcripts import MARKERS, A, E, S, U, X, text_records, token_records, write_tokenizer
from support.held_workers import HELD, KEEP_HELD, RELEASE_AT_EXIT, holding
from support.nightly import NIGHTLY, nightly
from support.ranks import run_ranks

RECORDS = token_records(1200)
B = 24
FORK = {"multiprocessing_context": "fork"}
"""Token lists are packed by numpy alone, so that these tests need not wait for spawned workers to import torch."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return load_tokenizer(write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "letters.json"))


def dataset(records: Any = RECORDS, **changes: Any) -> PackedChatDataset:
    return PackedChatDataset(records, **{"block_size": B, "post_training": True, "markers": MARKERS, **changes})


def rows(samples: Any, key: str = "input_ids") -> list[list[int]]:
    return [sample[key].tolist() for sample in samples]


def packed(records: list[list[int]], **changes: Any) -> list[list[int]]:
    """The blocks of these records as one stream."""
    options = {"block_size": B, "markers": MARKERS, **changes}
    blocks: list[list[int]] = pack([token for record in records for token in record], **options)[0].input_ids.tolist()
    return blocks


def same(left: list[Sample], right: list[Sample]) -> bool:
    return len(left) == len(right) and all(
        one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
        for one, other in zip(left, right, strict=True)
    )


class TestFields:
    def test_what_is_masked_are_assistant_spans_that_answer_a_user_and_are_whole(self) -> None:
        """Walked token by token over many blocks: outside of such a span nothing counts, inside all does."""
        seen = 0
        for sample in dataset(strict_user=False):
            ids, mask = sample["input_ids"].tolist(), sample["loss_mask"].tolist()
            expected, at = [0] * B, 0
            while at < B:
                end = next((here for here in range(at + 1, B) if ids[here] in (X, S, U, A, E)), None)
                if ids[at] == A and end is not None and ids[end] == E and U in ids[:at]:
                    # The records are well-formed: a user before an assistant in the block is the one it answers,
                    # unless the conversation changed in between.
                    last = max(here for here in range(at) if ids[here] in (X, U))
                    if ids[last] == U:
                        expected[at : end + 1] = [1] * (end + 1 - at)
                at += 1
            assert mask == expected, ids
            seen += sum(mask)
        assert seen > 1000

    def test_all_given_cases(self, packing_cases: list[dict[str, Any]]) -> None:
        seen = 0
        for case in packing_cases:
            wanted, words = case["intended"], case["words"]
            names = {"eos": "X", "system": "S", "user": "U", "assistant": "A", "end": "E"}
            ids = {name: words.get(name, words.get(short)) for name, short in names.items()}
            markers = Markers(**ids) if None not in ids.values() else MARKERS
            options = {"block_size": case["block_size"], "markers": markers}
            if "error" in wanted:
                with pytest.raises(ValueError):
                    dataset(case["documents"], **options)
                continue
            samples = list(dataset(case["documents"], strict_user=False, **options))
            assert rows(samples) == wanted["input_ids"], case["case"]
            assert rows(samples, "loss_mask") == wanted["loss_mask"], case["case"]
            assert rows(samples, "targets") == wanted["targets"], case["case"]
            assert rows(samples, "attention_mask") == [[1] * case["block_size"]] * len(samples)
            strict = rows(dataset(case["documents"], **options), "loss_mask")
            assert strict == wanted.get("loss_mask_strict", wanted["loss_mask"]), case["case"]
            seen += len(samples)
        assert seen > 100

    def test_without_post_training_every_token_counts_and_nothing_is_injected(self) -> None:
        stream = [token for record in RECORDS for token in record]
        samples = list(dataset(post_training=False))
        whole = len(stream) // B
        assert [token for row in rows(samples) for token in row] == stream[: whole * B]
        assert all(sample["loss_mask"].all() for sample in samples)
        assert all(torch.equal(sample["targets"], sample["input_ids"][1:]) for sample in samples)

    def test_ids_that_only_torch_can_hold_come_through(self) -> None:
        wide = Markers(eos=2**40, system=1, user=2, assistant=3, end=4)
        record = [2, 2**62, 4, 3, 2**63 - 1, 4, 2**40]
        (sample,) = dataset([record], block_size=7, markers=wide)
        assert sample["input_ids"].tolist() == record
        assert sample["targets"].tolist() == [-100, -100, 3, 2**63 - 1, 4, -100]

    def test_text_gives_what_its_tokens_give(self, tokenizer: ChatTokenizer) -> None:
        texts = dataset(text_records(1200), tokenizer=tokenizer, markers=None)
        assert same(list(texts), list(dataset()))


class TestShards:
    @pytest.mark.parametrize(("ranks", "workers"), [(1, 1), (2, 1), (1, 3), (3, 2)])
    @pytest.mark.parametrize("shuffle", [0, 100])
    def test_record_i_reaches_shard_i_mod_t_and_is_packed_there_alone(
        self, ranks: int, workers: int, shuffle: int
    ) -> None:
        order = list(shuffled(RECORDS, held=shuffle, seed=7, epoch=0)) if shuffle else RECORDS
        total = ranks * workers
        expected = [packed(order[shard::total]) for shard in range(total)]
        got: list[list[list[int]]] = []
        for rank in range(ranks):
            counts = dataset(rank=rank, world_size=ranks, shuffle=shuffle, seed=7).count(workers)
            assert [count.packing.blocks for count in counts] == [len(blocks) for blocks in expected[rank * workers :]][
                :workers
            ]
            for worker in range(workers):
                part = dataset(rank=rank, world_size=ranks, shuffle=shuffle, seed=7)
                got.append([row for each in part._packed(rank * workers + worker, total, None)
                            for row in each.blocks.input_ids.tolist()])  # fmt: skip
        assert got == expected

    @pytest.mark.filterwarnings("ignore:This DataLoader will create")
    @pytest.mark.parametrize("workers", [1, 2, 3])
    def test_workers_take_turns_and_leave_nothing_out(self, workers: int) -> None:
        shards = [packed(RECORDS[worker::workers]) for worker in range(workers)]
        batches = list(PackedChatLoader(dataset(), batch_size=4, workers=workers, **FORK))
        # Round-robin, batch by batch, each shard until it ends.
        queues = [iter([shard[first : first + 4] for first in range(0, len(shard), 4)]) for shard in shards]
        expected = []
        while queues:
            for queue in list(queues):
                if (batch := next(queue, None)) is None:
                    queues.remove(queue)
                else:
                    expected.append(batch)
        assert [batch["input_ids"].tolist() for batch in batches] == expected

    def test_spawned_workers_with_a_tokenizer_give_what_this_process_gives(
        self, tokenizer: ChatTokenizer, tmp_path: Path
    ) -> None:
        texts = text_records(200)
        pq.write_table(pa.table({"text": texts}), tmp_path / "transcripts.parquet")
        given_ = PackedChatDataset(
            tmp_path / "transcripts.parquet", tokenizer=tokenizer, block_size=B, post_training=True
        )
        batches = PackedChatLoader(given_, batch_size=4, workers=2)
        got = sorted(row for batch in batches for row in batch["input_ids"].tolist())
        tokens = token_records(200)
        assert got == sorted(packed(tokens[0::2]) + packed(tokens[1::2]))
        first = next(iter(batches))
        assert first["input_ids"].tolist() == packed(tokens[0::2])[:4]

    def test_records_of_files_close_their_spans_where_that_counts(
        self, tokenizer: ChatTokenizer, tmp_path: Path
    ) -> None:
        texts = text_records(60)
        broken = [text if number != 7 else text.removesuffix("<|END|>") for number, text in enumerate(texts)]
        assert broken != texts
        path = tmp_path / "transcripts.parquet"
        pq.write_table(pa.table({"text": broken}), path)
        options: dict[str, Any] = {"tokenizer": tokenizer, "block_size": B}
        with pytest.raises(ChatError, match="record 7 opens a span with"):
            list(PackedChatDataset(path, post_training=True, **options))
        skipping = PackedChatDataset(path, post_training=True, on_error="skip", **options)
        rest = PackedChatDataset([*texts[:7], *texts[8:]], post_training=True, **options)
        assert same(list(skipping), list(rest))
        assert list(PackedChatDataset(path, post_training=False, **options)), "plain packing knows no spans"
        (tmp_path / "text").mkdir()
        (tmp_path / "text/a.txt").write_text("\n<|EOS|>\n".join(texts))
        files = TranscriptFiles(source=tmp_path / "text", records="eos", closed=True)
        assert same(
            list(PackedChatDataset(files, post_training=True, **options)),
            list(PackedChatDataset(texts, post_training=True, **options)),
        )

    @pytest.mark.parametrize(("workers", "late"), [nightly(0, False), nightly(2, False), (2, True), nightly(4, True)])
    def test_leaving_in_the_middle_of_a_pass_prints_nothing(self, tmp_path: Path, workers: int, late: bool) -> None:
        """Neither an abort of a worker, nor what a reader says that Python closes at its own end, nor what torch says
        of workers that are `late`: still importing when the first one's batch is here."""
        pq.write_table(pa.table({"text": text_records(20_000)}), tmp_path / "transcripts.parquet", row_group_size=500)
        write_tokenizer(tmp_path / "letters.json")
        leave = (
            "from pathlib import Path\n"
            "from spanloom.families.chat.loader import PackedChatDataset, PackedChatLoader\n"
            "from spanloom.families.chat.tokenizer import load_tokenizer\n"
            "if __name__ == '__main__':\n"
            "    here = Path(__file__).parent\n"
            "    tokenizer = load_tokenizer(here / 'letters.json')\n"
            "    given = PackedChatDataset(\n"
            "        here / 'transcripts.parquet', tokenizer=tokenizer, block_size=16, post_training=True\n"
            "    )\n"
            f"{KEEP_HELD if late else ''}"
            f"    batches = iter(PackedChatLoader(given, batch_size=2, workers={workers}))\n"
            "    print(next(batches)['input_ids'].shape)\n"
            f"{RELEASE_AT_EXIT if late else ''}"
        )
        (tmp_path / "leave.py").write_text(holding(leave, free=("SpawnProcess-1",)) if late else leave)
        command = [sys.executable, "-W", "ignore:This DataLoader will create", "leave.py"]
        left = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert [line for line in left.stdout.splitlines() if line != HELD] == ["torch.Size([2, 16])"]
        assert (left.returncode, left.stderr) == (0, "")

    def test_more_shards_than_records(self) -> None:
        few = RECORDS[:3]
        parts = [list(dataset(few, rank=rank, world_size=5, block_size=4)) for rank in range(5)]
        assert [rows(part) for part in parts] == [
            *(packed([record], block_size=4) for record in few),
            [],
            [],
        ]

    def test_no_records(self) -> None:
        assert list(dataset([])) == []
        assert list(PackedChatLoader(dataset([]), batch_size=2)) == []

    def test_gloo_ranks_partition_the_records(self, tmp_path: Path) -> None:
        """Two processes with torch.distributed: each finds its rank there, and reads its records only."""
        for done in run_ranks("support.loader_rank", tmp_path, ranks=2):
            assert done.returncode == 0, done.stderr
        got = [json.loads((tmp_path / f"rank_{rank}.json").read_text()) for rank in range(2)]
        for rank in range(2):
            assert got[rank]["alone"] == packed(RECORDS[rank::2])
        for rank in (0, 1) if NIGHTLY else (1,):
            shards = [packed(RECORDS[rank * 2 + worker :: 4]) for worker in range(2)]
            assert sorted(got[rank]["with_workers"]) == sorted(shards[0] + shards[1])

    def test_a_rank_that_is_not_known_yet_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "4")
        with pytest.raises(DatasetError, match="not initialised yet"):
            dataset()
        assert dataset(rank=3, world_size=4).rank == 3
        with pytest.raises(ChatError, match="no rank 4 of 4"):
            dataset(rank=4, world_size=4)
        with pytest.raises(ChatError, match="go together"):
            dataset(rank=0)


class TestShuffle:
    @given(st.integers(0, 60), st.integers(1, 70), st.integers(), st.integers(0, 5))
    def test_every_record_once_and_none_far_ahead_of_its_place(
        self, number: int, held: int, seed: int, epoch: int
    ) -> None:
        drawn = list(shuffled(range(number), held=held, seed=seed, epoch=epoch))
        assert sorted(drawn) == list(range(number))
        # Value v has been read only when v − held others were given out.
        assert all(value - place <= held for place, value in enumerate(drawn))

    def test_the_order_is_that_of_seed_and_epoch(self) -> None:
        def order(**changes: int) -> list[int]:
            return list(shuffled(range(500), **{"held": 100, "seed": 1, "epoch": 0, **changes}))

        assert order() == order()
        assert len({tuple(order(seed=seed, epoch=epoch)) for seed in (1, 2, 3) for epoch in (0, 1, 2)}) == 9

    def test_all_places_are_equally_likely(self) -> None:
        """Over many seeds each value of four is first in about a quarter: five deviations of a binomial."""
        first = np.bincount([next(shuffled(range(4), held=4, seed=seed, epoch=0)) for seed in range(4000)], minlength=4)
        assert np.abs(first - 1000).max() < 5 * math.sqrt(4000 * 0.25 * 0.75)

    def test_no_more_is_read_than_is_held(self) -> None:
        read: list[int] = []

        def values() -> Iterator[int]:
            for value in range(1000):
                read.append(value)
                yield value

        drawn = shuffled(values(), held=50, seed=0, epoch=0)
        for given_ in range(1, 500):
            next(drawn)
            assert len(read) <= given_ + 50

    def test_another_epoch_is_another_order_of_the_same_records(self) -> None:
        both = dataset(shuffle=100, keep_lossless=True)
        first = rows(both)
        assert rows(both) == first, "a pass again is the same"
        both.set_epoch(1)
        order = list(shuffled(RECORDS, held=100, seed=0, epoch=1))
        assert rows(both) == packed(order) != first


def interrupted(make: Callable[[], Any], after: int) -> tuple[list[Sample], list[Sample]]:
    """What is given before and after an interruption: a new object gets the state through JSON."""
    begun = make()
    head = list(islice(iter(begun), after))
    state = json.loads(json.dumps(begun.state_dict()))
    resumed = make()
    resumed.load_state_dict(state)
    assert json.loads(json.dumps(resumed.state_dict())) == state, "as long as nothing was read, it is the same place"
    return head, list(resumed)


class TestResume:
    @given(
        st.integers(0, 400),
        st.integers(0, 200),
        st.booleans(),
        st.sampled_from([None, 14]),
        st.integers(1, 3),
    )
    @settings(max_examples=25)
    def test_after_any_sample_the_rest_is_that_of_an_unbroken_pass(
        self, after: int, shuffle: int, post_training: bool, pad: int | None, ranks: int
    ) -> None:
        def make() -> PackedChatDataset:
            return dataset(
                token_records(600, seed=3),
                shuffle=shuffle,
                post_training=post_training,
                pad_tail=pad,
                rank=ranks - 1,
                world_size=ranks,
                position_ids=True,
            )

        head, tail = interrupted(make, after)
        assert same(head + tail, list(make()))

    @pytest.mark.filterwarnings("ignore:This DataLoader will create")
    @pytest.mark.parametrize(("workers", "shuffle"), [(0, 0), nightly(0, 100), nightly(2, 0), (3, 100)])
    @pytest.mark.parametrize("drop_last", [nightly(False), True])
    def test_with_workers_too_though_they_read_ahead(self, workers: int, shuffle: int, drop_last: bool) -> None:
        options: dict[str, Any] = {"drop_last": drop_last, **(FORK if workers else {})}

        def make() -> PackedChatLoader:
            return PackedChatLoader(
                dataset(RECORDS[:300], shuffle=shuffle, cu_seqlens=True), batch_size=4, workers=workers, **options
            )

        unbroken = list(make())
        cuts = (0, 1, 8, len(unbroken) - 2, len(unbroken))
        for after in cuts if NIGHTLY or not workers else cuts[2:4]:  # starting workers takes seconds
            head, tail = interrupted(make, after)
            assert same(head + tail, unbroken), after

    def test_the_place_is_small(self) -> None:
        begun = dataset(block_size=64)
        samples = iter(begun)
        sizes = []
        for sample in samples:
            sizes.append(len(json.dumps(begun.state_dict())))
            assert sample["input_ids"].numel() == 64
        assert max(sizes) < 2500, "two blocks and some counters, wherever in the pass"

    def test_a_dataset_travels_to_a_worker_process_with_its_place(self, tokenizer: ChatTokenizer) -> None:
        begun = dataset(text_records(300), tokenizer=tokenizer, markers=None)
        unbroken = list(begun)
        list(islice(iter(begun), 11))
        resumed = dataset(text_records(300), tokenizer=tokenizer, markers=None)
        resumed.load_state_dict(begun.state_dict())
        assert same(list(pickle.loads(pickle.dumps(resumed))), unbroken[11:])


class TestBadInput:
    def test_a_record_that_is_no_text_is_named_or_left_out_and_counted(self, tokenizer: ChatTokenizer) -> None:
        texts = text_records(600)
        holed: list[Any] = [*texts[:300], None, *texts[300:500], 7, "\ud800", *texts[500:]]
        options: dict[str, Any] = {"tokenizer": tokenizer, "markers": None}
        with pytest.raises(ChatError, match=r"(?s)is NoneType, not text.*record 300"):
            list(dataset(holed, **options))
        with pytest.raises(ChatError, match=r"(?s)is int, not text.*record 501"):
            list(dataset([*holed[:300], "", *holed[301:]], **options))
        with pytest.raises(ChatError, match=r"(?s)surrogate.*record 502"):
            list(dataset([*holed[:300], "", *holed[301:501], "", *holed[502:]], **options))
        skipping = dataset(holed, on_error="skip", **options)
        assert same(list(skipping), list(dataset(texts, **options)))
        (count,) = skipping.count()
        assert (count.records, count.left_out) == (603, 3)

    def test_records_are_named_by_their_number_among_all(self) -> None:
        holed: list[Any] = [*RECORDS[:301], None]
        with pytest.raises(ChatError, match=r"(?s)list of token ids.*record 301"):
            list(dataset(holed, rank=1, world_size=4))
        list(dataset(holed, rank=0, world_size=4))

    @pytest.mark.parametrize(
        ("record", "words"),
        [([20, -1], "negative"), ([2**63], "int64"), ([1.5], "whole numbers"), ([[20]], "flat")],
    )
    def test_ids_that_are_none(self, record: Any, words: str) -> None:
        with pytest.raises(ValueError, match=rf"(?s){words}.*record 2"):
            list(dataset([[20], [21], record]))

    def test_what_cannot_be_packed_with_is_refused_at_once(self) -> None:
        with pytest.raises(ChatError, match="block_size"):
            dataset(block_size=1)
        with pytest.raises(ChatError, match="neither a tokenizer nor markers"):
            dataset(markers=None)
        for once in (iter(RECORDS), "records.parquet"):
            with pytest.raises(ChatError, match="iterated again"):
                dataset(once)
        with pytest.raises(ChatError, match="on_error"):
            dataset(on_error="ignore")
        with pytest.raises(ChatError, match="outlive"):
            PackedChatLoader(dataset(), batch_size=2, workers=1, persistent_workers=True)

    def test_files_name_the_line_or_leave_it_out_under_its_number(
        self, tokenizer: ChatTokenizer, tmp_path: Path
    ) -> None:
        texts = text_records(40)
        lines = [json.dumps({"text": text}) for text in texts]
        file = tmp_path / "transcripts.jsonl"
        file.write_text("\n".join([*lines[:5], "{", *lines[5:9], json.dumps({"text": None}), *lines[9:], "]"]) + "\n")
        options: dict[str, Any] = {"tokenizer": tokenizer, "markers": None}
        with pytest.raises(RecordError, match=r"(?s)not JSON.*transcripts\.jsonl, line 6"):
            list(dataset(file, **options))
        assert list(TranscriptFiles(source=file, on_error="skip")) == [
            *texts[:5],
            None,
            *texts[5:9],
            None,
            *texts[9:],
            None,
        ]
        skipping = dataset(file, on_error="skip", rank=1, world_size=2, **options)
        (count,) = skipping.count()
        assert (count.records, count.left_out) == (21, 1)
        file.write_text("\n".join([*lines[:4], json.dumps({"text": None})]) + "\n")
        with pytest.raises(ChatError, match=r"(?s)null.*transcripts\.jsonl, line 5"):
            list(dataset(file, **options))
