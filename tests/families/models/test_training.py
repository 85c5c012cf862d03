"""The README's lines for any model, and what trainers read of it: TRL's first loss is that of the definition."""

import re
import shlex
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from megatron.core.datasets.indexed_dataset import IndexedDataset

from conftest import REPOSITORY, Cli
from spanloom.families.models.samples.model import run as sample
from support.model_datasets import documents_on_disk
from tokenizers import Tokenizer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Path:
    """The folder of the README's quickstart, with a small model in the place of Qwen3; and packed rows."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "chat.jsonl").symlink_to(REPOSITORY / "docs/examples/chat.jsonl")
    sample(out=str(folder / "sample"))
    (folder / "data/models").mkdir(parents=True)
    (folder / "sample/model").rename(folder / "data/models/qwen3")
    section = (REPOSITORY / "README.md").read_text().split("## Quickstart")[1].split("\n## ")[0]
    (block,) = re.findall(r"```console\n(.*?)```", section, flags=re.DOTALL)
    first, *lines = block.splitlines()
    assert (first, len(lines)) == ("spanloom model fetch qwen3", 4)
    for line in (*lines, "spanloom export dataset --to megatron-bridge --sequence-length 8192 --out packed"):
        command, *arguments = shlex.split(line)
        assert command == "spanloom"
        done = cli(*arguments, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def tiny_model(vocabulary: int) -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=vocabulary, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=8192,
        )
    )  # fmt: skip


def loss_of_definition(model: Any, documents: list[tuple[list[int], list[int]]]) -> float:
    """The mean of -log p over trained tokens, one document after another. A document: tokens and mask."""
    total = 0.0
    with torch.no_grad():
        for tokens, mask in documents:
            logs = torch.log_softmax(model(input_ids=torch.tensor([tokens])).logits[0].double(), dim=-1)
            total -= sum(float(logs[at - 1, tokens[at]]) for at in np.flatnonzero(mask).tolist())
    return total / sum(sum(mask) for _, mask in documents)


def test_trl_begins_with_the_loss_of_the_definition(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from trl import SFTConfig, SFTTrainer

    tokenizer = Tokenizer.from_file(str(made / "dataset/model/tokenizer.json"))
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|endoftext|>", eos_token="<|im_end|>"
    )
    rows = datasets.load_dataset(str(made / "trl"), split="train", cache_dir=str(tmp_path / "cache"))
    trained = {row["id"] for row in pq.read_table(made / "dataset/train/shard_00_rows.parquet").to_pylist()}
    documents = [(tokens, mask) for row, tokens, mask, _ in documents_on_disk(made / "dataset") if row["id"] in trained]
    assert len(documents) == len(rows) > 3
    model = tiny_model(tokenizer.get_vocab_size())
    wanted = loss_of_definition(model, documents)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=len(rows), max_length=None,
            report_to=[], use_cpu=True, save_strategy="no", bf16=False, disable_tqdm=True,
        ),
        train_dataset=rows,
        processing_class=wrapped,
    )  # fmt: skip
    assert trainer.train().training_loss == pytest.approx(wanted, abs=1e-4)


def test_packed_rows_and_indexed_files_have_the_same_documents(made: Path) -> None:
    packed = pq.read_table(made / "packed/train").to_pylist()
    tokens = [token for row in packed for token in row["input_ids"]]
    documents = sorted(tokens for row, tokens, *_ in documents_on_disk(made / "dataset"))
    prefixes = [path.with_suffix("") for path in sorted((made / "dataset").glob("*/shard_00_tokens.idx"))]
    indexed = [document.tolist() for prefix in prefixes for document in IndexedDataset(str(prefix))]
    assert sorted(indexed) == documents
    of_train = [document.tolist() for document in IndexedDataset(str(prefixes[0]))]
    assert all(f",{','.join(map(str, one))}," in f",{','.join(map(str, tokens))}," for one in of_train)
