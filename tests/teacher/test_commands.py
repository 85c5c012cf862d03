"""`spanloom teacher score` and `validate` as they are typed; the reader of the documentation."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spanloom.teacher.signals import TeacherError
from spanloom.teacher.tokenizer import check_tokenizer
from support import warm
from support.teachers import documents, expected, write_scored_dataset
from tokenizers import Tokenizer

READER = Path(__file__).parents[2] / "docs/examples/read_teacher.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_scored_dataset(tmp_path_factory.mktemp("made"))


def spanloom(*words: object) -> subprocess.CompletedProcess[str]:
    return warm.run("spanloom", *map(str, words), env=os.environ)


def test_score_and_validate(made: tuple[Path, Path], tmp_path: Path) -> None:
    root, model = made
    dry = spanloom("teacher", "score", root, "--top-k", 4, "--dry-run", "--rate", 100, "--json")
    size = json.loads(dry.stdout)
    counted = sum(int(mask.sum()) for _, mask in documents(root))
    assert size["labels"] >= counted > 0
    assert size["bytes"] == size["labels"] * (4 * 4 + 4), "ids and log-probabilities of 2 bytes each, own, rest"
    assert size["hours"] == size["labels"] / 100 / 3600
    out = tmp_path / "signals"
    done = spanloom("teacher", "score", root, "--model", model, "--top-k", 4, "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"{size['labels']:,} labels" in done.stdout
    again = spanloom("teacher", "score", root, "--model", model, "--top-k", 4, "--out", out)
    assert "is there already" in again.stdout
    checked = spanloom("teacher", "validate", out, "--dataset", root, "--model", model, "--deep", 3, "--json")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["checked"]["documents scored again"] >= 3
    (out / "train/shard_00_own.bin").write_bytes(b"")
    assert spanloom("teacher", "validate", out, "--dataset", root).returncode == 4


def test_the_reader_of_the_documentation_reads_the_same(made: tuple[Path, Path], tmp_path: Path) -> None:
    root, model = made
    out = tmp_path / "signals"
    assert spanloom("teacher", "score", root, "--model", model, "--top-k", 3, "--out", out).returncode == 0
    words = [sys.executable, READER, root, out, "train", "0", "2"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    logprobs, labels = expected(model, *documents(root)[2])
    assert len(lines) == labels.size
    for line, label, row in zip(lines, labels.tolist(), logprobs, strict=True):
        own = line.split()
        assert int(own[0]) == label
        assert float(own[1]) == pytest.approx(max(row[label], -32), abs=7e-4)
        for each, token in zip(own[3:], np.argsort(-row)[:3].tolist(), strict=True):
            number, value = each.split(":")
            assert float(value) == pytest.approx(max(row[token], -32), abs=7e-4)
            assert float(value) == pytest.approx(max(row[int(number)], -32), abs=7e-4)


def test_what_is_missing_is_said(made: tuple[Path, Path], tmp_path: Path) -> None:
    root, model = made
    shutil.copytree(model, tmp_path / "bare")
    (tmp_path / "bare/model.safetensors").unlink()
    for words, said in (
        ([root], "a teacher is one of --model, --vllm, --server"),
        ([root, "--model", tmp_path], "has no tokenizer.json"),
        ([root, "--model", tmp_path / "bare"], "model"),
        ([root, "--model", model, "--top-k", 10**6], "the tokenizer has"),
        ([root, "--model", model, "--spans", "nothing"], "no span 'nothing'"),
        ([tmp_path / "none", "--model", model], "no such"),
    ):
        done = spanloom("teacher", "score", *words, "--out", tmp_path / "out")
        assert done.returncode in (1, 2), done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_another_tokenizer_is_refused(made: tuple[Path, Path], tmp_path: Path) -> None:
    """Of the same size: two tokens exchanged; and one that splits text otherwise."""
    root, model = made
    other = tmp_path / "other"
    shutil.copytree(model, other)
    whole = json.loads((model / "tokenizer.json").read_text())
    vocabulary = whole["model"]["vocab"]
    first, second = [token for token in vocabulary if len(token) == 1][:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(whole))
    done = spanloom("teacher", "score", root, "--model", other, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "tokenizer_differs: token" in done.stderr
    whole = json.loads((model / "tokenizer.json").read_text())
    whole["model"]["merges"] = whole["model"]["merges"][:3]
    (other / "tokenizer.json").write_text(json.dumps(whole))
    done = spanloom("teacher", "score", root, "--model", other, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "tokenizer_differs: the text" in done.stderr


def test_a_tokenizer_without_a_file_is_compared_by_its_tokens(made: tuple[Path, Path]) -> None:
    """As that of gpt-oss, which is no tokenizer.json in the dataset."""
    _, model = made
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))

    class Table:
        def is_special(self, token: int) -> bool:
            return tokenizer.id_to_token(token).startswith("<|")

        def name(self, token: int) -> str:
            return str(tokenizer.id_to_token(token))

        def piece(self, token: int) -> bytes:
            raw = tokenizer.decode([token], skip_special_tokens=False)
            return raw.encode() if "\ufffd" not in raw else BYTES[tokenizer.id_to_token(token)]

    size = tokenizer.get_vocab_size()
    ids = tokenizer.encode("the answer is here", add_special_tokens=False).ids
    check_tokenizer(Table(), size, None, model / "tokenizer.json", [ids])
    letters = [tokenizer.token_to_id(letter) for letter in "answer"]
    assert tokenizer.encode("answer", add_special_tokens=False).ids != letters
    with pytest.raises(TeacherError, match="the text 'answer'"):
        check_tokenizer(Table(), size, None, model / "tokenizer.json", [letters])


def _letters() -> dict[str, bytes]:
    """The letters of byte-level BPE, as GPT-2 defines them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): bytes([byte]) for byte in plain} | {
        chr(256 + number): bytes([byte]) for number, byte in enumerate(others)
    }


BYTES = _letters()
