"""One rank of a trainer of Hugging Face with the loss per span: `python -m support.hugging_face_rank ROOT OUT TRAINER`.

One step of SGD over micro-batches and ranks, then an evaluation. Rank 0 writes how far parameters are from one step of
the definition of L over all documents at once, and what was logged beside what is right.
"""

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from torch.utils.data import Subset

import tokenizers
from spanloom.training.hugging_face import collate, span_trainer
from spanloom.training.loss import SpanWeights
from spanloom.training.pytorch import DocumentDataset

WEIGHTS = {"analysis": 0.5, "final": 2.0}
RATE = 0.1


def tiny_llama(vocab_size: int = 96) -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=vocab_size, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=256,
        )
    )  # fmt: skip


def tokenizer() -> Any:
    """What TRL asks for; the documents are tokens already."""
    words = tokenizers.models.WordLevel({"<pad>": 0, "<eos>": 95}, unk_token="<pad>")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(words), pad_token="<pad>", eos_token="<eos>"
    )


def exported(documents: Any) -> Any:
    """Documents as rows of `spanloom export`: token-aligned."""
    rows = []
    for document in documents:
        labels = torch.where(document["loss_mask"] > 0, document["labels"], -100).tolist()
        row = {"input_ids": document["tokens"].tolist(), "labels": [-100, *labels[:-1]]}
        rows.append({**row, "span_id": [0, *document["span_id"].tolist()[:-1]]})
    return datasets.Dataset.from_list(rows)


def reference(model: Any, documents: Any) -> tuple[Any, dict[str, float]]:
    """L over documents from its definition, one document at a time."""
    losses: dict[int, list[Any]] = {1: [], 2: []}
    for document in documents:
        logits = model(input_ids=document["tokens"][None]).logits[0]
        each = torch.nn.functional.cross_entropy(logits, document["labels"], reduction="none")
        for span in losses:
            losses[span].append(each[(document["span_id"] == span) & (document["loss_mask"] > 0)])
    means = {name: torch.cat(losses[span]).mean() for span, name in enumerate(WEIGHTS, start=1)}
    figures = {f"{name}_loss": float(mean) for name, mean in means.items()}
    figures |= {f"{name}_tokens": sum(map(len, losses[span])) for span, name in enumerate(WEIGHTS, start=1)}
    total = sum(weight * means[name] for name, weight in WEIGHTS.items())
    return total, {"loss": float(total), **figures}


def main() -> None:
    root, out, which = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    world = int(os.environ.get("WORLD_SIZE", 1))
    train, valid = DocumentDataset(root), DocumentDataset(root, "valid")
    step = 2 * 3 * world  # micro-batches of 2, 3 of them a rank
    train, valid = Subset(train, range(step)), Subset(valid, range(8))
    options = {
        "output_dir": str(out.parent / "out"), "max_steps": 1, "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 3, "per_device_eval_batch_size": 2, "learning_rate": RATE, "optim": "sgd",
        "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "weight_decay": 0.0, "report_to": [], "use_cpu": True,
        "save_strategy": "no", "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 1, "disable_tqdm": True,
        "remove_unused_columns": False, "bf16": False,
    }  # fmt: skip
    model = tiny_llama()
    expected = copy.deepcopy(model)
    more: dict[str, Any] = {}
    if which == "SFTTrainer":
        import trl

        base, args = trl.SFTTrainer, trl.SFTConfig(**options, dataset_kwargs={"skip_prepare_dataset": True})
        more["processing_class"] = tokenizer()
        train_rows, valid_rows = exported(train), exported(valid)  # TRL takes no other data set
    else:
        base, args = transformers.Trainer, transformers.TrainingArguments(**options)
        train_rows, valid_rows = train, valid
    trainer = span_trainer(base, SpanWeights(WEIGHTS))(
        model=model, args=args, train_dataset=train_rows, eval_dataset=valid_rows, data_collator=collate, **more
    )
    trainer.train()
    loss, right = reference(expected, train)
    loss.backward()
    furthest = 0.0
    with torch.no_grad():
        for mine, other in zip(model.parameters(), expected.parameters(), strict=True):
            other -= RATE * other.grad
            furthest = max(furthest, float((mine - other).norm() / (RATE * other.grad).norm().clamp(min=1e-12)))
        _, evaluated = reference(expected, valid)
    if trainer.is_world_process_zero():
        logged = trainer.state.log_history
        out.write_text(
            json.dumps(
                {
                    "furthest": furthest,
                    "train": [next(each for each in logged if "loss" in each), right],
                    "valid": [
                        next(each for each in logged if "eval_loss" in each),
                        {f"eval_{name}": value for name, value in evaluated.items()},
                    ],
                }
            )
        )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
