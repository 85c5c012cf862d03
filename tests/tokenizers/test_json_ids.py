"""The fast encoder of a `tokenizer.json` is used where its ids are those of `tokenizers`."""

import json
from pathlib import Path

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
