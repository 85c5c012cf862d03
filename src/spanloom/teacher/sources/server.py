"""An OpenAI-compatible server as the teacher: `prompt_logprobs` of `/v1/completions`, as vLLM has it.

In: the address of a server. Out: `Signals`. Each document is one request, whose prompt is its token ids. At k = 32 an
answer takes 2.5 kB of JSON a label: for small datasets. Requests are repeated where the server is busy or away.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import orjson
import urllib3

from spanloom.presentable import presentable
from spanloom.teacher.positions import ScoredDocument
from spanloom.teacher.signals import Signals, TeacherError
from spanloom.teacher.sources.answers import Answer, prompt_of, signals_of
from spanloom.teacher.sources.teacher import Answered, unnoticed

KEY_VARIABLE = "OPENAI_API_KEY"
TOLERANCE = 0.25
"""By how much log-probabilities of one document may differ between requests: servers mostly compute in bfloat16."""

TRIES = 8
SECONDS = 600
"""That one answer may take."""


class ServerTeacher:
    """A server. See `teacher.Teacher`. Its weights are not seen: the identity is the name that it gives itself."""

    padded = 0
    at_once = 1 << 16

    def __init__(self, url: str, *, model: str | None = None, concurrency: int = 8) -> None:
        """`url`: with or without `/v1`; `model`: its name there, by default the only one; `concurrency`: requests at
        once."""
        self._url = url.rstrip("/").removesuffix("/v1")
        self._concurrency = concurrency
        key = os.environ.get(KEY_VARIABLE)
        retries = urllib3.Retry(
            total=TRIES,
            backoff_factor=0.5,
            status_forcelist=(429, 502, 503, 504),
            allowed_methods=None,
            raise_on_status=False,
            respect_retry_after_header=True,
        )
        self._pool = urllib3.PoolManager(
            maxsize=concurrency,
            retries=retries,
            timeout=urllib3.Timeout(connect=10, read=SECONDS),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )
        try:
            served = {each["id"]: each for each in self._json("GET", "/v1/models")["data"]}
            lengths = {name: int(each.get("max_model_len") or 1 << 31) for name, each in served.items()}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise TeacherError(
                "the server's list of models is not that of an OpenAI-compatible server",
                where=presentable(f"{self._url}/v1/models"),
                remedy="serve the model with vLLM",
            ) from None
        if model is None and len(served) == 1:
            model = next(iter(served))
        if model not in served:
            raise TeacherError(
                f"the server has the models {', '.join(served) or 'none'}",
                where=presentable(url),
                remedy="give one by --served-model",
            )
        self._model = model
        # The answer has one token, and the prompt the last label.
        self.context = lengths[model] - 2
        self.tolerance = TOLERANCE
        first = self._json("POST", "/v1/completions", {"model": model, "prompt": [0, 0], "max_tokens": 1})
        self.identity = {
            "source": "server",
            "model": model,
            "root": served[model].get("root"),
            "fingerprint": first.get("system_fingerprint") if isinstance(first, dict) else None,
            "is_hash_of_weights": False,
        }

    def scores(self, documents: Sequence[ScoredDocument], k: int, answered: Answered = unnoticed) -> list[Signals]:
        found = []
        with ThreadPoolExecutor(self._concurrency) as threads:
            for signals in threads.map(lambda document: self._score(document, k), documents):
                found.append(signals)
                answered(len(signals))
        return found

    def _score(self, document: ScoredDocument, k: int) -> Signals:
        request = {
            "model": self._model,
            "prompt": prompt_of(document),
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": k,
            "return_token_ids": True,
        }
        answered = self._json("POST", "/v1/completions", request)
        try:
            (choice,) = answered["choices"]
            entries = [each or {} for each in choice["prompt_logprobs"]]
            answer = Answer(
                echoed=[*choice["prompt_token_ids"]],
                counts=[len(each) for each in entries],
                ids=np.array([int(token) for each in entries for token in each], np.int64),
                logprobs=np.array([value["logprob"] for each in entries for value in each.values()], np.float64),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as fault:
            raise TeacherError(
                f"the answer has no prompt_logprobs with the ids of the prompt ({type(fault).__name__}: {fault})",
                where=presentable(self._url),
                remedy="serve the model with vLLM",
            ) from None
        return signals_of(document, answer, k)

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        where = presentable(self._url + path)
        headers = {**self._pool.headers, "Content-Type": "application/json"}
        try:
            answered = self._pool.request(
                method, self._url + path, body=None if body is None else orjson.dumps(body), headers=headers
            )
        except (urllib3.exceptions.HTTPError, OSError) as fault:
            raise TeacherError(
                f"the server does not answer: {type(fault).__name__}",
                where=where,
                remedy="start it, and run the same command again: what was scored is kept",
            ) from None
        if answered.status != 200:
            said = presentable(answered.data[:300].decode(errors="replace"))
            remedy = "serve it with --max-logprobs of k or more" if "logprobs" in said else None
            raise TeacherError(f"the server answers {answered.status}: {said}", where=where, remedy=remedy)
        try:
            return orjson.loads(answered.data)
        except orjson.JSONDecodeError:
            raise TeacherError("the server's answer is not JSON", where=where) from None
