"""vLLM in this process as the teacher: the way for large datasets.

In: a model folder. Out: `Signals`. vLLM batches the documents of a part by itself.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.errors import OptionError
from spanloom.teacher.positions import ScoredDocument
from spanloom.teacher.signals import Signals
from spanloom.teacher.sources.answers import Answer, prompt_of, signals_of
from spanloom.teacher.sources.hugging import TOLERANCE, Dtype, hashes_of_weights
from spanloom.teacher.sources.teacher import Answered, unnoticed


class VllmTeacher:
    """A model folder with weights. See `teacher.Teacher`."""

    padded = 0
    at_once = 1 << 19  # it does not say how far it is, and is fast where it has many documents

    def __init__(
        self,
        folder: Path,
        *,
        k: int,
        dtype: Dtype = "bfloat16",
        tensor_parallel: int = 1,
        quantization: str | None = None,
        context: int | None = None,
    ) -> None:
        """`k`: the most that `scores` is called with; `context`: tokens, None for the model's own."""
        try:
            from vllm import LLM
        except ImportError:
            raise OptionError("--vllm needs vLLM", remedy="install vllm beside spanloom, by vLLM's own pages") from None
        self._model: Any = LLM(
            model=str(folder),
            dtype=dtype,
            tensor_parallel_size=tensor_parallel,
            quantization=quantization,
            max_model_len=context,
            max_logprobs=k,
            seed=0,
            enable_prefix_caching=False,  # a cached prefix has no log-probabilities
        )
        self.context = int(self._model.llm_engine.model_config.max_model_len) - 2
        self.tolerance = TOLERANCE[dtype]
        self.identity = {
            "source": "vllm",
            "files": hashes_of_weights(folder),
            "dtype": dtype,
            "tensor_parallel": tensor_parallel,
            "quantization": quantization,
        }

    def scores(self, documents: Sequence[ScoredDocument], k: int, answered: Answered = unnoticed) -> list[Signals]:
        from vllm import SamplingParams

        asked = SamplingParams(
            max_tokens=1, temperature=0, prompt_logprobs=k, flat_logprobs=True, detokenize=False, seed=0
        )
        prompts = [{"prompt_token_ids": prompt_of(document)} for document in documents]
        answers = self._model.generate(prompts, asked, use_tqdm=False) if prompts else []
        answered(sum(each.positions.size for each in documents))
        return [signals_of(document, _answer(each), k) for document, each in zip(documents, answers, strict=True)]


def _answer(output: Any) -> Answer:
    """Each position of vLLM's flat form begins with the token itself, which is there twice where it is ranked."""
    flat = output.prompt_logprobs
    ids, logprobs = np.asarray(flat.token_ids, np.int64), np.asarray(flat.logprobs, np.float64)
    begins = np.asarray(flat.start_indices, np.int64)
    counts = np.diff([*begins.tolist(), ids.size])
    own = np.repeat(begins, counts)  # of each entry, where its position begins
    again = (ids == ids[own]) & (logprobs == logprobs[own]) & (np.arange(ids.size) != own)
    left = np.ones(ids.size, np.bool_)
    left[own[again]] = False
    counts = counts - np.bincount(
        np.searchsorted(begins, np.flatnonzero(~left), side="right") - 1, minlength=counts.size
    )
    return Answer(echoed=output.prompt_token_ids, counts=counts, ids=ids[left], logprobs=logprobs[left])
