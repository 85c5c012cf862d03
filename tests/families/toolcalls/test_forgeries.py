"""Datasets of tool calls that are false and fit together.

Each forgery changes one thing, and all that follows from it but for what only the tokens, the options, the files that
the dataset carries or the samples can tell. Those that traces have too are in `support/shared_forgeries.py`.
"""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from families.toolcalls.conftest import values
from spanloom.families.toolcalls.build import BuildOptions, build
from spanloom.families.toolcalls.recipe import TokenizeRules
from support.forging import Forgeries, kept, trained, without
from support.shared_forgeries import Family, add_shared, answer, documents, one_fewer
from support.toolcall_samples import changed, retain, write_samples
from tools.corruption.dataset import DELETED, Dataset, Document, plus, sha256_json

forgery = Forgeries()
WORDS = ["river", "mount", "tidal", "moons", "house", "train", "green", "brown", "olden", "seven"]
PROSE, CALL, ARGUMENTS = 1, 2, 3


def samples() -> list[dict[str, Any]]:
    """160 samples to retain, half of them with a call; two that the template cannot render."""
    drawn = random.Random(5)
    made = []
    for number in range(160):
        words = f"{drawn.choice(WORDS)} {drawn.choice(WORDS)} {number:03d}"
        query = {"name": "search_web", "parameters": {"query": words}}
        called = f"{drawn.choice(['', 'I look. '])}<|python_tag|>{json.dumps(query)}<|eom_id|>"
        asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"What of {words}?"}]
        calls = number % 3 == 0
        sample = retain(number, messages=asked, assistant_raw=called if calls else f"It is {words} and dry.")
        sample["metadata"] = {"source": drawn.choice(["ultrachat", "xstest"]), "has_tool_calls": calls}
        made.append(changed(sample, "training.sample_weight", 1.0 + number % 5))
    unrendered: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [{}]}
    return [*made, *(retain(900 + number, messages=[*retain()["messages"], unrendered]) for number in range(2))]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> tuple[Path, Path]:
    """An honest dataset and its samples."""
    folder = tmp_path_factory.mktemp("forged")
    template = folder / "aware.jinja"
    template.write_text(values(fixtures / "templates.json")["templates"]["aware"])
    options = BuildOptions(
        data=write_samples(folder / "samples.jsonl", samples()),
        template=template,
        tokenizer=fixtures / "tokenizer_llamalike.json",
        out=folder / "roots",
        rules=TokenizeRules(valid_fraction=0.2, spans="parts"),
        shards=2,
        reader="independent",
        allow_unknown_sha=True,
    )
    (result,) = build(options)
    assert result.report.clean, result.report.findings
    return result.root, options.data


def calling(dataset: Dataset) -> Document:
    """A document that begins its answer with prose and calls a tool."""
    return next(d for d in documents(dataset) if {PROSE, CALL, ARGUMENTS} <= set(d.span.tolist()))


def talking(dataset: Dataset) -> Document:
    """A document whose answer is prose."""
    return next(d for d in documents(dataset) if set(d.span.tolist()) == {0, PROSE})


def config(dataset: Dataset) -> dict[str, Any]:
    stated: dict[str, Any] = dataset.manifest["content"]["config"]
    return stated


def carried(dataset: Dataset, name: str, text: str) -> None:
    """Another template or other tools, with the hash in the options."""
    (dataset.root / name).write_text(text)
    if name == "tool_registries.json":
        config(dataset)["registries_sha256"] = sha256_json(json.loads(text))
    else:
        config(dataset)["template_sha256"] = sha256_json(text)


add_shared(
    forgery,
    Family(
        plain=talking,
        mixed=calling,
        ids=("row", "sample_id", "source", "weight", "subtype"),
        control="<|eom_id|>",
        pad="<|finetune_right_pad_id|>",
        carried=("chat_template.jinja", "tool_registries.json"),
        fewer=lambda dataset, gone: one_fewer(dataset, gone, "the template raises"),
    ),
    a_control_token_is_in_the_prompt="source",
)


forgery.values(
    lambda dataset: calling(dataset).about,
    {
        "a_call_is_not_counted": ("alone", "calls", False),
    },
)
forgery.values(
    lambda dataset: talking(dataset).about,
    {
        "a_call_is_counted_that_is_not_there": ("alone", "calls", True),
        "a_token_is_said_to_straddle": ("alone", "straddling", True),
        "the_subtype_is_unknown": ("alone", "subtype", "benign"),
    },
)
forgery.values(
    lambda dataset: dataset.manifest["content"],
    {
        "samples_to_retain_are_called_harmful": ("alone", "config.harmful", True),
        "the_documents_are_longer_than_they_may_be": ("alone", "config.max_length", 20),
        "the_first_token_of_the_template_is_another": (
            "alone",
            "config.special_tokens.bos_token",
            "<|finetune_right_pad_id|>",
        ),
        "more_samples_are_left_out_than_there_are": ("alone", "shards.0.rejected", {"the template raises": 9}),
        "more_samples_are_read_than_the_file_has": ("alone", "input.shards.0.rows", 100),
        "the_answers_are_one_span": ("alone", "config.spans", DELETED),
        "the_file_has_fewer_samples": ("source", "input.shards.0.rows", plus(5)),
    },
)


@forgery("alone")
def _the_question_is_trained_too(dataset: Dataset) -> None:
    for document in documents(dataset):
        trained(document, np.arange(12, answer(document)[0]), PROSE)


@forgery("alone")
def _the_end_of_a_call_is_not_trained(dataset: Dataset) -> None:
    trained(calling(dataset), answer(calling(dataset))[-1], 0)


@forgery("alone")
def _the_first_tokens_of_the_answers_are_not_trained(dataset: Dataset) -> None:
    for document in documents(dataset):
        trained(document, answer(document)[:3], 0)


@forgery("alone")
def _a_call_is_called_prose(dataset: Dataset) -> None:
    for document in documents(dataset):
        document.span[document.span > 0] = PROSE


@forgery("alone")
def _arguments_are_called_call(dataset: Dataset) -> None:
    calling(dataset).span[calling(dataset).span == ARGUMENTS] = CALL


@forgery("alone")
def _the_answer_has_no_end(dataset: Dataset) -> None:
    without(talking(dataset), answer(talking(dataset))[-1])


@forgery("alone")
def _the_end_is_there_twice(dataset: Dataset) -> None:
    document = talking(dataset)
    last = int(answer(document)[-1])
    kept(document, np.insert(np.arange(document.tokens.size), last, last))
    trained(document, last + 1, 0)


@forgery("alone")
def _a_header_is_cut(dataset: Dataset) -> None:
    without(talking(dataset), answer(talking(dataset))[0] - 2)


@forgery("source")
def _the_template_has_other_headers(dataset: Dataset) -> None:
    text = (dataset.root / "chat_template.jinja").read_text()
    carried(dataset, "chat_template.jinja", text.replace("|>assistant<|", "|>model<|"))


@forgery("source")
def _the_template_adds_no_end(dataset: Dataset) -> None:
    text = (dataset.root / "chat_template.jinja").read_text()
    carried(dataset, "chat_template.jinja", text.replace("{{ '<|eot_id|>' }}", ""))


@forgery("alone")
def _another_text_than_the_template_writes_is_behind_the_answers(dataset: Dataset) -> None:
    text = (dataset.root / "chat_template.jinja").read_text()
    carried(dataset, "chat_template.jinja", text.replace("{{ '<|eot_id|>' }}", "{{ '<|eot_id|>?' }}"))
    other = json.loads((dataset.root / "tokenizer.json").read_bytes())["model"]["vocab"]["!"]
    for document in (each for group in dataset.documents.values() for each in group):
        if set(document.span.tolist()) == {0, PROSE}:
            last = int(answer(document)[-1])
            kept(document, np.insert(np.arange(document.tokens.size), last + 1, last))
            trained(document, last + 1, 0)
            document.tokens[last + 1] = other


@forgery("alone")
def _the_tools_are_no_json(dataset: Dataset) -> None:
    (dataset.root / "tool_registries.json").write_text("[[[")


@forgery("alone")
def _the_template_is_empty(dataset: Dataset) -> None:
    (dataset.root / "chat_template.jinja").write_text("")


@forgery("source")
def _a_sample_of_the_split_is_left_out(dataset: Dataset) -> None:
    gone = documents(dataset).pop(4)
    shard = dataset.manifest["content"]["shards"][0]
    shard["rejected"]["the template raises"] = shard["rejected"].get("the template raises", 0) + 1
    assert gone.about["row"] % 2 == 0


@forgery("source")
def _samples_are_left_out_for_another_reason(dataset: Dataset) -> None:
    for shard in dataset.manifest["content"]["shards"]:
        shard["rejected"] = {"no span that can be proven": sum(shard["rejected"].values())}


@forgery("source")
def _samples_to_retain_are_of_the_harmful_split(dataset: Dataset) -> None:
    config(dataset).update(harmful=True, split="harmful")


@forgery("source")
def _the_template_writes_another_text_for_some(dataset: Dataset) -> None:
    text = (dataset.root / "chat_template.jinja").read_text()
    some = "{{ 'x' if '015' in m['content'] and m['role'] == 'user' }}"
    carried(dataset, "chat_template.jinja", text.replace("{{ m['content'] }}", some + "{{ m['content'] }}"))


def test_an_honest_dataset_written_again_is_clean(made: tuple[Path, Path], tmp_path: Path) -> None:
    forgery.assert_honest(*made, tmp_path / "root", lambda _: None)


@pytest.mark.parametrize("name", list(forgery.by_name))
def test_a_forgery_is_found(name: str, made: tuple[Path, Path], tmp_path: Path) -> None:
    root, source = made
    report = forgery.report(name, root, tmp_path / "root", source)
    assert not report.clean, f"{name} is not found"
