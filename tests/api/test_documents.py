"""Documents of `open_dataset` are those that were written, token-aligned."""

from pathlib import Path

import pytest

import spanloom
from support.token_datasets import random_shards, write_dataset


def test_documents_are_those_that_were_written(tmp_path: Path) -> None:
    """On disk position t is about token t + 1; in a document it is about token t."""
    shards = random_shards(7, [[9, 12, 5], [30]])
    root = write_dataset(tmp_path / "root", {"train": shards, "valid": random_shards(8, [[4], []])})
    dataset = spanloom.open_dataset(root, split="train")
    written = [document for shard in shards for document in shard]
    assert len(dataset) == len(written) == 4
    for at, expected in enumerate(written):
        found = dataset[at]
        tokens, mask, span = expected.tokens, expected.lossmask, expected.span
        assert (found.split, found.shard, found.sequence) == ("train", at // 3, at % 3)
        assert found.tokens.tolist() == tokens.tolist()
        assert found.loss_mask.tolist() == [False, *(mask[:-1] != 0).tolist()]
        assert found.span_ids.tolist() == [0, *span[:-1].tolist()]
        assert found.labels.tolist() == [
            token if trained else -100 for token, trained in zip(found.tokens.tolist(), found.loss_mask, strict=True)
        ]
        runs = [name for span in found.spans for name in [span.name] * (span.stop - span.start)]
        assert runs == [dataset.span_names[value] for value in found.span_ids.tolist() if value]
    assert dataset[-1].tokens.tolist() == dataset[3].tokens.tolist()
    with pytest.raises(IndexError):
        dataset[4]
    assert [document.tokens.tolist() for document in dataset[1:3]] == [dataset[at].tokens.tolist() for at in (1, 2)]
    assert [document.sequence for document in dataset[::-2]] == [dataset[3].sequence, dataset[1].sequence]
    assert dataset[4:] == []
    assert len(spanloom.open_dataset(root)) == 5
    with pytest.raises(spanloom.SpanloomError, match="there is no split 'test'"):
        spanloom.open_dataset(root, split="test")
