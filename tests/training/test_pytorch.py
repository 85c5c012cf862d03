"""The dataset without Megatron: the same arrays, for loops of other kinds."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

from spanloom.dataset.manifest import ManifestError
from spanloom.errors import DatasetError
from spanloom.training import pytorch
from spanloom.training.loss import SpanCounts, SpanWeights, span_normalized_loss
from spanloom.training.pytorch import DocumentDataset, StreamDataset, collate, for_transformers
from support.token_datasets import VOCAB_SIZE, Document, random_shards, read_raw, write_dataset

LENGTHS = [[5, 1, 40, 2, 17], [], [64, 3, 3, 21]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("plain") / "root", {"train": random_shards(0, LENGTHS)})


def documents(root: Path) -> list[Document]:
    return [each for shard in (0, 2) for each in read_raw(root / f"train/shard_{shard:02d}_tokens")]


@pytest.mark.parametrize("sequence_length", [2, 7, 61])
def test_a_stream_is_the_documents_end_to_end(root: Path, sequence_length: int) -> None:
    """Over the seam between shards too."""
    arrays = {
        name: np.concatenate([getattr(d, name) for d in documents(root)]) for name in ("tokens", "lossmask", "span")
    }
    dataset = StreamDataset(root, sequence_length=sequence_length)
    assert len(dataset) == (65 + 91 - 1) // sequence_length
    for index, sample in enumerate(dataset):
        here = slice(index * sequence_length, (index + 1) * sequence_length)
        assert sample["tokens"].tolist() == arrays["tokens"][here].tolist()
        assert sample["labels"].tolist() == arrays["tokens"][here.start + 1 : here.stop + 1].tolist()
        assert sample["loss_mask"].tolist() == arrays["lossmask"][here].tolist()
        assert sample["span_id"].tolist() == arrays["span"][here].tolist()
    assert index == len(dataset) - 1


@pytest.mark.parametrize("max_length", [None, 1, 7])
def test_a_document_is_a_sample(root: Path, max_length: int | None) -> None:
    dataset = DocumentDataset(root, max_length=max_length)
    assert len(dataset) == 9
    for sample, document in zip(dataset, documents(root), strict=True):
        size = min(document.tokens.size, max_length or 10**9)
        assert sample["tokens"].tolist() == document.tokens[:size].tolist()
        labels = [*document.tokens[1:].tolist(), 0]  # the last token of a document has no label
        assert sample["labels"].tolist() == labels[:size]
        assert sample["loss_mask"].tolist() == document.lossmask[:size].tolist()
        assert sample["span_id"].tolist() == document.span[:size].tolist()
    assert dataset[-1]["tokens"].tolist() == dataset[8]["tokens"].tolist()


@pytest.mark.parametrize("at_once", [1, 70, 1 << 20])
@pytest.mark.parametrize("max_length", [None, 7])
def test_samples_that_are_read_together_are_those_that_are_read_alone(
    root: Path, max_length: int | None, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = DocumentDataset(root, max_length=max_length)
    order = [7, 0, 3, -1, 3, 5, 1, 2, 4, 6]
    alone = [dataset[index] for index in order]
    monkeypatch.setattr(pytorch, "_AT_ONCE", at_once)
    for one, other in zip(alone, dataset.__getitems__(order), strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert value.dtype == other[name].dtype
            assert torch.equal(value, other[name]), name
    assert dataset.__getitems__([]) == []


def test_a_batch_is_padded_without_loss(root: Path) -> None:
    dataset = DocumentDataset(root)
    batch = next(iter(DataLoader(dataset, batch_size=5, collate_fn=collate)))
    assert {key: tuple(value.shape) for key, value in batch.items()} == dict.fromkeys(batch, (5, 40))
    assert batch["attention_mask"].sum(1).tolist() == [5, 1, 40, 2, 17]
    for key in ("tokens", "labels", "loss_mask", "span_id"):
        assert not batch[key][batch["attention_mask"] == 0].any()


def test_transformers_own_loss_is_the_masked_mean(root: Path) -> None:
    """Its shift and ours end at the same labels: its loss on our labels is our per-token loss over the mask."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB_SIZE, n_positions=64, n_embd=16, n_layer=1, n_head=2)).eval()
    batch = collate([DocumentDataset(root)[index] for index in range(9)])
    with torch.no_grad():
        out = model(**for_transformers(batch))
        losses = torch.nn.functional.cross_entropy(out.logits.transpose(1, 2), batch["labels"], reduction="none")
    assert float(out.loss) == pytest.approx(float(losses[batch["loss_mask"] > 0].mean()), rel=1e-5)
    # And the loss per span over the same figures, from its definition.
    span = batch["span_id"]
    counts = SpanCounts.of(batch["loss_mask"], span, 2)
    weights = SpanWeights({"analysis": 2.0, "final": 1.0})
    mine = span_normalized_loss(losses, batch["loss_mask"], span, counts, weights)
    assert float(mine) == pytest.approx(float(2 * losses[span == 1].mean() + losses[span == 2].mean()), rel=1e-5)


def test_what_must_not_be_trained_on_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="sequence_length is 1"):
        StreamDataset(root, sequence_length=1)
    with pytest.raises(DatasetError, match="no valid documents"):
        StreamDataset(root, "valid", sequence_length=2)
    with pytest.raises(DatasetError, match="there is no such folder"):
        DocumentDataset(tmp_path / "nowhere")
    broken = write_dataset(tmp_path / "root", {"train": random_shards(0, LENGTHS)})
    path = broken / "train/shard_02_span.bin"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DatasetError, match=r"shard_02_span\.bin"):
        DocumentDataset(broken)
    (broken / "manifest.json").unlink()
    with pytest.raises(ManifestError):
        DocumentDataset(broken)


def test_it_needs_no_megatron(root: Path) -> None:
    code = (
        "import sys; from spanloom.training.pytorch import StreamDataset as S; import spanloom.training.loss; "
        f"print(len(S({str(root)!r}, sequence_length=5)), 'megatron' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["31", "False"]
