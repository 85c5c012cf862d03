"""A server as the teacher gives what the model itself gives; whatever else it answers is refused. By night with vLLM.

The server here speaks as vLLM 0.32.0 answered `prompt_logprobs`, with scores of `support.teachers.expected`.
"""

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanloom.dataset.root.opened import content_at
from spanloom.megatron.readers import open_with
from spanloom.teacher.reader import open_teacher
from spanloom.teacher.score import Scoring, score
from spanloom.teacher.signals import TeacherError
from spanloom.teacher.sources.hugging import HuggingFaceTeacher
from spanloom.teacher.sources.server import ServerTeacher
from spanloom.teacher.validate import validate_signals
from support.nightly import NIGHTLY
from support.ports import free_ports
from support.teachers import documents, expected, write_scored_dataset

K = 5
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_scored_dataset(tmp_path_factory.mktemp("made"), conversations=12)


def answer(model: Path, request: dict[str, Any]) -> dict[str, Any]:
    """As vLLM answers: the own token first, then the ranks; the own token once if it is ranked."""
    prompt, k = request["prompt"], request.get("prompt_logprobs")
    choice: dict[str, Any] = {"index": 0, "text": "", "prompt_token_ids": prompt, "prompt_logprobs": None}
    if k:
        mask = np.ones(len(prompt), np.uint8)
        logprobs, labels = expected(model, np.array(prompt, np.int32), mask)
        entries: list[dict[str, Any] | None] = [None]
        for row, label in zip(logprobs, labels.tolist(), strict=True):
            order = np.argsort(-row, kind="stable")
            ranks = {int(token): rank for rank, token in enumerate(order[:k], 1)}
            ranks = {label: int((row > row[label]).sum()) + 1, **ranks}
            entries.append({str(t): {"logprob": float(row[t]), "rank": rank} for t, rank in ranks.items()})
        choice["prompt_logprobs"] = entries
    return {"choices": [choice], "system_fingerprint": "vllm-test"}


MODELS = {"data": [{"id": "tiny", "root": "tiny", "max_model_len": 4096}]}


@contextmanager
def serving(model: Path, change: Change | None = None, *, busy: int = 0, models: Any = MODELS) -> Iterator[str]:
    """The address of a server. `change`: of each answer with scores; `busy`: how many requests get 429 first; `models`:
    what it lists."""
    left = busy

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def reply(self, status: int, body: Any, **headers: str) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.reply(200, models)

        def do_POST(self) -> None:
            nonlocal left
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if request.get("prompt_logprobs") and left:
                left -= 1
                self.reply(429, {}, Retry_After="0")
                return
            whole = answer(model, request)
            if change is not None and request.get("prompt_logprobs"):
                changed = change(whole)
                if isinstance(changed, dict) and changed.keys() & {"raw", "status"}:
                    whole = changed
            self.reply(whole.pop("status", 200), whole.pop("raw", whole))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def same(root: Path, one: Path, other: Path, tolerance: float) -> int:
    """Compares two folders of signals: log-probabilities, and ids that are farther apart. Returns how many labels."""
    left, right = open_teacher(one, root), open_teacher(other, root)
    seen = 0
    for number in range(len(documents(root))):
        mine, its = left.document("train", 0, number), right.document("train", 0, number)
        assert mine is not None
        assert its is not None
        assert np.abs(mine.logprobs - its.logprobs).max() < tolerance
        assert np.abs(mine.own - its.own).max() < tolerance
        assert np.abs(np.exp(mine.rest) - np.exp(its.rest)).max() < tolerance
        apart = -np.diff(mine.logprobs, axis=1) > 2 * tolerance
        clear = np.hstack([np.ones((len(mine), 1), bool), apart]) & np.hstack([apart, np.zeros((len(mine), 1), bool)])
        assert np.array_equal(mine.ids[clear], its.ids[clear])
        seen += len(mine)
    return seen


def test_a_server_gives_what_the_model_gives(made: tuple[Path, Path], tmp_path: Path) -> None:
    root, model = made
    own = HuggingFaceTeacher(model, vocabulary=content_at(root).tokenizer.vocab_size)
    score(root, tmp_path / "model", own, Scoring(k=K))
    with serving(model, busy=3) as url:
        content, _ = score(root, tmp_path / "server", ServerTeacher(f"{url}/v1"), Scoring(k=K))
        checking = ServerTeacher(url)
        report = validate_signals(tmp_path / "server", root, open_with("independent"), teacher=checking, deep=2)
    assert report.clean, report.findings
    assert content.teacher["fingerprint"] == "vllm-test"
    assert content.teacher["is_hash_of_weights"] is False
    assert same(root, tmp_path / "model", tmp_path / "server", 1e-3) > 300


def entries(whole: dict[str, Any]) -> list[Any]:
    found: list[Any] = whole["choices"][0]["prompt_logprobs"]
    return found


def every(change: Callable[[dict[str, Any]], Any]) -> Change:
    def changed(whole: dict[str, Any]) -> None:
        for entry in entries(whole)[1:]:
            change(entry)

    return changed


def without_own(whole: dict[str, Any]) -> None:
    for token, entry in zip(whole["choices"][0]["prompt_token_ids"][1:], entries(whole)[1:], strict=True):
        entry.pop(str(token))
        entry["0" if token else "1"] = {"logprob": -9.0}


WRONG: dict[str, tuple[Change, str]] = {
    "of another prompt": (lambda whole: whole["choices"][0]["prompt_token_ids"].reverse(), "other tokens"),
    "a prompt cut at its begin": (lambda whole: whole["choices"][0]["prompt_token_ids"].pop(0), "other tokens"),
    "truncated": (lambda whole: entries(whole).pop(), "entries for each"),
    "shifted by one": (lambda whole: entries(whole).insert(1, entries(whole).pop()), "not among its own entries"),
    "a rank dropped": (every(lambda entry: entry.popitem()), "entries for each|more probable"),
    "ten ranks": (every(lambda entry: entry.update({str(n): {"logprob": -20.0} for n in range(200, 210)})), "entries"),
    "logits": (every(lambda entry: [each.update(logprob=each["logprob"] + 30) for each in entry.values()]), "above 0"),
    "too probable": (every(lambda entry: [each.update(logprob=-0.1) for each in entry.values()]), "exceed 1"),
    "minus infinity": (every(lambda entry: [each.update(logprob=-9999.0) for each in entry.values()]), "infinity"),
    "no number": (every(lambda entry: [each.update(logprob=float("nan")) for each in entry.values()]), "JSON|number"),
    "without the own token": (without_own, "not among its own entries"),
    "ids of a padded vocabulary": (
        every(lambda entry: entry.update({"9999": entry.pop(max(entry, key=lambda t: entry[t]["logprob"]))})),
        "not among its own|not below",
    ),
    "no log-probabilities": (lambda whole: whole["choices"][0].pop("prompt_logprobs"), "no prompt_logprobs"),
    "no echo": (lambda whole: whole["choices"][0].pop("prompt_token_ids"), "no prompt_logprobs with the ids"),
    "an echo of nothing": (lambda whole: whole["choices"][0].update(prompt_token_ids=None), "no prompt_logprobs"),
    "an id of 70 bits": (every(lambda entry: entry.update({str(1 << 70): {"logprob": -9.0}})), "no prompt_logprobs"),
    "a word for a number": (every(lambda entry: entry.update({"3": {"logprob": "x"}})), "no prompt_logprobs"),
    "a list of entries": (lambda whole: entries(whole).__setitem__(1, [1, 2]), "no prompt_logprobs"),
    "a list": (lambda _: {"raw": b"[]"}, "no prompt_logprobs"),
    "half of an answer": (lambda whole: {"raw": json.dumps(whole).encode()[:99]}, "not JSON"),
    "two choices": (lambda whole: whole["choices"].append(whole["choices"][0]), "no prompt_logprobs"),
    "no JSON": (lambda _: {"raw": b"<html>"}, "not JSON"),
    "an error": (lambda _: {"status": 400, "error": "logprobs: at most 4"}, "--max-logprobs"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers_are_refused(made: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    root, model = made
    change, why = WRONG[name]
    with serving(model, change) as url, pytest.raises(TeacherError) as refused:
        score(root, tmp_path / "out", ServerTeacher(url), Scoring(k=K))
    assert any(each in str(refused.value) for each in why.split("|")), refused.value
    assert not (tmp_path / "out").exists()


def test_a_server_that_is_away_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanloom.teacher.sources.server.TRIES", 1)
    (port,) = free_ports(1)
    with pytest.raises(TeacherError, match="does not answer"):
        ServerTeacher(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("models", [[], {}, {"data": None}, {"data": ["tiny"]}, {"data": [{"id": []}]}, 7])
def test_a_server_of_something_else_is_said(made: tuple[Path, Path], models: Any) -> None:
    with serving(made[1], models=models) as url, pytest.raises(TeacherError, match="list of models is not that"):
        ServerTeacher(url)


def test_a_model_of_several_is_named(made: tuple[Path, Path]) -> None:
    _, model = made
    with serving(model) as url, pytest.raises(TeacherError, match="has the models tiny"):
        ServerTeacher(url, model="other")


@pytest.mark.skipif(not NIGHTLY or "SPANLOOM_VLLM" not in os.environ, reason="SPANLOOM_VLLM: python of an environment")
def test_vllm_in_its_own_process_gives_what_the_model_gives(made: tuple[Path, Path], tmp_path: Path) -> None:
    """`SPANLOOM_VLLM` names the python of an environment with vLLM and spanloom. vLLM needs heads of 32 or 64."""
    root, model = made
    own = HuggingFaceTeacher(model, vocabulary=content_at(root).tokenizer.vocab_size)
    score(root, tmp_path / "model", own, Scoring(k=K))
    words = [
        os.environ["SPANLOOM_VLLM"],
        "-m",
        "spanloom",
        "teacher",
        "score",
        root,
        "--vllm",
        model,
        "--top-k",
        str(K),
    ]
    more = ["--dtype", "float32", "--out", tmp_path / "vllm"]
    done = subprocess.run([*words, *more], capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr[-2_000:]
    assert same(root, tmp_path / "model", tmp_path / "vllm", 1e-3) > 300
