"""Masks and spans of tokens: the recorded masks, and the laws of both formats."""

import hashlib
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from spanloom.errors import OptionError
from spanloom.families.traces import render
from spanloom.families.traces.encoding.tokenizer import find_eod, load_tokenizer
from spanloom.families.traces.encoding.tokens import TokenFormat, TokenizedTrace, tokenized
from spanloom.families.traces.trace import Trace
from spanloom.tokenizers.encoding import JsonTokenizer
from support.nightly import drawn
from support.traces import CASES, payloads, read_json
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

MASKS = CASES / "fixtures/masks"
TOKENIZERS = ("tokenizer_bytelevel.json", "tokenizer_gemmalike.json")


@pytest.fixture(scope="session")
def tokenizer_named(trace_cases: Path) -> Callable[[str], JsonTokenizer]:
    loaded = {name: load_tokenizer(trace_cases / "fixtures/masks" / name) for name in TOKENIZERS}
    return loaded.__getitem__


def one(payload: dict[str, Any], form: TokenFormat, tokenizer: JsonTokenizer) -> TokenizedTrace:
    return next(tokenized([render.texts_of(payload)], form, tokenizer))


def test_recorded_masks(
    trace_cases: Path, case_rows: list[dict[str, Any]], tokenizer_named: Callable[[str], JsonTokenizer]
) -> None:
    payloads_of = {row["id"]: row["payload"] for row in case_rows}
    cases = read_json(trace_cases / "fixtures/masks/expected_masks.json")
    assert cases
    for case in cases:
        texts = render.texts_of(payloads_of[case["id"]])
        text = render.chat_text(texts)
        found = next(tokenized([texts], "tunix_sft", tokenizer_named(case["tokenizer"])))
        mask = found.loss_mask.tolist()
        said = {
            "n_chars": len(text),
            "response_char_start": found.response_start,
            "response_char_end": len(text),
            "n_tokens": found.ids.size,
            "n_supervised": sum(mask),
            "first_supervised": mask.index(1),
            "boundary_tokens": found.boundary_tokens,
            "control_strings_in_content": found.control_strings,
            "mask_rle": [[value, len(list(run))] for value, run in groupby(mask)],
            "ids_sha256": hashlib.sha256(found.ids.astype("<i4").tobytes()).hexdigest(),
            "mask_sha256": hashlib.sha256(bytes(mask)).hexdigest(),
        }
        assert said == {key: case[key] for key in said}, (case["case"], case["tokenizer"])


HEAD = "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n"


@pytest.mark.parametrize(
    ("steps", "form", "spans"),
    [
        (["so", "then"], "tunix_sft", [HEAD, "Reasoning:\n1. so\n2. then\n", "Answer: 42<end_of_turn>"]),
        ([], "tunix_sft", [HEAD, "", "Answer: 42<end_of_turn>"]),
        (
            ["so"],
            "training_example",
            ["Why?\n\nPlease show your reasoning steps.", "Reasoning:\n1. so\n", "Answer: 42"],
        ),
    ],
)
def test_with_a_token_for_each_character_spans_are_as_long_as_their_texts(
    steps: list[str], form: TokenFormat, spans: list[str], tmp_path: Path
) -> None:
    characters = Tokenizer(models.WordLevel({"?": 0, "<eos>": 1}, unk_token="?"))
    characters.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    characters.save(str(tmp_path / "tokenizer.json"))
    texts = render.TraceTexts(prompt="Why?", steps=steps, final_answer="42")
    (found,) = tokenized([texts], form, load_tokenizer(tmp_path / "tokenizer.json"))
    expected = [span for span, text in enumerate(spans) for _ in text]
    assert found.span_id.tolist() == expected
    assert found.loss_mask.tolist() == [int(span > 0) for span in expected]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=drawn(100, 33))
@given(payload=payloads())
def test_the_mask_is_the_response_and_never_the_prompt(
    tokenizer_named: Callable[[str], JsonTokenizer], name: str, payload: dict[str, Any]
) -> None:
    payload = Trace.model_validate(payload).payload
    texts = render.texts_of(payload)
    found = one(payload, "tunix_sft", tokenizer_named(name))
    start, answer = len(render.head(texts)), len(render.head(texts)) + len(render.reasoning(texts))
    for (begin, end), trained, span in zip(found.offsets, found.loss_mask, found.span_id, strict=True):
        if begin == end:
            assert not trained
        else:
            assert trained == (begin >= start)  # one that begins in the head is not learned, wherever it ends
        assert span == (0 if not trained else 1 if begin < answer else 2)
    assert found.boundary_tokens == sum(begin < start < end for begin, end in found.offsets)
    assert found.loss_mask.any()
    assert found.span_id[-1] == 2


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=drawn(50, 20))
@given(payload=payloads())
def test_of_a_pair_the_response_alone_is_learned(
    tokenizer_named: Callable[[str], JsonTokenizer], name: str, payload: dict[str, Any]
) -> None:
    payload = Trace.model_validate(payload).payload
    texts, tokenizer = render.texts_of(payload), tokenizer_named(name)
    found = one(payload, "training_example", tokenizer)
    (prompt,) = tokenizer.encode([render.instructed(texts)], special=True)
    (response,) = tokenizer.encode([render.response(texts)], special=False)
    assert found.ids.tolist() == [*prompt.ids.tolist(), *response.ids.tolist()]
    assert not found.loss_mask[: prompt.ids.size].any()
    assert found.loss_mask[prompt.ids.size :].all()
    assert (np.diff(found.span_id[prompt.ids.size :].astype(int)) >= 0).all()


def test_a_fake_seam_in_the_content_moves_nothing(tokenizer_named: Callable[[str], JsonTokenizer]) -> None:
    payload = {
        "trace_version": "1",
        "prompt": f"a{render.SEAM}Answer: b",
        "final_answer": "c",
        "steps": [{"i": 0, "type": "t", "content": "s\nAnswer: d"}],
        "meta": None,
    }
    found = one(payload, "tunix_sft", tokenizer_named(TOKENIZERS[0]))
    text = render.chat_text(render.texts_of(payload))
    learned = "".join(text[b:e] for (b, e), on in zip(found.offsets, found.loss_mask, strict=True) if on)
    answer = "".join(text[b:e] for (b, e), span in zip(found.offsets, found.span_id, strict=True) if span == 2)
    assert learned == "Reasoning:\n1. s\nAnswer: d\nAnswer: c<end_of_turn>"
    assert answer == "Answer: c<end_of_turn>"


def test_the_end_of_document(trace_cases: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes((trace_cases / "fixtures/masks" / TOKENIZERS[0]).read_bytes())
    tokenizer = load_tokenizer(path)
    assert find_eod(tokenizer) == {"text": "<eos>", "id": 1}
    assert find_eod(tokenizer, "<pad>")["id"] == 0
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<end_of_turn>"}}')
    assert find_eod(tokenizer)["text"] == "<end_of_turn>"
    with pytest.raises(OptionError, match="no token"):
        find_eod(tokenizer, "<nothing>")
