"""A small transformer learns packed chat in one pass, in plain PyTorch; transcripts are packed on the fly.

POST_TRAINING=1 python docs/examples/training/chat.py --input chats.parquet --tokenizer t.json --output run
python -m torch.distributed.run --nproc-per-node 2 docs/examples/training/chat.py --input …     two processes

POST_TRAINING=1 puts loss on assistant spans alone; without it, blocks are packed plainly and every token has loss.

Run again after an interruption, it resumes from its last checkpoint with the batches and losses of an unbroken run. Run
again on other data (another tokenizer, block size, switch or input), it keeps the weights and begins a pass over that
data; the learning rate warms up again over WARMUP_PCT of the pass.
"""

import json
import math
import os
import sys
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from spanloom.errors import ChatError, ConflictError, extra_for
from spanloom.families.chat import defaults
from spanloom.families.chat.tokenizer import load_tokenizer
from spanloom.families.chat.transcripts.files import Records, transcript_files
from spanloom.storage import sha256_file
from spanloom.supervision import IGNORED

with extra_for(__name__, "megatron"):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.functional import cross_entropy

    from spanloom.families.chat.loader import PackedChatDataset, PackedChatLoader, TranscriptFiles
    from spanloom.families.chat.samples import Sample
    from spanloom.training.loss import SpanWeights
    from spanloom.training.runs import checkpoint, script
    from spanloom.training.runs.learning_rate import learning_rate_at
    from spanloom.training.runs.passes import differences
    from spanloom.training.runs.step import figures_of, update
    from spanloom.training.runs.trainlog import TrainLog

TRAINED = SpanWeights({"trained": 1.0})
_SWITCH = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("", "0", "false", "no", "off"), False)}
POST_TRAINING = _SWITCH.get(os.environ.get("POST_TRAINING", "").strip().lower())
WARMUP_PCT: Any = os.environ.get("WARMUP_PCT") or 0.05  # text is parsed as that of the flag


@dataclass(frozen=True, kw_only=True)
class Options:
    """The flags, each with its help."""

    input: Annotated[Path, "transcripts: a file or a folder of .parquet, .jsonl or .txt"]
    output: Annotated[Path, "folder for log.jsonl and checkpoints/"]
    tokenizer: Annotated[Path | None, "a tokenizers JSON file, or the o200k asset; default: the asset"] = None
    block_size: Annotated[int, "tokens in a block"] = 256
    post_training: Annotated[bool | None, "loss on assistant spans alone; or POST_TRAINING=1"] = POST_TRAINING
    strict_user: Annotated[bool, "an answer counts only where its whole user span is in the block"] = True
    records: Annotated[Records, "what is a record of a .txt file"] = defaults.RECORDS
    warmup_pct: Annotated[float, "share of the pass in which the rate rises; or WARMUP_PCT"] = WARMUP_PCT
    shuffle: Annotated[int, "records held to draw from; 0 keeps their order"] = 10_000
    batch_size: Annotated[int, "blocks in a step, of each rank; with o200k a block of 256 takes 0.6 GB"] = 2
    learning_rate: Annotated[float, "peak; it rises over the warm-up and falls along a cosine to a tenth"] = 1e-3
    layers: Annotated[int, "layers of the model"] = 2
    hidden: Annotated[int, "its width"] = 64
    heads: Annotated[int, "its attention heads"] = 4
    seed: Annotated[int, "of the model and of the order of records"] = 1234
    cut_at_eos: Annotated[bool, "attention and positions start over with each conversation"] = False
    workers: Annotated[int, "processes a rank that tokenise and pack; 0 does it in the rank itself"] = 0
    save_interval: Annotated[int, "write a checkpoint after so many steps, and after the last", 1] = 50
    keep: Annotated[int, "checkpoints that are kept", 1] = 2


class SmallTransformer(nn.Module):  # type: ignore[misc]  # torch is not followed by mypy here
    """A causal transformer with tied embeddings, without dropout, for blocks of any length."""

    def __init__(self, *, vocab_size: int, layers: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, hidden)
        nn.init.normal_(self.tokens.weight, std=0.02)
        shape = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        made = (nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, **shape) for _ in range(layers))
        self.heads, self.layers, self.norm = heads, nn.ModuleList(made), nn.LayerNorm(hidden)

    def forward(self, batch: Sample) -> torch.Tensor:
        """The loss of each label, float32 [N, S]. Where `position_ids` restart, attention begins again."""
        tokens = batch["input_ids"][:, :-1]
        counted = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        positions = batch["position_ids"][:, :-1] if "position_ids" in batch else counted
        conversation = (positions == 0).cumsum(1)
        together = (conversation[:, :, None] == conversation[:, None, :]).tril()
        width = self.tokens.embedding_dim
        halves = torch.arange(0, width, 2, device=tokens.device)
        angles = positions[..., None] * torch.exp(halves * (-math.log(10_000.0) / width))
        hidden = self.tokens(tokens) + torch.cat([angles.sin(), angles.cos()], dim=-1)[..., :width]
        for layer in self.layers:
            hidden = layer(hidden, src_mask=~together.repeat_interleave(self.heads, dim=0))
        logits = self.norm(hidden) @ self.tokens.weight.T
        return cross_entropy(logits.transpose(1, 2), batch["targets"], ignore_index=IGNORED, reduction="none")


def train(options: Options) -> None:
    """One pass, on every rank of a process group."""
    on, share, rank, device = options.post_training, options.warmup_pct, dist.get_rank(), script.device()
    if on is None:
        raise ChatError("POST_TRAINING: say 1 for loss on assistant spans alone, 0 for loss on every token")
    if not 0 <= share <= 1:
        raise ChatError("WARMUP_PCT, or --warmup-pct: it is a share of the pass from 0 to 1, 0.05 for 5 %")
    tokenizer = load_tokenizer(options.tokenizer)
    dataset = PackedChatDataset(
        TranscriptFiles(source=options.input, records=options.records, closed=on),
        tokenizer=tokenizer,
        block_size=options.block_size,
        post_training=on,
        strict_user=options.strict_user,
        shuffle=options.shuffle,
        seed=options.seed,
        position_ids=options.cut_at_eos,
    )
    loader = PackedChatLoader(dataset, batch_size=options.batch_size, workers=options.workers)
    # The schedule needs the steps of the rank that has most, so the data are packed twice.
    blocks = (shard.packing.blocks for shard in dataset.count(options.workers))
    longest = torch.tensor(sum(math.ceil(each / options.batch_size) for each in blocks), device=device)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    steps, warmup = int(longest), math.ceil(share * int(longest))
    if not steps:
        raise ChatError("the data give no block", remedy="take a smaller --block-size, or more data")

    vocabulary = tokenizer.vocab_size
    shape = {"layers": options.layers, "hidden": options.hidden, "heads": options.heads, "vocab_size": vocabulary}
    torch.manual_seed(options.seed)
    model = SmallTransformer(**shape).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    # Other data begin another pass with these weights; another batch or model over the same data is refused.
    files = [sha256_file(path) for path in transcript_files(options.input)]
    spec = {**dataset.packing, "tokenizer": tokenizer.sha256, "records": options.records, "input": files}
    free = {"input", "output", "tokenizer", "records", "save_interval", "keep", *dataset.packing}
    identity = {name: value for name, value in asdict(options).items() if name not in free}
    identity["ranks"] = dist.get_world_size()

    done, began, why = 0, 0, "the first"  # steps of all passes; those before this pass
    if newest := checkpoint.latest(options.output, shape):
        done, folder = newest
        state = checkpoint.load(folder, rank=0)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if changed := differences(state["spec"], spec):
            began, why = done, f"the data changed: {changed}"
        else:
            began, why = state["began"], f"resumes after step {done}"
            if changed := differences(state["identity"], identity):
                raise ConflictError(
                    f"a checkpoint is here from a pass over the same data with other options: {changed}",
                    where=str(folder),
                    remedy="give the options of that pass, or another --output",
                )
            loader.load_state_dict(json.loads(checkpoint.load(folder, rank=rank)["data"]))

    log = TrainLog(options.output, first_step=done, board=False) if rank == 0 else None
    if log:
        log.say(f"POST_TRAINING is {'on: loss is on assistant spans alone' if on else 'off: loss is on every token'}")
        log.say(f"pass of {steps:,} steps, {warmup:,} of them warm-up ({why})")
    batches = iter(loader)
    for step in range(done + 1, began + steps + 1):
        # A rank whose shards have ended continues without a batch while others have one.
        own = [{**batch, "loss_mask": batch["targets"] != IGNORED} for batch in islice(batches, 1)]
        optimizer.zero_grad()
        record = figures_of(model, [{**batch, "span_id": batch["loss_mask"].long()} for batch in own], TRAINED)
        rate = learning_rate_at(step - began - 1, peak=options.learning_rate, warmup=warmup, steps=steps)
        record |= {"learning_rate": rate, "gradient_norm": update(model, optimizer, rate)}
        if log:
            log.write({"kind": "train", "step": step, **record})
        if step == began + steps or step % options.save_interval == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            state |= {"data": json.dumps(loader.state_dict()), "spec": spec, "identity": identity, "began": began}
            checkpoint.save(options.output, step, state, shape, rank=rank, writes=True, keep=options.keep)
    if log:
        log.say(f"the pass is over after {steps:,} steps")
        log.close()


if __name__ == "__main__":
    sys.exit(script.run(train, Options, __doc__))
