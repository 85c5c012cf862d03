"""Packed chat: packing against a plain loop over tokens and a copy of them; tokenising against the bare tokenizer.

In: sizes. Out: seconds of each route, repeat by repeat, and the peak memory of packing at two lengths of stream.

The stream is made of ordinary conversations (`conversations`): half of them with a system span, one to four pairs,
lengths from a log-normal distribution, some twenty markers in a thousand tokens. Before anything is measured the loop
and the packer must give equal blocks and masks.

`python -m tools.bench.packing N` packs a stream of N tokens in this process and prints its peak memory in bytes.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.families.chat.blocks.markers import CONTROL_STRINGS, Markers
from spanloom.families.chat.packing import Packer, pack
from spanloom.families.chat.tokenizer import load_tokenizer
from tools.bench.texts import Texts

MARKERS = Markers(eos=100_257, system=100_258, user=100_259, assistant=100_260, end=100_261)
BLOCK = 1024
FEED = 1 << 18
PLAIN_TOKENS = 400_000
"""The plain loop is given so many: it needs no more to be measured."""
LOOP, COPY, PACK, FEEDS = (
    "token by token",
    "copy of the tokens",
    "pack, whole stream",
    f"Packer, {FEED:,} tokens a call",
)
JSON_BARE, JSON_OWN = "tokenizers, bare", "ChatTokenizer over it"
O200K_BARE, O200K_OWN = "o200k encoder, bare", "ChatTokenizer, o200k"
MESSAGE = 600
TEXT_CHARACTERS = 500_000
"""What a tokenizer is given in one run."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class PackingTrial:
    """One route over one stream."""

    route: str
    repeat: int
    tokens: int
    seconds: float


def measure(tokens: int, asset: Path, repeats: range, say: Say) -> list[PackingTrial]:
    """Every route once a repeat."""
    stream = conversations(tokens)
    few = stream[:PLAIN_TOKENS]
    check_equal(few)
    packing_routes: dict[str, Callable[[], int]] = {
        LOOP: lambda: token_by_token(few, BLOCK, MARKERS) and few.size,
        COPY: lambda: np.copy(stream).size,
        PACK: lambda: pack(stream, block_size=BLOCK, markers=MARKERS)[1].tokens_in,
        FEEDS: lambda: _feed(stream),
    }
    trials = []

    def time_it(route: str, repeat: int, work: Callable[[], int]) -> None:
        began = time.perf_counter()
        count = work()
        seconds = time.perf_counter() - began
        trials.append(PackingTrial(route=route, repeat=repeat, tokens=count, seconds=seconds))
        say(f"{route}: {count / seconds / 1e6:,.2f} M tokens/s")

    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as folder:
        records = list(_transcripts(len(repeats)))
        # Encoders remember words: the common ones are known to both before, and each route has text of its own.
        known, records = records[: len(records) // 10], records[len(records) // 10 :]
        tokenising_routes = _tokenizers(Path(folder), asset, known)
        for encode in tokenising_routes.values():
            encode(known)
        share = len(repeats) * len(tokenising_routes)
        for turn, repeat in enumerate(repeats):
            for route, work in packing_routes.items():
                work()
                time_it(route, repeat, work)
            for number, (route, encode) in enumerate(tokenising_routes.items()):
                mine = records[turn * len(tokenising_routes) + number :: share]
                time_it(route, repeat, lambda encode=encode, mine=mine: encode(mine))
    return trials


def measure_memory(tokens: int, say: Say) -> list[dict[str, int]]:
    """Peak of a process that packs a stream of so many tokens, and of one ten times as long."""
    found = []
    for size in (tokens, 10 * tokens):
        done = subprocess.run(
            [sys.executable, "-m", "tools.bench.packing", str(size)], check=True, capture_output=True, text=True
        )
        found.append({"tokens": size, "peak": int(done.stdout)})
        say(f"{size:,} tokens: {found[-1]['peak'] / 2**20:,.0f} MiB")
    return found


def summary(trials: list[PackingTrial]) -> list[dict[str, Any]]:
    """Each route: tokens a second, and ratios within each repeat to the route that it is held against."""
    against = {PACK: (LOOP, COPY), FEEDS: (LOOP, COPY), JSON_OWN: (JSON_BARE,), O200K_OWN: (O200K_BARE,)}
    rates = {(trial.route, trial.repeat): trial.tokens / trial.seconds for trial in trials}
    routes = list(dict.fromkeys(trial.route for trial in trials))
    return [
        {
            "route": route,
            "rate": median(rate for (name, _), rate in rates.items() if name == route),
            "of": {
                other: [rate / rates[other, repeat] for (name, repeat), rate in rates.items() if name == route]
                for other in against.get(route, ())
            },
        }
        for route in routes
    ]


def check_equal(stream: npt.NDArray[np.int32]) -> None:
    blocks, _ = pack(stream, block_size=BLOCK, markers=MARKERS)
    wanted, masks = token_by_token(stream, BLOCK, MARKERS)
    if not (np.array_equal(blocks.input_ids, wanted) and np.array_equal(blocks.loss_mask, masks)):
        raise RuntimeError("the plain loop and the packer differ: what is measured is not the same work")


def token_by_token(stream: npt.NDArray[np.int32], width: int, markers: Markers) -> tuple[list[Any], list[Any]]:
    """The rules as one writes them first: a loop over tokens, lists, one state. Blocks and their masks."""
    eos, system_id, user_id, assistant_id, end_id = markers.ids
    blocks, masks = [], []
    role = None
    system: list[int] = []
    reading: list[int] = []
    block: list[int] = []
    copies = 0
    inside = opened = skipping = False
    for token in stream.tolist():
        if skipping:
            if token == eos:
                skipping, role, system = False, None, []
            continue
        if not block:
            inside = opened = role == user_id
            if inside:
                block = [*system, user_id] if system and len(system) + 1 <= width - 1 else [user_id]
            copies = len(block)
        block.append(token)
        if role == system_id:
            reading.append(token)
        if token == end_id:
            if role == system_id:
                system = reading
            role = None
            opened = False
        elif token == eos:
            role, system = None, []
            opened = False
        elif token in (user_id, assistant_id, system_id):
            role, reading = token, [token]
            opened = False
        if len(block) == width:
            blocks.append(block)
            masks.append(_mask(block, copies, markers))
            skipping = inside and opened
            block = []
    return blocks, masks


def _mask(block: list[int], copies: int, markers: Markers) -> list[int]:
    eos, system_id, user_id, assistant_id, end_id = markers.ids
    mask = [0] * len(block)
    role = start = None
    user_ok = copied = False
    for place, token in enumerate(block):
        if token == end_id:
            if role == assistant_id and start is not None:
                for inside in range(start, place + 1):
                    mask[inside] = 1
            elif role == user_id:
                user_ok = not copied
            role = start = None
        elif token == assistant_id:
            role, start = token, place if user_ok else None
        elif token in (eos, system_id, user_id):
            role, start, user_ok = token, None, False
            copied = token == user_id and place == copies - 1
    return mask


def conversations(tokens: int) -> npt.NDArray[np.int32]:
    """At least so many tokens of ordinary conversations, the same each time."""
    random = np.random.default_rng(0)
    pieces: list[npt.NDArray[np.int32]] = []
    total = 0

    def span(marker: int, length: float) -> None:
        content = random.integers(0, MARKERS.eos, int(length), dtype=np.int32)
        pieces.append(np.concatenate([[marker], content, [MARKERS.end]]).astype(np.int32))

    while total < tokens:
        begun = len(pieces)
        if random.random() < 0.5:
            span(MARKERS.system, random.integers(10, 60))
        for _ in range(random.integers(1, 5)):
            span(MARKERS.user, random.lognormal(3.7, 0.8))
            span(MARKERS.assistant, random.lognormal(4.8, 0.8))
        pieces.append(np.array([MARKERS.eos], np.int32))
        total += sum(piece.size for piece in pieces[begun:])
    return np.concatenate(pieces)


def _feed(stream: npt.NDArray[np.int32]) -> int:
    packer = Packer(block_size=BLOCK, markers=MARKERS)
    for start in range(0, stream.size, FEED):
        packer.feed(stream[start : start + FEED])
    return packer.counts.tokens_in


def _tokenizers(folder: Path, asset: Path, known: list[str]) -> dict[str, Callable[[list[str]], int]]:
    """Routes from transcripts to a number of tokens: the bare tokenizer, and ours with its checks, EOS and arrays."""
    from spanloom.tokenizers.o200k.encoder import Encoder
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=16_000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    bare.train_from_iterator(known, trainer)
    bare.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL_STRINGS])
    bare.save(str(folder / "bench.json"))
    # Loaded again, so that neither has seen text before the other.
    bare = Tokenizer.from_file(str(folder / "bench.json"))
    own, o200k, encoder = load_tokenizer(folder / "bench.json"), load_tokenizer(asset), Encoder(asset)
    return {
        JSON_BARE: lambda texts: sum(len(one.ids) for one in bare.encode_batch_fast(texts, add_special_tokens=False)),
        JSON_OWN: lambda texts: own.encode(texts).tokens.size,
        O200K_BARE: lambda texts: encoder.encode(texts).tokens.size,
        O200K_OWN: lambda texts: o200k.encode(texts).tokens.size,
    }


def _transcripts(repeats: int) -> Iterator[str]:
    """Text of this machine as pairs of messages, enough for every route of every repeat."""
    blocks = Texts().blocks("prose")
    done = 0
    while done < 4 * repeats * TEXT_CHARACTERS and (block := next(blocks, None)) is not None:
        done += len(block)
        for at in range(0, len(block), 2 * MESSAGE):
            user, answer = block[at : at + MESSAGE], block[at + MESSAGE : at + 2 * MESSAGE]
            yield f"<|USER|>{user}<|END|><|ASSISTANT|>{answer}<|END|>"


def _peak() -> int:
    """Bytes. The kernel's record of this very program, where there is one: ru_maxrss counts the one before it, too."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _pack_in_this_process(tokens: int) -> None:
    some = conversations(1_000_000)
    packer = Packer(block_size=BLOCK, markers=MARKERS)
    blocks = done = 0
    while done < tokens:
        for start in range(0, some.size, FEED):
            blocks += len(packer.feed(some[start : start + FEED]))
        done += some.size
    packer.finish()
    assert blocks == packer.counts.blocks
    print(_peak())


if __name__ == "__main__":
    _pack_in_this_process(int(sys.argv[1]))
