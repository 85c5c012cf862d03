"""The content of each message on disk is what tiktoken makes of its text, and nothing else is."""

import json
import random
from pathlib import Path

import numpy as np
import openai_harmony
import pytest

from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.families.harmony import dataset as family
from spanloom.families.harmony.sample import TEXTS, Row, sample_rows
from spanloom.families.harmony.tiktoken_encoding import load_tiktoken
from spanloom.families.harmony.tokenizer import MESSAGE
from spanloom.families.harmony.verify import source as verify_source
from spanloom.families.harmony.verify.reference import DiskSequences, disk_sequences
from spanloom.families.harmony.verify.texts import TextCheck
from support import sources
from support.bad_builds import FINE_ROWS, build_it

SYSTEM = {"role": "system", "content": [{"type": "system_content", "model_identity": "A model."}]}


@pytest.fixture(scope="module")
def texts(asset: Path) -> TextCheck:
    return TextCheck(load_tiktoken(asset))


def differences(
    check: TextCheck, messages_json: str, encoding: openai_harmony.HarmonyEncoding
) -> tuple[int, list[tuple[int, str]]]:
    """How many texts were encoded for a conversation as it must lie on disk, and what was found."""
    before = check.texts
    tokens = np.array(disk_sequences(messages_json, encoding).tokens, dtype=np.int32)
    found = list(check.differences(json.loads(messages_json)["messages"], tokens))
    return check.texts - before, found


WHOLE_ROWS = {str(row["script"]): row for row in sample_rows() if all(row[column] for column in TEXTS)}


@pytest.mark.parametrize("row", WHOLE_ROWS.values(), ids=WHOLE_ROWS.keys())
def test_every_kind_of_text_of_the_sample_is_what_tiktoken_makes_of_it(
    row: Row, texts: TextCheck, encoding: openai_harmony.HarmonyEncoding
) -> None:
    said = sources.conversation(*(str(row[column]) for column in TEXTS))
    messages_json = json.dumps({"messages": [SYSTEM, *said, *said]})
    assert differences(texts, messages_json, encoding) == (6, [])


@pytest.mark.parametrize("name", [name for name, row in FINE_ROWS.items() if "messages_json" in row])
def test_every_shape_of_conversation_that_rendering_takes(
    name: str, texts: TextCheck, encoding: openai_harmony.HarmonyEncoding
) -> None:
    messages_json = str(FINE_ROWS[name]["messages_json"])
    assert differences(texts, messages_json, encoding) == (len(json.loads(messages_json)["messages"]), [])


def test_each_part_of_a_content_is_encoded_by_itself(
    texts: TextCheck, encoding: openai_harmony.HarmonyEncoding
) -> None:
    parts = [{"type": "text", "text": text} for text in ("hel", "lo wor", "", "ld")]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "channel": "final", "content": "So."}]
    assert differences(texts, json.dumps({"messages": messages}), encoding) == (5, [])


def test_a_changed_token_is_found_where_it_is(texts: TextCheck, encoding: openai_harmony.HarmonyEncoding) -> None:
    """Any token of any text, also where the changed ones spell the same bytes."""
    messages_json = json.dumps({"messages": [SYSTEM, *sources.conversation("Why Wasser?", "Since 日本.", "So it is.")]})
    tokens = np.array(disk_sequences(messages_json, encoding).tokens, dtype=np.int32)
    inside = [at for at in range(np.flatnonzero(tokens == MESSAGE)[1] + 1, tokens.size) if tokens[at] < 199_998]
    inside = [at for at in inside if tokens[at - 1] not in (200_006, 200_005)]  # no headers: role, channel
    draw = random.Random(7)
    for at in inside:
        changed = tokens.copy()
        changed[at] = draw.choice([token for token in range(300, 400) if token != tokens[at]])
        (found,) = texts.differences(json.loads(messages_json)["messages"], changed)
        assert found[0] == at
        assert f"tiktoken gives [{tokens[at]}], the dataset has [{changed[at]}], around " in found[1]
    spelled = [token for letter in "Why" for token in encoding.encode(letter)]
    at = int(np.flatnonzero(tokens == encoding.encode("Why")[0])[0])
    changed = np.concatenate([tokens[:at], spelled, tokens[at + 1 :]]).astype(np.int32)
    (found,) = texts.differences(json.loads(messages_json)["messages"], changed)
    assert found[0] == at


def test_a_message_too_few_and_a_text_cut_short_are_found(
    texts: TextCheck, encoding: openai_harmony.HarmonyEncoding
) -> None:
    messages = sources.conversation()
    tokens = np.array(disk_sequences(json.dumps({"messages": messages}), encoding).tokens, dtype=np.int32)
    more = [*messages, {"role": "user", "content": "And?"}]
    assert list(texts.differences(more, tokens)) == [(0, "3 messages begin in the document, the source has 4")]
    longer = [{"role": "user", "content": "Why? And"}, *messages[1:]]
    ((_, said),) = texts.differences(longer, tokens)
    assert said.endswith("the dataset has [], around 'Why? And'")


def test_validation_finds_what_a_wrong_openai_harmony_would_let_pass(
    tmp_path: Path, asset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rendering and rendering again go through openai-harmony: where it is wrong, they agree, and tiktoken does not.

    That it decodes the tokens to another text is a finding too.
    """
    source = sources.write_source(tmp_path / "source", [sources.rows(5)])
    assert build_it(source, tmp_path / "root", valid_fraction=0.0).report.clean
    whole = validate_dataset(tmp_path / "root", family, source=source, deep=5, tokenizer=asset)
    assert whole.clean
    assert whole.checked["texts encoded again"] == 15

    path = tmp_path / "root/train/shard_00_tokens.bin"
    tokens = np.fromfile(path, dtype=np.int32)
    at = int(np.flatnonzero(tokens == MESSAGE)[4]) + 1  # the first word of the second document's reasoning
    tokens[at] = tokens[at] + 1
    tokens.tofile(path)

    def as_on_disk(messages_json: str, encoding: openai_harmony.HarmonyEncoding) -> DiskSequences:
        wrong = disk_sequences(messages_json, encoding)
        if "id-1" in messages_json:
            wrong.tokens[int(np.flatnonzero(np.array(wrong.tokens) == MESSAGE)[1]) + 1] += 1
        return wrong

    monkeypatch.setattr(verify_source, "disk_sequences", as_on_disk)
    report = validate_dataset(tmp_path / "root", family, source=source, deep=5, tokenizer=asset)
    told = {finding.check for finding in report.findings}
    assert told == {"inventory", "source", "tiktoken"}, report.findings
    (finding,) = (finding for finding in report.findings if finding.check == "tiktoken")
    assert (finding.split, finding.shard, finding.sequence) == ("train", 0, 1)
    assert finding.message.startswith("source row 1: tiktoken gives [")
