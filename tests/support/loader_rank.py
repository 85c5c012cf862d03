"""One rank of the sharding test: `python loader_rank.py RANK WORLD PORT OUT`. test_loader.py runs several at once."""

import json
import sys
from pathlib import Path

import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))

from spanloom.families.chat.loader import PackedChatDataset, PackedChatLoader
from support.chat_transcripts import MARKERS, token_records


def main() -> None:
    rank, world, port, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    dataset = PackedChatDataset(token_records(1200), block_size=24, post_training=True, markers=MARKERS)
    alone = [sample["input_ids"].tolist() for sample in dataset]
    loader = PackedChatLoader(dataset, batch_size=4, workers=2)
    with_workers = [row for batch in loader for row in batch["input_ids"].tolist()]
    (out / f"rank_{rank}.json").write_text(json.dumps({"alone": alone, "with_workers": with_workers}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
