"""A causal language model of `transformers` in this process as the teacher.

In: a model folder. Out: `Signals`. Whole documents are read in batches of about the same length, padded at the end. The
output layer is applied to the scored positions alone.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from spanloom.errors import OptionError
from spanloom.storage import sha256_file
from spanloom.teacher.positions import ScoredDocument
from spanloom.teacher.signals import Signals, TeacherError
from spanloom.teacher.sources.teacher import Answered, unnoticed

Dtype = Literal["float32", "bfloat16"]
TOLERANCE: dict[str, float] = {"float32": 1e-3, "bfloat16": 0.25}
"""By how much log-probabilities of one document may differ between runs, by the dtype of the weights."""

LOGITS_AT_ONCE = 1 << 27
"""Values of logits that are held at once: 512 MiB in float32."""


class HuggingFaceTeacher:
    """A model folder with weights. See `teacher.Teacher`."""

    at_once = 1 << 16

    def __init__(
        self,
        folder: Path,
        *,
        vocabulary: int,
        dtype: Dtype = "float32",
        device: str | None = None,
        batch_tokens: int = 8_192,
        leave_out_padded: bool = False,
    ) -> None:
        """
        vocabulary        size of the dataset's tokenizer
        device            None: cuda where there is one, else cpu
        batch_tokens      tokens read at once, with padding
        leave_out_padded  ids above the vocabulary are left out; else they are an error where they are ranked
        """
        self._model = _loaded(folder, getattr(torch, dtype), device)
        self._device = next(self._model.parameters()).device
        self._vocabulary, self._batch_tokens, self._leave_out = vocabulary, batch_tokens, leave_out_padded
        self._head = self._model.get_output_embeddings()
        if self._head is None:
            raise TeacherError("the model has no output layer: it is no causal language model", where=str(folder))
        self.context = int(self._model.config.get_text_config().max_position_embeddings)
        self.padded = 0
        self.tolerance = TOLERANCE[dtype]
        self.identity = {
            "source": "model",
            "files": hashes_of_weights(folder),
            "dtype": dtype,
            "device": self._device.type,
            "batch_tokens": batch_tokens,
            "padded_ids": "leave-out" if leave_out_padded else "refuse",
        }

    def scores(self, documents: Sequence[ScoredDocument], k: int, answered: Answered = unnoticed) -> list[Signals]:
        found: dict[int, Signals] = {}
        for batch in self._batches(documents):
            chosen = [documents[number] for number in batch]
            found.update(zip(batch, self._of_batch(chosen, k), strict=True))
            answered(sum(each.positions.size for each in chosen))
        return [found[number] for number in range(len(documents))]

    def _batches(self, documents: Sequence[ScoredDocument]) -> Iterator[list[int]]:
        """Numbers of documents that are read together, shortest first."""
        batch: list[int] = []
        for number in sorted(range(len(documents)), key=lambda number: (documents[number].tokens.size, number)):
            if batch and (len(batch) + 1) * documents[number].tokens.size > self._batch_tokens:
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _of_batch(self, documents: Sequence[ScoredDocument], k: int) -> list[Signals]:
        held = min(self._model.get_input_embeddings().weight.shape[0], self._head.weight.shape[0])
        highest = max(max(int(each.tokens.max()), int(each.labels.max())) for each in documents)
        if max(highest + 1, k) > held:
            raise TeacherError(
                f"the dataset has token {highest} and k is {k}; the model has {held:,} tokens",
                remedy="take the model of the tokenizer, or a smaller --top-k",
            )
        longest = max(each.tokens.size for each in documents)
        tokens = torch.zeros((len(documents), longest), dtype=torch.int64)
        attended = torch.zeros_like(tokens)
        for row, each in enumerate(documents):
            tokens[row, : each.tokens.size] = torch.from_numpy(each.tokens.astype(np.int64))
            attended[row, : each.tokens.size] = 1
        rows = np.repeat(np.arange(len(documents)), [each.positions.size for each in documents])
        columns = np.concatenate([each.positions for each in documents])
        labels = torch.from_numpy(np.concatenate([each.labels for each in documents]).astype(np.int64))
        places = torch.from_numpy(rows).to(self._device), torch.from_numpy(columns).to(self._device)
        logits = self._logits(tokens.to(self._device), attended.to(self._device), places)
        joined = Signals.joined(
            [self._signals(part, labels[first : first + len(part)], k) for first, part in logits], k
        )
        ends = np.cumsum([each.positions.size for each in documents]).tolist()
        return [
            Signals(**{name: getattr(joined, name)[begin:end] for name in Signals.__annotations__})
            for begin, end in zip([0, *ends], ends, strict=False)
        ]

    def _logits(
        self, tokens: torch.Tensor, attended: torch.Tensor, places: tuple[torch.Tensor, torch.Tensor]
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """`(number of the first position, logits [positions, V])`, for all positions in order, some at once.

        What a model does behind its output layer (a scale, a soft cap) is done by the model: its layer is given the
        hidden states of some positions alone. All positions need one pass, if the layer is the last thing in it.
        """
        held: dict[str, torch.Tensor] = {}
        at_once = max(1, LOGITS_AT_ONCE // self._head.weight.shape[0])
        count = places[0].numel()

        def some(first: int) -> Any:
            def given(_: Any, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
                held["states"] = args[0][places]
                return (held["states"][first : first + at_once].unsqueeze(0),)

            return given

        def passed(first: int) -> torch.Tensor:
            hook = self._head.register_forward_pre_hook(some(first))
            try:
                whole = self._model(input_ids=tokens, attention_mask=attended, use_cache=False)
            finally:
                hook.remove()
            return whole.logits[0]

        logits = passed(0)
        yield 0, logits
        if count <= at_once:
            return
        last = torch.equal(self._head(held["states"][:1]), logits[:1])
        for first in range(at_once, count, at_once):
            yield first, self._head(held["states"][first : first + at_once]) if last else passed(first)

    def _signals(self, logits: torch.Tensor, labels: torch.Tensor, k: int) -> Signals:
        logits = logits.float()
        logprobs = logits - logits.logsumexp(-1, keepdim=True)
        own = logprobs.gather(1, labels.to(self._device)[:, None])[:, 0]
        if logprobs.shape[1] > self._vocabulary:
            top = logprobs.topk(k)
            above = top.indices >= self._vocabulary
            if above.any() and not self._leave_out:
                raise TeacherError(
                    f"the teacher ranks token {int(top.indices[above][0])}, above the {self._vocabulary:,} of the "
                    "tokenizer",
                    remedy="--padded-ids leave-out leaves such tokens out, and counts them",
                )
            self.padded += int(above.sum())
            top = logprobs[:, : self._vocabulary].topk(k)
        else:
            top = logprobs.topk(k)
        rest = logprobs.scatter(1, top.indices, -torch.inf).logsumexp(-1)
        return Signals(
            ids=top.indices.to(torch.int32).cpu().numpy(),
            logprobs=top.values.cpu().numpy(),
            own=own.cpu().numpy(),
            rest=rest.clamp(min=-1e4).cpu().numpy(),
        )


def _loaded(folder: Path, dtype: torch.dtype, device: str | None) -> Any:
    try:
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM
    except ImportError:
        raise OptionError("--model needs transformers", remedy="pip install 'spanloom[teacher]'") from None
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as fault:
        raise TeacherError(
            f"transformers cannot load the model: {str(fault).splitlines()[0][:200]}", where=str(folder)
        ) from None
    return model.to(chosen).eval().requires_grad_(False)


def hashes_of_weights(folder: Path) -> dict[str, str]:
    """sha256 of the files that decide scores, by name. Raises TeacherError if weights are missing."""
    return {name: sha256_file(folder / name) for name in _files(folder)}


def _files(folder: Path) -> list[str]:
    """The files that decide scores: weights, their index, config."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix in (".safetensors", ".bin"))
    index = [path.name for path in folder.glob("*.index.json")]
    if not names:
        raise TeacherError("the folder has no weights", where=str(folder), remedy="give a model folder with weights")
    if index and (missing := {*json.loads((folder / index[0]).read_text())["weight_map"].values()} - {*names}):
        raise TeacherError(f"weights are missing: {min(missing)}", where=str(folder))
    return ["config.json", *sorted(index), *names]
