"""Axolotl's own distillation loss of a model against the export of that model's signals, in a Python that has Axolotl.

In: the folder of `export --to axolotl --teacher`, the model's folder, a file. Out: in the file, the loss for each label
as its trainer computes it, once as exported and once with the targets moved by one position.
"""

import json
import sys
from pathlib import Path
from typing import Any

import datasets
import torch
from axolotl.integrations.kd.collator import DataCollatorForKD
from axolotl.integrations.kd.kernels.liger import LigerFusedLinearKLTopKLogprobLoss
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from tokenizers import Tokenizer, models


def loss(model: Any, batch: dict[str, torch.Tensor], moved: int) -> float:
    with torch.no_grad():
        seen = {name: batch[name] for name in ("input_ids", "attention_mask")}
        states = model(**seen, output_hidden_states=True).hidden_states[-1]
    targets = [batch[f"target_{name}"].roll(moved, dims=1) for name in ("token_ids", "logprobs", "mask")]
    whole = LigerFusedLinearKLTopKLogprobLoss(0.0, 1.0, 1.0, 0.0, compiled=False, compute_ce_loss=False)
    weight = model.lm_head.weight.detach()
    return float(whole(weight, states, *targets, true_labels=batch["labels"])) / int(batch["target_mask"][..., 0].sum())


def main(folder: str, model_folder: str, out: str) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a")), pad_token="a")
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    rows = list(datasets.load_dataset(folder, split="train"))[:4]
    for row in rows:
        row.pop("length", None)
    batch = DataCollatorForKD(tokenizer)(rows)
    Path(out).write_text(json.dumps({moved: loss(model, batch, moved) for moved in (-1, 0, 1)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
