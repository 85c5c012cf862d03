"""LLaMA-Factory's own loading of an export, in a Python of its own that has LLaMA-Factory.

In: the folder of `export --to llama-factory`, a file. Out: in the file, for each split, the batches that its collator
hands to the model, and its version, as JSON.
"""

import json
import sys
import types
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast

from tokenizers import Tokenizer, models

sys.modules.setdefault("torchaudio", types.ModuleType("torchaudio"))  # for sounds alone; there is no build for CPUs

from llamafactory.data.loader import get_dataset  # noqa: E402
from llamafactory.hparams import DataArguments  # noqa: E402

BATCH = 2


def main() -> None:
    folder, out = sys.argv[1:]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0, "x": 1}, unk_token="x")), pad_token="<pad>"
    )
    nothing: Any = None  # the template, the model and the training do not count for a tokenized folder
    read = get_dataset(nothing, nothing, DataArguments(tokenized_path=folder), nothing, "sft", tokenizer)
    splits = {"train": read["train_dataset"], "valid": read["eval_dataset"]}
    collate = DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100)
    batches = {
        name: [
            {key: values.tolist() for key, values in collate([rows[at] for at in group]).items()}
            for group in (range(first, min(first + BATCH, len(rows))) for first in range(0, len(rows), BATCH))
        ]
        for name, rows in splits.items()
    }
    Path(out).write_text(json.dumps({"version": version("llamafactory"), "splits": batches}), "utf-8")


if __name__ == "__main__":
    main()
