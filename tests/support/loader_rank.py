"""One rank of the sharding test: `python -m support.loader_rank OUT`, as torchrun starts it. test_loader.py runs it."""

import json
import sys
from pathlib import Path

import torch.distributed as dist

from spanloom.families.chat.loader import PackedChatDataset, PackedChatLoader
from support.chat_transcripts import MARKERS, token_records
from support.nightly import NIGHTLY


def main() -> None:
    out = Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = PackedChatDataset(token_records(1200), block_size=24, post_training=True, markers=MARKERS)
    alone = [sample["input_ids"].tolist() for sample in dataset]
    loader = PackedChatLoader(dataset, batch_size=4, workers=2 if rank or NIGHTLY else 0)  # each imports torch
    with_workers = [row for batch in loader for row in batch["input_ids"].tolist()]
    (out / f"rank_{rank}.json").write_text(json.dumps({"alone": alone, "with_workers": with_workers}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
