"""`python -m tools.bench.scoring`: what `teacher score` costs beside the model itself.

In: a drawn dataset, and a Llama of the shape of SmolLM2-135M with random weights (`--layers` for fewer). Out: a line of
seconds of processor time, one thread. Bare is the model over the same batches, its output layer at the trained
positions alone. Scoring is that, with top k and rest, the proof of each document, coding and writing the parts; without
the canary, which costs as much in a small dataset as in a large one. Ids above the tokenizer's are left out, since
random weights rank them, so that the top k are taken twice: more than with a model whose vocabulary is the tokenizer's.

With `--vllm ROOT MODEL`, where vLLM is installed: the first documents of a dataset. Bare is vLLM's log-probabilities of
them. Seconds are those of the clock, since vLLM works in a process of its own.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import spanloom
from spanloom.dataset.root.opened import content_at
from spanloom.teacher.format import arrays_for
from spanloom.teacher.parts import PART_TOKENS, coded, write_part
from spanloom.teacher.positions import ScoredDocument, documents_of
from spanloom.teacher.signals import what_is_wrong
from spanloom.teacher.sources.answers import prompt_of
from spanloom.teacher.sources.hugging import HuggingFaceTeacher
from spanloom.teacher.sources.vllm import VllmTeacher
from support.chat_models import write_model
from support.model_datasets import record, stored, without_reasoning, write_conversations

K = 32
VOCABULARY = 49_152
OVERHEAD, OVERHEAD_OF_VLLM = 0.10, 0.05
"""Scoring may take so much more than the bare model."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.scoring", description=__doc__)
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=2, help="the fastest of each counts")
    parser.add_argument("--vllm", type=Path, nargs=2, metavar=("ROOT", "MODEL"))
    parser.add_argument("--documents", type=int, default=300, help="with --vllm")
    given = parser.parse_args()
    if given.vllm:
        of_vllm(*given.vllm, given.documents, given.rounds)
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as temporary:
        folder = Path(temporary)
        root, teacher = made(folder, given.conversations, given.layers)
        content = content_at(root)
        parts = [
            [each for each in documents if each.positions.size]
            for split, shard in content.filled()
            for documents in documents_of(root, content, split, shard, None, PART_TOKENS)
        ]
        bare = min(seconds(lambda: model_alone(teacher, parts)) for _ in range(given.rounds))
        whole = min(
            seconds(lambda: scored(teacher, parts, content.tokenizer.vocab_size, folder)) for _ in range(given.rounds)
        )
    print(f"{given.layers} layers: {told(parts, bare, whole, OVERHEAD)}")


def told(parts: list[list[ScoredDocument]], bare: float, whole: float, bar: float) -> str:
    labels = sum(each.positions.size for part in parts for each in part)
    tokens = sum(each.tokens.size for part in parts for each in part)
    more = whole / bare - 1
    return (
        f"{tokens:,} tokens, {labels:,} labels, k = {K}: bare {bare:.2f} s, scoring {whole:.2f} s, {more:.1%} more "
        f"(bar {bar:.0%}: {'met' if more <= bar else 'missed'})"
    )


def of_vllm(root: Path, model: Path, count: int, rounds: int) -> None:
    from vllm import SamplingParams

    content = content_at(root)
    found = (
        each
        for split, shard in content.filled()
        for documents in documents_of(root, content, split, shard, None, PART_TOKENS)
        for each in documents
        if each.positions.size
    )
    documents = list(itertools.islice(found, count))
    teacher = VllmTeacher(model, k=K, dtype="float32")
    asked = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=K, flat_logprobs=True, detokenize=False, seed=0)
    prompts = [{"prompt_token_ids": prompt_of(each)} for each in documents]
    clock = time.perf_counter
    with tempfile.TemporaryDirectory(prefix="spanloom-bench-") as temporary:

        def whole() -> None:
            scored(teacher, [documents], content.tokenizer.vocab_size, Path(temporary))

        def bare() -> None:
            teacher._model.generate(prompts, asked, use_tqdm=False)

        bare()
        spent = [(seconds(bare, clock), seconds(whole, clock)) for _ in range(rounds)]
    print(f"vLLM: {told([documents], *map(min, zip(*spent, strict=True)), OVERHEAD_OF_VLLM)}")


def made(folder: Path, conversations: int, layers: int) -> tuple[Path, HuggingFaceTeacher]:
    """A dataset, and a teacher with its tokenizer."""
    model = write_model(folder / "model")
    rows = [[stored(without_reasoning(record(seed))) for seed in range(conversations)]]
    source = write_conversations(folder / "source", rows)
    spanloom.build(source, folder / "root", model=model, max_rejects="100%", allow_unknown_sha=True)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8_192,
    )
    LlamaForCausalLM(config).save_pretrained(model)
    size = content_at(folder / "root").tokenizer.vocab_size
    teacher = HuggingFaceTeacher(
        model, vocabulary=size, dtype="float32", device="cpu", batch_tokens=8_192, leave_out_padded=True
    )
    return folder / "root", teacher


def seconds(work: Callable[[], None], clock: Callable[[], float] = time.process_time) -> float:
    before = clock()
    work()
    return clock() - before


@torch.inference_mode()
def model_alone(teacher: HuggingFaceTeacher, parts: list[list[ScoredDocument]]) -> None:
    for documents in parts:
        for batch in teacher._batches(documents):
            chosen = [documents[number] for number in batch]
            tokens = torch.nn.utils.rnn.pad_sequence(
                [torch.from_numpy(each.tokens.astype(np.int64)) for each in chosen], batch_first=True
            )
            lengths = torch.tensor([each.tokens.size for each in chosen])
            attended = (torch.arange(tokens.shape[1]) < lengths[:, None]).long()
            rows = torch.repeat_interleave(
                torch.arange(len(chosen)), torch.tensor([each.positions.size for each in chosen])
            )
            columns = torch.from_numpy(np.concatenate([each.positions for each in chosen]))
            for _ in teacher._logits(tokens, attended, (rows, columns)):
                pass


def scored(
    teacher: HuggingFaceTeacher | VllmTeacher, parts: list[list[ScoredDocument]], size: int, folder: Path
) -> None:
    for number, documents in enumerate(parts):
        signals = teacher.scores(documents, K)
        for document, each in zip(documents, signals, strict=True):
            assert what_is_wrong(each, document.labels, K, size) is None
        write_part(folder / f"{number}.npz", coded(signals, K, list(arrays_for(size))))


if __name__ == "__main__":
    main()
