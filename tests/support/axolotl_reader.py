"""Axolotl's own loading of an export, in a Python of its own that has Axolotl.

In: the folder of `export --to axolotl`, a folder for its cache, the length of a sample, 0 or 1 for `sample_packing`, a
file. Out: in the file, for each split, the batches that its collator hands to the model, and its version, as JSON.

The tokenizer only pads: Axolotl does not tokenize a dataset that has the three columns.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from axolotl.utils.collators import DataCollatorForSeq2Seq, V2BatchSamplerDataCollatorForSeq2Seq
from axolotl.utils.data.sft import prepare_datasets
from axolotl.utils.dict import DictDefault
from axolotl.utils.samplers import MultipackBatchSampler, get_dataset_lengths
from torch.utils.data import SequentialSampler
from transformers import PreTrainedTokenizerFast

from tokenizers import Tokenizer, models

BATCH = 2


def config(folder: str, cache: str, length: int, *, packed: bool) -> Any:
    """What Axolotl has after it has read a YAML file."""
    splits = {"datasets": "train", "test_datasets": "validation"}
    return DictDefault({
        **{name: [{"path": folder, "split": split, "type": "completion"}] for name, split in splits.items()},
        "dataset_prepared_path": cache,
        "dataset_num_proc": 1,
        "sequence_len": length,
        "val_set_size": 0.0,
        "sample_packing": packed,
        "eval_sample_packing": packed,
        "sample_packing_group_size": 100_000,
        "sample_packing_bin_size": 200,
        "shuffle_merged_datasets": False,
        "micro_batch_size": BATCH,
        "batch_size": BATCH,
        "gradient_accumulation_steps": 1,
        "num_epochs": 1,
        "world_size": 1,
        "seed": 1,
    })  # fmt: skip


def batches(dataset: Any, tokenizer: Any, length: int, *, packed: bool) -> list[dict[str, Any]]:
    rows = [dataset[number] for number in range(len(dataset))]
    if not packed:
        collate = DataCollatorForSeq2Seq(tokenizer)
        groups: list[Any] = [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
    else:
        collate = V2BatchSamplerDataCollatorForSeq2Seq(tokenizer)
        sampler = MultipackBatchSampler(
            SequentialSampler(dataset),
            batch_size=1,
            batch_max_len=length,
            bin_size=200,
            lengths=get_dataset_lengths(dataset),
            drop_last=False,
            num_processes=1,
        )
        groups = [[[rows[number] for number in sample] for sample in batch] for batch in sampler]
    return [{name: values.tolist() for name, values in collate(group).items()} for group in groups]


def main() -> None:
    folder, cache, length, packed, out = sys.argv[1:]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0, "x": 1}, unk_token="x")), pad_token="<pad>"
    )
    options = {"packed": packed == "1"}
    train, evaluation, _, _ = prepare_datasets(config(folder, cache, int(length), **options), tokenizer)
    splits = {"train": train, "valid": evaluation}
    read = {name: batches(dataset, tokenizer, int(length), **options) for name, dataset in splits.items()}
    Path(out).write_text(json.dumps({"version": version("axolotl"), "splits": read}), "utf-8")


if __name__ == "__main__":
    main()
