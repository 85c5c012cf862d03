"""An example of training on packed chat: `python -m spanloom.families.chat.training --input … --output …`.

In: transcripts, a tokenizer, flags. Out: under `--output` the log and checkpoints.

A tiny transformer, one pass, on the CPU. POST_TRAINING=1 puts loss only on assistant spans; without it, blocks are
packed plainly and every token has loss. It shows how the parts work together and is not meant as a trainer to build on.

Run again after an interruption, it resumes from its last checkpoint with the batches and losses of an unbroken run. Run
again on other data (another tokenizer, block size, switch or input), it keeps the weights and begins a pass over that
data; the learning rate warms up again over WARMUP_PCT of the pass.
"""

import argparse
import json
import math
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from spanloom.errors import EXIT_FAILURE, EXIT_INTERRUPTED, ChatError, ConflictError, SpanloomError, extra_for
from spanloom.families.chat import defaults
from spanloom.families.chat.tokenizer import ChatTokenizer, load_tokenizer
from spanloom.families.chat.transcripts.files import SUFFIXES, Records
from spanloom.records.files import find_files
from spanloom.storage import sha256_file
from spanloom.supervision import IGNORED
from spanloom.text import visible

with extra_for(__name__, "megatron"):
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

    from spanloom.families.chat.loader import PackedChatDataset, PackedChatLoader, TranscriptFiles
    from spanloom.families.chat.samples import Sample
    from spanloom.training.runs import checkpoint
    from spanloom.training.runs.learning_rate import learning_rate_at
    from spanloom.training.runs.passes import differences
    from spanloom.training.runs.script import add_flags, flag_parser, process_group
    from spanloom.training.runs.trainlog import Record, TrainLog

POST_TRAINING_VARIABLE = "POST_TRAINING"
WARMUP_VARIABLE = "WARMUP_PCT"

TEACH = """
examples
  POST_TRAINING=1 python -m spanloom.families.chat.training --input chats.parquet --tokenizer t.json --output run
  python -m torch.distributed.run --nproc-per-node 2 -m spanloom.families.chat.training --input …     two processes

Run the same command again after an interruption and it resumes from its last checkpoint.
"""

_ON, _OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The flags that `train` uses, with help texts for those that `add_flags` makes."""

    output: Path
    batch_size: Annotated[int, "blocks in a step, of each rank; with o200k a block of 256 takes 0.6 GB"] = 2
    warmup_pct: float = 0.05
    learning_rate: Annotated[float, "peak; it rises over the warm-up and falls along a cosine to a tenth"] = 1e-3
    weight_decay: Annotated[float, "AdamW's"] = 0.1
    clip: Annotated[float, "gradients are scaled down to this norm; 0 for not at all"] = 1.0
    layers: Annotated[int, "layers of the model"] = 2
    hidden: Annotated[int, "its width"] = 64
    heads: Annotated[int, "its attention heads"] = 4
    seed: Annotated[int, "of the model and of the order of records"] = 1234
    cut_at_eos: Annotated[bool, "attention and positions start over with each conversation"] = False
    workers: Annotated[int, "processes a rank that tokenise and pack; 0 does it in the rank itself"] = 0
    save_interval: Annotated[int, "write a checkpoint after so many steps, and after the last"] = 50
    keep: Annotated[int, "checkpoints that are kept"] = 2

    def identity(self) -> dict[str, Any]:
        """All that changes batches and losses besides the data: a pass resumes only if it is equal."""
        free = ("output", "save_interval", "keep")
        decides = {name: value for name, value in asdict(self).items() if name not in free}
        return {**decides, "ranks": dist.get_world_size()}

    def model(self, vocab_size: int) -> dict[str, int]:
        """The shape that weights must have to be loaded."""
        return {"layers": self.layers, "hidden": self.hidden, "heads": self.heads, "vocab_size": vocab_size}


class TinyTransformer(torch.nn.Module):  # type: ignore[misc]  # torch is not followed by mypy here
    """A causal transformer with tied embeddings, without dropout, for sequences of any length."""

    def __init__(self, *, vocab_size: int, layers: int, hidden: int, heads: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embedding = torch.nn.Embedding(vocab_size, hidden)
            torch.nn.init.normal_(self.embedding.weight, std=0.02)
            self.layers = torch.nn.ModuleList(_Layer(hidden, heads) for _ in range(layers))
            self.norm = torch.nn.LayerNorm(hidden)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor | None = None) -> torch.Tensor:
        """Logits `[N, S, vocab]`. With `position_ids` `[N, S]`, attention does not cross where they restart."""
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1]).expand_as(input_ids)
        conversation = (position_ids == 0).cumsum(1)
        together = (conversation[:, :, None] == conversation[:, None, :]).tril()[:, None]
        hidden = self.embedding(input_ids) + _sinusoids(position_ids, self.embedding.embedding_dim)
        for layer in self.layers:
            hidden = layer(hidden, together)
        return self.norm(hidden) @ self.embedding.weight.T


class _Layer(torch.nn.Module):  # type: ignore[misc]  # torch is not followed by mypy here
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.before, self.between = torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)
        self.query_key_value, self.mix = torch.nn.Linear(hidden, 3 * hidden), torch.nn.Linear(hidden, hidden)
        self.widen, self.narrow = torch.nn.Linear(hidden, 4 * hidden), torch.nn.Linear(4 * hidden, hidden)

    def forward(self, hidden: torch.Tensor, together: torch.Tensor) -> torch.Tensor:
        split = self.query_key_value(self.before(hidden)).unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = split
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=together)
        hidden = hidden + self.mix(mixed.transpose(1, 2).flatten(2))
        return hidden + self.narrow(gelu(self.widen(self.between(hidden))))


def _sinusoids(position_ids: torch.Tensor, width: int) -> torch.Tensor:
    frequencies = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = position_ids[..., None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[..., :width]


def masked_loss(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The sum of the cross entropy over the targets that are not −100, and the number of these targets.

    Args: logits [N, S, vocab]; targets int64 [N, S]. Divide by the count of the whole step, over all ranks, not by each
    batch's own: blocks differ in their number of tokens with loss.
    """
    loss = cross_entropy(logits.float().transpose(1, 2), targets, ignore_index=IGNORED, reduction="sum")
    return loss, int((targets != IGNORED).sum())


def train(options: Options, dataset: PackedChatDataset, *, vocab_size: int, spec: dict[str, Any]) -> None:
    """One pass over the dataset, on every rank of a process group. `spec`: identity of the data, see `data_spec`."""
    loader = PackedChatLoader(dataset, batch_size=options.batch_size, workers=options.workers)
    steps = pass_length(dataset, options)
    if not steps:
        raise ChatError("the data give no block", remedy="take a smaller --block-size, or more data")
    warmup = math.ceil(options.warmup_pct * steps)
    shape, identity = options.model(vocab_size), options.identity()
    model = TinyTransformer(**shape, seed=options.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=options.learning_rate, betas=(0.9, 0.95), weight_decay=options.weight_decay
    )

    done = began = 0  # steps of all passes; steps before this pass
    why = "the first"
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
            loader.load_state_dict(json.loads(checkpoint.load(folder, rank=dist.get_rank())["data"]))

    log = TrainLog(options.output, first_step=done, line=_line, board=False) if dist.get_rank() == 0 else None
    if log:
        log.say(f"pass of {steps:,} steps, {warmup:,} of them warm-up ({why})")
    batches = iter(loader)
    while True:
        # A rank whose shards have ended continues without a batch while others have one: it adds zero to the sums.
        batch = next(batches, None)
        learning_rate = learning_rate_at(done - began, peak=options.learning_rate, warmup=warmup, steps=steps)
        figures = step(model, optimizer, batch, learning_rate=learning_rate, options=options)
        if figures is not None:
            done += 1
            if log:
                log.write({"kind": "train", "step": done, "learning_rate": learning_rate, **figures})
        if figures is None or done % options.save_interval == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": loader.state_dict()}
            state |= {"data": json.dumps(state["data"]), "spec": spec, "identity": identity, "began": began}
            checkpoint.save(options.output, done, state, shape, rank=dist.get_rank(), writes=True, keep=options.keep)
        if figures is None:
            break
    if log:
        log.say(f"the pass is over after {done - began:,} steps")
        log.close()


def step(
    model: Any, optimizer: Any, batch: Sample | None, *, learning_rate: float, options: Options
) -> dict[str, Any] | None:
    """One update from the batches of all ranks. Returns its figures, or None if no rank has another batch."""
    optimizer.zero_grad()
    sums = torch.zeros(3, dtype=torch.float64)
    if batch is not None:
        positions = batch["position_ids"][:, :-1] if options.cut_at_eos else None
        loss, count = masked_loss(model(batch["input_ids"][:, :-1], positions), batch["targets"])
        loss.backward()
        sums += torch.tensor([float(loss.detach()), count, len(batch["input_ids"])], dtype=torch.float64)
    dist.all_reduce(sums)
    total, count, blocks = sums.tolist()
    if not blocks:
        return None
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= max(1, count)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip or math.inf)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    mean = total / count if count else None
    return {"loss": mean, "trained_tokens": int(count), "blocks": int(blocks), "gradient_norm": float(norm)}


def pass_length(dataset: PackedChatDataset, options: Options) -> int:
    """Steps of a pass: the batches of the rank that has most. The schedule needs it, so the data are packed twice."""
    counts = dataset.count(options.workers)
    longest = torch.tensor(sum(math.ceil(shard.packing.blocks / options.batch_size) for shard in counts))
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return int(longest)


def _line(record: Record) -> str:
    """One log line to read."""
    loss = "–" if record["loss"] is None else format(record["loss"], ".4f")
    return (
        f"step {record['step']:>6}  loss {loss}  {record['trained_tokens']:,} trained tokens in {record['blocks']} "
        f"blocks  lr {record['learning_rate']:.1e}  gradient {record['gradient_norm']:.2f}"
    )


def switch(text: str | None) -> bool:
    """POST_TRAINING: on or off; off if it is not set."""
    word = (text or "").strip().lower()
    if word not in (*_ON, *_OFF):
        raise ChatError(
            f"{POST_TRAINING_VARIABLE} is {text!r}: say 1 for loss on assistant spans alone, 0 for loss on every token"
        )
    return word in _ON


def share(text: str) -> float:
    """WARMUP_PCT: from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ChatError(f"{WARMUP_VARIABLE} is {text!r}: it is a share of the pass from 0 to 1, 0.05 for 5 %")
    return value


def data_spec(source: Path, tokenizer: ChatTokenizer, dataset: PackedChatDataset) -> dict[str, Any]:
    """Identity of the data of a pass: another tokenizer, packing or other bytes of the source give another spec."""
    return {
        "tokenizer": tokenizer.sha256,
        **{name: value for name, value in dataset.packing.items() if value is not None},
        "input": [sha256_file(path) for path in find_files(source, SUFFIXES)],
    }


def main(arguments: list[str] | None = None) -> int:
    """Trains. Returns the exit code."""
    try:
        flags = vars(parse(arguments))
        post_training = flags.pop("post_training")
        if post_training is None:
            post_training = switch(os.environ.get(POST_TRAINING_VARIABLE))
        data = {
            name: flags.pop(name) for name in ("input", "tokenizer", "block_size", "strict_user", "records", "shuffle")
        }
        options = Options(**{**flags, "warmup_pct": share(flags["warmup_pct"])})
        with process_group():
            tokenizer = load_tokenizer(data["tokenizer"])
            dataset = PackedChatDataset(
                TranscriptFiles(source=data["input"], records=data["records"], closed=post_training),
                tokenizer=tokenizer,
                block_size=data["block_size"],
                post_training=post_training,
                strict_user=data["strict_user"],
                shuffle=data["shuffle"],
                seed=options.seed,
                position_ids=options.cut_at_eos,
            )
            if dist.get_rank() == 0:
                print(_WHAT_COUNTS[post_training], flush=True)
            spec = data_spec(data["input"], tokenizer, dataset)
            if data["records"] != defaults.RECORDS:
                spec["records"] = data["records"]
            train(options, dataset, vocab_size=tokenizer.vocab_size, spec=spec)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume from the last checkpoint", file=sys.stderr)
        return EXIT_INTERRUPTED
    except SpanloomError as error:
        # Not left to the command line: torchrun starts this module, and every rank must exit by itself.
        print(visible(f"error: {error}"), file=sys.stderr)
        return EXIT_FAILURE
    return 0


_WHAT_COUNTS = {
    True: f"{POST_TRAINING_VARIABLE} is on: a block that begins in a user span opens with the system span and USER, "
    "and loss is on assistant spans alone",
    False: f"{POST_TRAINING_VARIABLE} is off: blocks are packed plainly, and loss is on every token",
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser, flag = flag_parser(
        "python -m spanloom.families.chat.training",
        "Train a tiny transformer on packed chat, one pass: an example, and a proof that the data train.",
        TEACH,
    )

    flag("input", None, "transcripts: a file or a folder of .parquet, .jsonl or .txt", type=Path, required=True)
    flag("tokenizer", None, "a tokenizers JSON file, or the o200k asset; default: the asset, where it is", type=Path)
    flag("output", None, "folder for log.jsonl and checkpoints/", type=Path, required=True)
    flag("block-size", 256, "tokens in a block")
    flag(
        "post-training",
        None,
        f"loss on assistant spans alone; without it every token counts (default: {POST_TRAINING_VARIABLE}=1, else off)",
        action=argparse.BooleanOptionalAction,
    )
    flag(
        "strict-user",
        None,
        "an answer counts only where the whole of its user span is in the block; --no-strict-user lets one count "
        "that a block begins inside of (default: --strict-user)",
        action=argparse.BooleanOptionalAction,
    )
    parser.set_defaults(strict_user=defaults.STRICT_USER)
    flag("records", defaults.RECORDS, "what is a record of a .txt file: line, eos or file", choices=get_args(Records))
    flag(
        "warmup-pct",
        os.environ.get(WARMUP_VARIABLE) or "0.05",
        "share of the pass, 0 to 1, in which the learning rate rises; it rises again where the data are others than "
        f"the checkpoint's; {WARMUP_VARIABLE} sets it too",
    )
    flag("shuffle", 10_000, "records held to draw from; 0 keeps their order")
    add_flags(flag, Options)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
