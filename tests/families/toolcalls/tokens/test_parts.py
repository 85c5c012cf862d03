"""Spans of an answer's parts: marked by hand, worked out twice, on disk, validated, weighed by a loss."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Cli
from families.toolcalls.conftest import Run, values
from spanloom.dataset import manifest
from spanloom.dataset.root.layout import array_prefix
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.families.toolcalls import dataset as family
from spanloom.families.toolcalls.tokens.parts import parts_of_answer, spans_of_tokens
from spanloom.families.toolcalls.verify.documents import expected_document
from spanloom.megatron.official import open_indexed
from spanloom.training.loss import SpanCounts, SpanWeights, span_normalized_loss
from spanloom.training.pytorch import DocumentDataset, collate
from support.nightly import drawn
from support.toolcall_samples import harmful, retain, write_samples

TAG, EOM, EOT = "<|python_tag|>", "<|eom_id|>", "<|eot_id|>"
P, C, A = 1, 2, 3
Marked = list[tuple[int, str]]

MARKED: dict[str, Marked] = {
    "prose alone": [(P, "Let me look.")],
    "prose and its end token": [(P, "Let me look." + EOT)],
    "a call": [(C, TAG + '{"name": "f", "parameters": '), (A, '{"q": 1}'), (C, "}" + EOM)],
    "prose, call": [(P, "Let me look. "), (C, TAG + '{"name":"f","parameters":'), (A, "{}"), (C, "}" + EOM)],
    "arguments first": [(C, TAG + '{"parameters": '), (A, '{"a": {"b": [1, "}"]}}'), (C, ', "name": "f"}' + EOT)],
    "the alias": [(C, TAG + '{"name": "f", "arguments": '), (A, '{"q": "x"}'), (C, "}" + EOM)],
    "parameters before the alias": [
        (C, TAG + '{"arguments": {"a": 1}, "parameters": '),
        (A, '{"b": 2}'),
        (C, ', "name": "f"}' + EOM),
    ],
    "parameters that are no object": [
        (C, TAG + '{"parameters": "x", "arguments": '),
        (A, '{"b": 2}'),
        (C, ', "name": "f"}'),
    ],
    "a key twice": [(C, TAG + '{"parameters": {"a": 1}, "parameters" : '), (A, '{"b": 2}'), (C, "}" + EOM)],
    "an object and then none": [(C, TAG + '{"parameters": {"a": 1}, "parameters": 3}' + EOM)],
    "the word deeper down": [
        (C, TAG + '{"name": "parameters", "x": {"parameters": {"a": 1}}, "arguments": '),
        (A, '{"parameters": {}}'),
        (C, "}" + EOM),
    ],
    "an escaped key": [(C, TAG + '{"\\u0070arameters": '), (A, '{"q": "\\"}"}'), (C, "}" + EOM)],
    "two calls": [
        (C, TAG + '{"parameters": '),
        (A, '{"a": 1}'),
        (C, "}" + EOM + TAG + ' {"parameters": '),
        (A, '{"b": 2}'),
        (C, "}" + EOM),
    ],
    "an end token in a string": [(C, TAG + '{"parameters": '), (A, '{"q": "' + EOM + '"}'), (C, "}" + EOM)],
    "text behind the call": [(C, TAG + '{"parameters": '), (A, "{}"), (C, "}" + EOM), (P, " Done." + EOT)],
    "two end tokens": [(C, TAG + '{"parameters": '), (A, "{}"), (C, "}" + EOM + " " + EOT + "\n")],
    "blanks around": [(C, "\n" + TAG + '{"parameters": '), (A, "{ }"), (C, " } " + EOM + "\n\n")],
    "no JSON": [(P, "So: "), (C, TAG + "{'name': 'f'}" + EOM + " and more")],
    "no JSON, then a call": [(C, TAG + "oops " + TAG + '{"parameters": '), (A, "{}"), (C, "}")],
    "a list": [(C, TAG + '[{"parameters": {}}]' + EOM)],
    "null": [(C, TAG + "null" + EOM), (P, "x")],
    "a long number": [(C, TAG + '{"n": ' + "9" * 400 + ', "parameters": '), (A, "{}"), (C, "}" + EOM)],
    "a number that is too long (R3)": [(C, TAG + '{"n": ' + "9" * 5000 + ', "parameters": {}}' + EOM)],
    "letters of two words of UTF-16": [(P, "𝒳 "), (C, TAG + '{"parameters": '), (A, '{"q": "𝒳é"}'), (C, "}" + EOM)],
}


def each_character(marked: Marked) -> list[int]:
    return [part for part, text in marked for _ in text]


def by_characters(text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """A tokenizer whose tokens are characters."""
    return [ord(character) for character in text], [(at, at + 1) for at in range(len(text))]


def verified(answer: str) -> list[int]:
    """The parts as the validation works them out, of each character of an answer."""

    def render(messages: list[dict[str, str]], *, tools: Any = None, add_generation_prompt: bool = False) -> str:
        return "".join(message["content"] for message in messages)

    sample = {"assistant_raw": answer, "messages": [{"role": "user", "content": "Q: "}]}
    made = expected_document(sample, render, None, by_characters, 0, None)
    assert not isinstance(made, str)
    assert [int(part > 0) for part in made.parts] == made.mask
    return made.parts[len("Q: ") : -1]


def worked_out(answer: str) -> list[int]:
    return spans_of_tokens(answer, 3, [(3 + at, 4 + at) for at in range(len(answer))]).tolist()


@pytest.mark.parametrize("name", MARKED)
def test_parts_are_those_marked_by_hand(name: str) -> None:
    marked = MARKED[name]
    answer = "".join(text for _, text in marked)
    assert worked_out(answer) == each_character(marked)
    assert verified(answer) == each_character(marked)


def test_a_token_belongs_to_the_part_that_it_begins_in() -> None:
    #          0         10        20        30        40
    answer = 'Go. <|python_tag|>{"parameters": {"q": 1}}<|eom_id|>'
    assert parts_of_answer(answer) == [(0, P), (4, C), (33, A), (41, C)]
    tokens = [(0, 3), (3, 4), (4, 18), (18, 34), (34, 34), (34, 40), (40, 42), (42, 52), (52, 62)]
    #  Go. | blank | tag | {"parameters": { | no characters | "q": 1 | }} | eom | what a template added behind it
    at = [(100 + begin, 100 + end) for begin, end in tokens]
    assert spans_of_tokens(answer, 100, at).tolist() == [P, P, C, C, C, A, A, C, C]


PIECES = (
    TAG,
    EOM,
    EOT,
    "{",
    "}",
    '"parameters"',
    '"arguments"',
    ":",
    ",",
    '"',
    "[1]",
    "{}",
    ' {"a":1} ',
    " ",
    "x",
    "\\",
)
CALLS = ('{"name":"f","parameters":{"a":"}"}}', '{"arguments":{}}', '{"parameters":[],"arguments":{"parameters":{}}}')


@settings(max_examples=drawn(150, 25))
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.sampled_from([TAG + call for call in CALLS])), min_size=1))
def test_what_is_built_and_what_validates_agree_on_any_answer(pieces: list[str]) -> None:
    answer = "".join(pieces)
    if answer.strip():
        assert worked_out(answer) == verified(answer)


# --- On disk ---------------------------------------------------------------------------------------------------------

CALLING = 'I look it up. <|python_tag|>{"name": "search_web", "parameters": {"query": "tides"}}<|eom_id|>'


@pytest.fixture(scope="module")
def roots(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`answer/` and `parts/`, made of the same samples by the command; `train.jsonl` beside them."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "aware.jinja").write_text(values(fixtures / "templates.json")["templates"]["aware"])
    samples = [harmful(1), harmful(2, assistant_raw=CALLING), *(retain(number) for number in range(3))]
    samples.append(retain(9, assistant_raw=CALLING, tools="b4_standard_v1"))
    write_samples(folder / "train.jsonl", samples)
    return folder


def tokenize(run: Run, roots: Path, fixtures: Path, spans: str) -> Path:
    out = roots / spans
    if not out.exists():
        options = ["--data", roots / "train.jsonl", "--template", roots / "aware.jinja", "--out", out, "--spans", spans]
        made = run(
            "tokenize", *options, "--tokenizer", fixtures / "tokenizer_llamalike.json", "--valid-fraction", 0, "-q"
        )
        assert made.code == 0, made.err
    return out


@pytest.fixture
def parts(run: Run, roots: Path, fixtures: Path) -> Path:
    return tokenize(run, roots, fixtures, "parts")


def on_disk(root: Path, name: str) -> list[list[int]]:
    data = open_indexed(array_prefix(root, "train", 0, name))
    return [data[number].tolist() for number in range(len(data))]


def test_spans_stand_beside_the_very_mask(parts: Path, run: Run, roots: Path, fixtures: Path) -> None:
    plain = tokenize(run, roots, fixtures, "answer")
    for split in ("harmful", "retain"):
        for name in ("tokens", "lossmask"):
            files = [array_prefix(root / split, "train", 0, name).with_suffix(".bin") for root in (plain, parts)]
            assert files[0].read_bytes() == files[1].read_bytes()
        content = manifest.read(parts / split).content
        assert content.span_names == ("context", "prose", "call", "arguments")
        assert content.config["spans"] == "parts"
        assert "spans" not in manifest.read(plain / split).content.config
        report = validate_dataset(parts / split, family, source=roots / "train.jsonl", deep=100)
        assert report.clean, report.as_dict()


def test_the_spans_of_a_document_token_by_token(parts: Path, fixtures: Path) -> None:
    """Which token is of which part is marked by hand on the tokens' own texts."""
    vocabulary = json.loads((fixtures / "tokenizer_llamalike.json").read_bytes())
    texts = {number: text for text, number in vocabulary["model"]["vocab"].items()}
    texts |= {token["id"]: token["content"] for token in vocabulary["added_tokens"]}
    marked = [(P, "I look it up. "), (C, TAG + '{"name": "search_web", "parameters": ')]
    marked += [(A, '{"query": "tides"}'), (C, "}" + EOM)]
    tokens, spans = on_disk(parts / "harmful", "tokens")[1], on_disk(parts / "harmful", "span")[1]
    learned = [(texts[token], span) for token, span in zip(tokens[1:], spans[:-1], strict=True) if span]
    assert "".join(text for text, _ in learned).replace("Ġ", " ") == CALLING
    begins = np.cumsum([0, *(len(text) for text, _ in learned)])[:-1]
    assert [span for _, span in learned] == [each_character(marked)[begin] for begin in begins]
    assert {span for _, span in learned} == {P, C, A}


def test_each_part_is_weighed_by_itself(parts: Path) -> None:
    """The loss with weights against numpy: Σ of weight · mean over the part's labels."""
    dataset = DocumentDataset(parts / "retain")
    batch = collate([dataset[number] for number in range(len(dataset))])
    all_spans = on_disk(parts / "retain", "span")
    losses = torch.rand(batch["tokens"].shape, generator=torch.Generator().manual_seed(3))
    weights = SpanWeights({"prose": 0.5, "call": 0.0, "arguments": 2.0})
    counts = SpanCounts.of(batch["loss_mask"], batch["span_id"], 3)
    loss = span_normalized_loss(losses, batch["loss_mask"], batch["span_id"], counts, weights)
    on_labels = np.concatenate([losses[number].numpy()[: len(spans)] for number, spans in enumerate(all_spans)])
    flat = np.concatenate(all_spans)
    expected = 0.5 * on_labels[flat == P].mean() + 2.0 * on_labels[flat == A].mean()
    assert loss.item() == pytest.approx(float(expected), rel=1e-5)


FORGED = {
    "prose as call": (1, 2, False),
    "arguments as call": (3, 2, False),
    "no part": (2, 0, True),
    "an unknown part": (2, 4, True),
    "context as call": (0, 2, True),
    "prose as arguments": (1, 3, True),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_part_that_is_another_is_found(parts: Path, roots: Path, tmp_path: Path, name: str) -> None:
    """Against the source in any case; of the document alone where no answer could have such spans."""
    old, new, alone = FORGED[name]
    shutil.copytree(parts / "retain", tmp_path / "root")
    path = tmp_path / "root/train/shard_00_span.bin"
    spans = np.fromfile(path, np.uint8)
    spans[np.flatnonzero(spans == old)[0]] = new
    spans.tofile(path)
    found = validate_dataset(tmp_path / "root", family).as_dict()["found"]
    assert bool(set(found) & {"values", "mask_is_span", "span"}) == alone, found
    found = validate_dataset(tmp_path / "root", family, source=roots / "train.jsonl", deep=100).as_dict()["found"]
    assert found.get("source"), found


def test_parts_are_shown(parts: Path, cli: Cli) -> None:
    shown = cli("inspect", parts / "harmful", "--tokens")
    assert shown.returncode == 0, shown.stderr
    assert all(part in shown.stdout for part in ("prose", "call", "arguments"))
    assert (
        "`shard_00_span` (uint8: 0 context, 1 prose, 2 call, 3 arguments)" in (parts / "harmful/README.md").read_text()
    )
    assert "arguments" in (parts / "harmful/report.html").read_text()
