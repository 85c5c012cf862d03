"""Packed chat that is false and fits together.

Each forgery changes one thing, and all that follows from it but for what only the blocks, the options or the
transcripts can tell.
"""

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanloom.errors import ChatError
from support.chat_datasets import packed, write_transcripts
from support.forging import Forgeries, forged, validated
from tools.corruption.dataset import Dataset, Document, plus

forgery = Forgeries()
WORDS = ["river", "mount", "tidal", "moons", "house", "train", "green", "brown", "olden", "seven"]
SIZE = 64


def texts() -> list[str]:
    """120 conversations of several turns; some questions are longer than a block."""
    drawn = random.Random(3)
    made = []
    for number in range(120):
        parts = [f"<|SYSTEM|>Be {drawn.choice(WORDS)}.<|END|>"] if number % 3 else []
        for turn in range(drawn.choice([1, 2, 3])):
            many = 40 if number % 10 == 5 and turn == 0 else 4
            question, answer = (" ".join(drawn.choice(WORDS) for _ in range(count)) for count in (many, 5))
            parts.append(f"<|USER|>{question}?<|END|><|ASSISTANT|>{answer} {number}.<|END|>")
        made.append("".join(parts))
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An honest dataset with a padded tail, and its transcripts."""
    folder = tmp_path_factory.mktemp("forged")
    write_transcripts(folder / "transcripts.jsonl", texts())
    result = packed(folder, pad_tail=True, reader="independent")
    assert result.report.clean, result.report.findings
    return result.root, folder / "transcripts.jsonl"


def report_of(name: str, made: tuple[Path, Path], folder: Path, level: str = "") -> Any:
    root, source = made
    return forgery.report(name, root, folder, source, level, tokenizer=source.with_name("tokenizer.json"))


def blocks(dataset: Dataset) -> list[Document]:
    return dataset.documents["train", 0]


def marker(dataset: Dataset, name: str) -> int:
    return int(dataset.manifest["content"]["config"]["markers"][name]["id"])


def packing(dataset: Dataset) -> dict[str, int]:
    counts: dict[str, int] = dataset.manifest["content"]["shards"][0]["packing"]
    return counts


def remasked(dataset: Dataset) -> None:
    """The loss mask, the columns and the counts that follow from the tokens, as the specification words them."""
    eos, system, user, assistant, end = (marker(dataset, n) for n in ("eos", "system", "user", "assistant", "end"))
    counts = packing(dataset)
    for block in blocks(dataset):
        mask = np.zeros(block.tokens.size, np.uint8)
        role, sound, begin, copied = "", False, 0, False
        stop = block.tokens.size - block.about["padding_tokens"]
        for at, token in enumerate(block.tokens[:stop].tolist()):
            if token == end:
                if role == "assistant" and sound:
                    mask[begin : at + 1] = 1
                sound = not copied if role == "user" else sound
                role = ""
            elif token == assistant:
                role, begin = "assistant", at
            elif token in (eos, system, user):
                role, sound = "user" if token == user else "", False
                copied = role == "user" and at == block.about["injected_tokens"] - 1
        block.lossmask = np.append(mask[1:], np.uint8(0))
        block.span = block.lossmask
        block.about["conversations"] = int((block.tokens[:stop] == eos).sum())
    counts["blocks"] = len(blocks(dataset))
    counts["loss_tokens"] = int(sum(block.lossmask.sum() for block in blocks(dataset)))
    counts["lossless_blocks"] = sum(not block.lossmask.any() for block in blocks(dataset))
    for name in ("injected_tokens", "padding_tokens"):
        counts[name] = sum(block.about[name] for block in blocks(dataset))
    counts["injected_blocks"] = sum(block.about["injected_tokens"] > 0 for block in blocks(dataset))
    written = sum(block.tokens.size for block in blocks(dataset))
    lost = counts["dropped_tokens"] + counts["tokens_given_up"] + counts["tail_tokens"]
    counts["tokens_in"] = written + lost - counts["injected_tokens"] - counts["padding_tokens"]


def injected(dataset: Dataset) -> int:
    """The number of a block that begins with a system span and USER, and holds more of its conversation."""
    found = (number for number, block in enumerate(blocks(dataset)) if block.about["injected_tokens"] > 2)
    return next(number for number in found if (blocks(dataset)[number].tokens == marker(dataset, "end")).sum() > 2)


def plain(dataset: Dataset, name: str = "assistant") -> tuple[Document, int]:
    """A block and the place of the third token of a span in it."""
    for block in blocks(dataset)[2:]:
        for at in np.flatnonzero(block.tokens == marker(dataset, name)).tolist():
            if block.about["injected_tokens"] <= at < SIZE - 6 and not any(
                block.tokens[at + 1 : at + 5] == marker(dataset, "end")
            ):
                return block, at + 3
    raise AssertionError(name)


forgery.values(
    lambda dataset: dataset.manifest["content"],
    {
        "the_block_size_is_another": ("alone", "config.block_size", 32),
        "every_token_counts": ("alone", "config.post_training", False),
        "the_stop_rule_applied_once_more": ("alone", "shards.0.packing.stops", plus(1)),
        "the_input_is_another_file": ("source", "input.shards.0.path", "others.jsonl"),
    },
)


@forgery("alone")
def _a_token_of_the_user_is_trained(dataset: Dataset) -> None:
    block, at = plain(dataset, "user")
    block.lossmask[at - 1] = 1
    packing(dataset)["loss_tokens"] += 1


@forgery("alone")
def _all_tokens_are_trained(dataset: Dataset) -> None:
    for block in blocks(dataset):
        block.lossmask[:-1] = 1
    packing(dataset)["loss_tokens"] = len(blocks(dataset)) * (SIZE - 1)
    packing(dataset)["lossless_blocks"] = 0


@forgery("alone")
def _an_end_is_not_trained(dataset: Dataset) -> None:
    block = next(block for block in blocks(dataset) if block.lossmask.any())
    block.lossmask[np.flatnonzero(block.lossmask)[-1]] = 0
    packing(dataset)["loss_tokens"] -= 1


@forgery("alone")
def _an_answer_is_not_trained(dataset: Dataset) -> None:
    block = next(block for block in blocks(dataset) if block.lossmask.any())
    packing(dataset)["loss_tokens"] -= int(block.lossmask.sum())
    packing(dataset)["lossless_blocks"] += 1
    block.lossmask[:] = 0


@forgery("alone")
def _an_answer_that_a_block_cuts_is_trained(dataset: Dataset) -> None:
    assistant = marker(dataset, "assistant")
    block = next(
        each
        for each in blocks(dataset)
        if (each.tokens == assistant).any()
        and not (each.tokens[np.flatnonzero(each.tokens == assistant)[-1] :] == marker(dataset, "end")).any()
    )
    first = int(np.flatnonzero(block.tokens == assistant)[-1])
    before = int(block.lossmask.sum())
    block.lossmask[first - 1 : -1] = 1
    packing(dataset)["loss_tokens"] += int(block.lossmask.sum()) - before
    packing(dataset)["lossless_blocks"] -= not before


@forgery("alone")
def _the_mask_is_a_place_late(dataset: Dataset) -> None:
    for block in blocks(dataset):
        block.lossmask = np.insert(block.lossmask[:-1], 0, 0)
        packing(dataset)["loss_tokens"] -= int(block.lossmask[-1])
        block.lossmask[-1] = 0


@forgery("alone")
def _the_last_label_of_a_block_is_trained(dataset: Dataset) -> None:
    blocks(dataset)[1].lossmask[-1] = 1
    packing(dataset)["loss_tokens"] += 1


@forgery("alone")
def _a_marker_is_in_a_question(dataset: Dataset) -> None:
    block, at = plain(dataset, "user")
    block.tokens[at] = marker(dataset, "assistant")
    remasked(dataset)


@forgery("alone")
def _an_eos_is_in_an_answer(dataset: Dataset) -> None:
    block, at = plain(dataset)
    block.tokens[at] = marker(dataset, "eos")
    remasked(dataset)


@forgery("alone")
def _a_span_is_not_closed(dataset: Dataset) -> None:
    block = blocks(dataset)[injected(dataset)]
    at = int(np.flatnonzero(block.tokens == marker(dataset, "end"))[1])
    block.tokens[at] = block.tokens[at - 1]
    remasked(dataset)


@forgery("alone")
def _two_blocks_are_exchanged(dataset: Dataset) -> None:
    number = injected(dataset)
    every = blocks(dataset)
    every[number], every[number - 1] = every[number - 1], every[number]
    remasked(dataset)


@forgery("alone")
def _a_block_is_there_twice(dataset: Dataset) -> None:
    number = injected(dataset)
    first = blocks(dataset)[number - 1]
    copy = Document(first.tokens.copy(), first.lossmask.copy(), first.span.copy(), dict(first.about))
    blocks(dataset).insert(number, copy)
    remasked(dataset)


@forgery("alone")
def _a_block_is_left_out(dataset: Dataset) -> None:
    blocks(dataset).pop(injected(dataset) - 1)
    remasked(dataset)


@forgery("alone")
def _copies_are_not_there(dataset: Dataset) -> None:
    block = blocks(dataset)[injected(dataset)]
    count = block.about["injected_tokens"]
    block.tokens = np.concatenate([block.tokens[count:], block.tokens[-1:].repeat(count)])
    block.about["injected_tokens"] = 0
    remasked(dataset)


@forgery("alone")
def _copies_are_not_counted(dataset: Dataset) -> None:
    blocks(dataset)[injected(dataset)].about["injected_tokens"] = 0
    remasked(dataset)


@forgery("alone")
def _a_copied_system_text_is_another(dataset: Dataset) -> None:
    block = blocks(dataset)[injected(dataset)]
    block.tokens[1:3] = block.tokens[1:3][::-1]
    remasked(dataset)


@forgery("alone")
def _a_block_has_padding_in_the_middle_of_a_shard(dataset: Dataset) -> None:
    block = blocks(dataset)[2]
    block.tokens[-4:] = marker(dataset, "pad")
    block.about["padding_tokens"] = 4
    remasked(dataset)


@forgery("alone")
def _padding_is_not_counted(dataset: Dataset) -> None:
    block = blocks(dataset)[-1]
    assert block.about["padding_tokens"]
    block.about["padding_tokens"] = 0
    remasked(dataset)
    packing(dataset)["tail_tokens"] = 5


@forgery("alone")
def _blocks_are_of_another_length(dataset: Dataset) -> None:
    for block in blocks(dataset):
        for name in ("tokens", "lossmask", "span"):
            setattr(block, name, getattr(block, name)[:-1])
    remasked(dataset)


@forgery("alone")
def _conversations_are_counted_that_do_not_end(dataset: Dataset) -> None:
    blocks(dataset)[1].about["conversations"] += 1


@forgery("alone")
def _the_marker_of_answers_is_that_of_questions(dataset: Dataset) -> None:
    markers = dataset.manifest["content"]["config"]["markers"]
    markers["user"]["id"], markers["assistant"]["id"] = markers["assistant"]["id"], markers["user"]["id"]


@forgery("alone")
def _answers_to_questions_that_were_cut_count(dataset: Dataset) -> None:
    config = dataset.manifest["content"]["config"]
    config["strict_user"] = not config["strict_user"]


@forgery("alone")
def _records_are_of_another_shard(dataset: Dataset) -> None:
    first, second = dataset.manifest["content"]["shards"]
    first["rows_read"], second["rows_read"] = first["rows_read"] + 1, second["rows_read"] - 1


@forgery("source")
def _more_tokens_were_given_up(dataset: Dataset) -> None:
    counts = next(s["packing"] for s in dataset.manifest["content"]["shards"] if s["packing"]["stops"])
    counts["tokens_given_up"] += 7
    counts["tokens_in"] += 7


@forgery("source")
def _a_token_of_an_answer_is_another(dataset: Dataset) -> None:
    block, at = plain(dataset)
    block.tokens[at] = block.tokens[at - 1]
    remasked(dataset)


@forgery("source")
def _a_token_of_a_question_is_another(dataset: Dataset) -> None:
    block, at = plain(dataset, "user")
    block.tokens[at] = block.tokens[at - 1]
    remasked(dataset)


@forgery("source")
def _an_answer_is_that_of_another(dataset: Dataset) -> None:
    """Two answers of the same length are exchanged."""
    assistant, end = marker(dataset, "assistant"), marker(dataset, "end")
    seen: dict[int, tuple[Document, int]] = {}
    for block in blocks(dataset):
        for at in np.flatnonzero(block.tokens == assistant).tolist():
            closed = np.flatnonzero(block.tokens[at:] == end)
            if not closed.size:
                continue
            length = int(closed[0])
            other = seen.setdefault(length, (block, at))
            first, second = other[0].tokens[other[1] : other[1] + length], block.tokens[at : at + length]
            if not np.array_equal(first, second):
                kept = first.copy()
                first[:], second[:] = second, kept
                return


@forgery("source")
def _conversations_at_the_end_are_left_out(dataset: Dataset) -> None:
    """The last blocks are missing, from one that begins with a conversation on."""
    ends = [n for n, b in enumerate(blocks(dataset)) if b.tokens[-1] == marker(dataset, "eos")]
    number = ends[-1] + 1 if ends else len(blocks(dataset)) - 1
    del blocks(dataset)[number:]
    remasked(dataset)


def test_an_honest_dataset_written_again_is_clean(made: tuple[Path, Path], tmp_path: Path) -> None:
    def nothing(dataset: Dataset) -> None:
        before = json.dumps(dataset.manifest, sort_keys=True)
        masks = [block.lossmask.copy() for block in blocks(dataset)]
        remasked(dataset)
        assert all(map(np.array_equal, masks, (block.lossmask for block in blocks(dataset))))
        assert json.dumps(dataset.manifest, sort_keys=True) == before

    forgery.assert_honest(*made, tmp_path / "root", nothing, tokenizer=made[1].with_name("tokenizer.json"))


@pytest.mark.parametrize("name", list(forgery.by_name))
def test_a_forgery_is_found(name: str, made: tuple[Path, Path], tmp_path: Path) -> None:
    assert not report_of(name, made, tmp_path / "root").clean, f"{name} is not found"


def test_blocks_of_another_tokenizer_are_refused(made: tuple[Path, Path], tmp_path: Path) -> None:
    def forge(dataset: Dataset) -> None:
        content = dataset.manifest["content"]
        content["tokenizer"]["sha256"] = content["config"]["tokenizer_sha256"] = hashlib.sha256(b"").hexdigest()

    shutil.copytree(made[0], tmp_path / "root")
    forged(tmp_path / "root", forge)
    with pytest.raises(ChatError, match="another tokenizer"):
        validated(tmp_path / "root", made[1], "source", tokenizer=made[1].with_name("tokenizer.json"))
