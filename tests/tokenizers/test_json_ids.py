"""The fast encoder of a `tokenizer.json` is used where its ids are those of `tokenizers`."""

import json
import sys
from pathlib import Path

import pytest

from spanloom.errors import TokenizerError
from spanloom.families.models.model import load_model
from spanloom.tokenizers.encoding import JsonTokenizer
from spanloom.tokenizers.json_ids import IdEncoder, fast_ahead
from support.chat_models import MARKERS, write_model


def test_a_file_that_contradicts_itself_is_encoded_by_tokenizers_alone(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model") / "tokenizer.json"
    assert IdEncoder(JsonTokenizer(path, extra="chat"), fast_ahead(path)).fast
    stored = json.loads(path.read_text())
    number = stored["added_tokens"][-1]["id"]
    stored["added_tokens"][-1]["id"] += 5
    path.write_text(json.dumps(stored))
    tokenizer = JsonTokenizer(path, extra="chat")
    encoder, last = IdEncoder(tokenizer, fast_ahead(tokenizer.path)), stored["added_tokens"][-1]["content"]
    assert not encoder.fast
    assert encoder.ids(MARKERS[0] + last).tolist() == [tokenizer.id_of(MARKERS[0]), number]


def test_without_the_package_a_model_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment that has the wheel alone."""
    folder = write_model(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TokenizerError) as fault:
        load_model(folder)
    assert fault.value.remedy == "pip install 'spanloom[data]'"
