"""Datasets of tool calls that are false and fit together.

Each forgery changes one thing, and all that follows from it but for what only the tokens, the options, the files that
the dataset carries or the samples can tell.
"""

import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from families.toolcalls.conftest import values
from spanloom.families.toolcalls.build import BuildOptions, build
from spanloom.families.toolcalls.recipe import TokenizeRules
from support.forging import Forgeries, as_another, exchanged, kept, tokens_of, trained, without
from support.toolcall_samples import changed, retain, write_samples
from tools.corruption.dataset import Dataset, Document, sha256_json

forgery = Forgeries()
WORDS = ["river", "mount", "tidal", "moons", "house", "train", "green", "brown", "olden", "seven"]
IDS = ("row", "sample_id", "source", "weight", "subtype")
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


def documents(dataset: Dataset) -> list[Document]:
    return dataset.documents["train", 0]


def calling(dataset: Dataset) -> Document:
    """A document that begins its answer with prose and calls a tool."""
    return next(d for d in documents(dataset) if {PROSE, CALL, ARGUMENTS} <= set(d.span.tolist()))


def talking(dataset: Dataset, number: int = 0) -> Document:
    """A document whose answer is prose."""
    return [d for d in documents(dataset) if set(d.span.tolist()) == {0, PROSE}][number]


def added(dataset: Dataset, text: str) -> int:
    tokens = json.loads((dataset.root / "tokenizer.json").read_bytes())["added_tokens"]
    return next(int(token["id"]) for token in tokens if token["content"] == text)


def answer(document: Document) -> Any:
    return np.flatnonzero(document.span) + 1


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


def one_fewer(dataset: Dataset, gone: Document) -> None:
    """Numbers the rows as if the sample had never been in the split."""
    rows = [(d.about["row"], split, d) for (split, _), group in dataset.documents.items() for d in group]
    dataset.documents = {place: [] for place in dataset.documents}
    content = dataset.manifest["content"]
    for row, split, document in sorted(rows, key=lambda each: each[0]):
        document.about["row"] = row - (row > gone.about["row"])
        dataset.documents[split, document.about["row"] % 2].append(document)
    total = sum(shard["rows_read"] for shard in content["shards"]) - 1
    written = Counter(shard for (_, shard), group in dataset.documents.items() for _ in group)
    for shard in content["shards"]:
        shard["rows_read"] = (total + 1 - shard["shard"]) // 2
        left = shard["rows_read"] - written[shard["shard"]]
        shard["rejected"] = {"the template raises": left} if left else {}


@forgery("alone")
def _a_token_of_the_user_is_trained(dataset: Dataset) -> None:
    trained(talking(dataset), 12, PROSE)


@forgery("alone")
def _the_question_is_trained_too(dataset: Dataset) -> None:
    for document in documents(dataset):
        trained(document, np.arange(12, answer(document)[0]), PROSE)


@forgery("alone")
def _the_system_text_is_trained_too(dataset: Dataset) -> None:
    for document in documents(dataset):
        trained(document, np.arange(1, answer(document)[0]), PROSE)


@forgery("alone")
def _the_header_is_trained(dataset: Dataset) -> None:
    first = answer(talking(dataset))[0]
    trained(talking(dataset), np.arange(first - 2, first), PROSE)


@forgery("alone")
def _the_end_of_a_call_is_not_trained(dataset: Dataset) -> None:
    trained(calling(dataset), answer(calling(dataset))[-1], 0)


@forgery("alone")
def _the_end_of_prose_is_not_trained(dataset: Dataset) -> None:
    trained(talking(dataset), answer(talking(dataset))[-1], 0)


@forgery("alone")
def _the_eod_is_trained(dataset: Dataset) -> None:
    trained(talking(dataset), talking(dataset).tokens.size - 1, PROSE)


@forgery("alone")
def _a_part_of_the_answer_is_not_trained(dataset: Dataset) -> None:
    trained(talking(dataset), answer(talking(dataset))[2:4], 0)


@forgery("alone")
def _an_answer_is_not_trained(dataset: Dataset) -> None:
    trained(talking(dataset), answer(talking(dataset)), 0)


@forgery("alone")
def _the_first_tokens_of_the_answers_are_not_trained(dataset: Dataset) -> None:
    for document in documents(dataset):
        trained(document, answer(document)[:3], 0)


@forgery("alone")
def _the_mask_is_a_place_late(dataset: Dataset) -> None:
    for document in documents(dataset):
        document.span[1:-2], document.lossmask[1:-2] = document.span[:-3].copy(), document.lossmask[:-3].copy()


@forgery("alone")
def _the_mask_is_a_place_early(dataset: Dataset) -> None:
    document = calling(dataset)
    document.span[:-1], document.lossmask[:-1] = document.span[1:].copy(), document.lossmask[1:].copy()


@forgery("alone")
def _prose_and_call_are_exchanged(dataset: Dataset) -> None:
    calling(dataset).span = np.array([0, CALL, PROSE, ARGUMENTS], np.uint8)[calling(dataset).span]


@forgery("alone")
def _a_call_is_called_prose(dataset: Dataset) -> None:
    for document in documents(dataset):
        document.span[document.span > 0] = PROSE


@forgery("alone")
def _arguments_are_called_call(dataset: Dataset) -> None:
    calling(dataset).span[calling(dataset).span == ARGUMENTS] = CALL


@forgery("alone")
def _the_arguments_begin_a_token_late(dataset: Dataset) -> None:
    trained(calling(dataset), tokens_of(calling(dataset), ARGUMENTS)[0], CALL)


@forgery("alone")
def _the_call_begins_a_token_early(dataset: Dataset) -> None:
    trained(calling(dataset), tokens_of(calling(dataset), PROSE)[-1], CALL)


@forgery("alone")
def _the_eod_is_inside(dataset: Dataset) -> None:
    talking(dataset).tokens[12] = talking(dataset).tokens[-1]


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


@forgery("alone")
def _the_first_token_is_missing(dataset: Dataset) -> None:
    for document in documents(dataset):
        without(document, 0)


@forgery("alone")
def _two_documents_are_one(dataset: Dataset) -> None:
    first, second = documents(dataset)[:2]
    for name in ("tokens", "lossmask", "span"):
        setattr(first, name, np.concatenate([getattr(first, name)[:-1], getattr(second, name)]))
    documents(dataset).pop(1)
    one_fewer(dataset, second)


@forgery("alone")
def _a_call_is_not_counted(dataset: Dataset) -> None:
    calling(dataset).about["calls"] = False


@forgery("alone")
def _a_call_is_counted_that_is_not_there(dataset: Dataset) -> None:
    talking(dataset).about["calls"] = True


@forgery("alone")
def _a_token_is_said_to_straddle(dataset: Dataset) -> None:
    talking(dataset).about["straddling"] = True


@forgery("alone")
def _the_subtype_is_unknown(dataset: Dataset) -> None:
    talking(dataset).about["subtype"] = "benign"


@forgery("alone")
def _a_document_is_in_the_other_split(dataset: Dataset) -> None:
    dataset.documents["valid", 0].append(documents(dataset).pop(4))
    dataset.documents["valid", 0].sort(key=lambda document: int(document.about["row"]))


@forgery("alone")
def _samples_to_retain_are_called_harmful(dataset: Dataset) -> None:
    config(dataset)["harmful"] = True


@forgery("alone")
def _the_documents_are_longer_than_they_may_be(dataset: Dataset) -> None:
    config(dataset)["max_length"] = 20


@forgery("alone")
def _the_first_token_of_the_template_is_another(dataset: Dataset) -> None:
    config(dataset)["special_tokens"]["bos_token"] = "<|finetune_right_pad_id|>"


@forgery("alone")
def _the_eod_is_another(dataset: Dataset) -> None:
    content = dataset.manifest["content"]
    token = added(dataset, "<|finetune_right_pad_id|>")
    config(dataset)["eod"] = {"text": "<|finetune_right_pad_id|>", "id": token}
    content["tokenizer"]["eod"] = token


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
def _the_fraction_is_another(dataset: Dataset) -> None:
    config(dataset)["valid_fraction"] = dataset.manifest["content"]["split"]["valid_fraction"] = 0.6
    dataset.manifest["content"]["split"]["threshold"] = str(2**64 * 6 // 10)


@forgery("alone")
def _more_samples_are_left_out_than_there_are(dataset: Dataset) -> None:
    dataset.manifest["content"]["shards"][0]["rejected"] = {"the template raises": 9}


@forgery("alone")
def _more_samples_are_read_than_the_file_has(dataset: Dataset) -> None:
    dataset.manifest["content"]["input"]["shards"][0]["rows"] = 100


@forgery("alone")
def _the_tools_are_no_json(dataset: Dataset) -> None:
    (dataset.root / "tool_registries.json").write_text("[[[")


@forgery("alone")
def _the_answers_are_one_span(dataset: Dataset) -> None:
    del config(dataset)["spans"]


@forgery("alone")
def _the_template_is_empty(dataset: Dataset) -> None:
    (dataset.root / "chat_template.jinja").write_text("")


@forgery("alone")
def _the_template_is_a_link(dataset: Dataset) -> None:
    path = dataset.root / "chat_template.jinja"
    target = (dataset.root.parent / "elsewhere.jinja").resolve()
    target.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(target)


@forgery("alone")
def _the_tools_are_missing(dataset: Dataset) -> None:
    (dataset.root / "tool_registries.json").unlink()


@forgery("source")
def _the_tokenizer_is_another(dataset: Dataset) -> None:
    path = dataset.root / "tokenizer.json"
    file = json.loads(path.read_bytes())
    vocabulary = file["model"]["vocab"]
    vocabulary["a"], vocabulary["e"] = vocabulary["e"], vocabulary["a"]
    path.write_text(json.dumps(file))
    dataset.manifest["content"]["tokenizer"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()


@forgery("source")
def _a_token_of_the_answer_is_another(dataset: Dataset) -> None:
    document = talking(dataset)
    document.tokens[answer(document)[-4]] = document.tokens[answer(document)[-6]]


@forgery("source")
def _a_token_of_the_question_is_another(dataset: Dataset) -> None:
    document = talking(dataset)
    document.tokens[answer(document)[0] - 7] = document.tokens[answer(document)[-4]]


@forgery("source")
def _a_control_token_is_in_the_question(dataset: Dataset) -> None:
    talking(dataset).tokens[answer(talking(dataset))[0] - 7] = added(dataset, "<|eom_id|>")


@forgery("source")
def _an_answer_is_cut(dataset: Dataset) -> None:
    without(talking(dataset), answer(talking(dataset))[-6:-2])


@forgery("source")
def _documents_are_copies_of_one(dataset: Dataset) -> None:
    first, *others = documents(dataset)
    for other in others[:2]:
        as_another(other, first, IDS)


@forgery("source")
def _two_documents_are_exchanged(dataset: Dataset) -> None:
    first, second = talking(dataset), talking(dataset, 1)
    for name in ("tokens", "lossmask", "span"):
        one, other = getattr(first, name), getattr(second, name)
        setattr(first, name, other)
        setattr(second, name, one)


@forgery("source")
def _two_ids_are_exchanged(dataset: Dataset) -> None:
    first, second = documents(dataset)[:2]
    exchanged(first, second, ("sample_id",))


@forgery("source")
def _a_weight_is_another(dataset: Dataset) -> None:
    talking(dataset).about["weight"] = 40.0


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
def _the_file_has_fewer_samples(dataset: Dataset) -> None:
    dataset.manifest["content"]["input"]["shards"][0]["rows"] += 5


@forgery("source")
def _samples_to_retain_are_of_the_harmful_split(dataset: Dataset) -> None:
    config(dataset).update(harmful=True, split="harmful")


@forgery("source")
def _the_template_writes_another_text_for_some(dataset: Dataset) -> None:
    text = (dataset.root / "chat_template.jinja").read_text()
    some = "{{ 'x' if '015' in m['content'] and m['role'] == 'user' }}"
    carried(dataset, "chat_template.jinja", text.replace("{{ m['content'] }}", some + "{{ m['content'] }}"))


@forgery("all")
def _a_text_is_cut_into_other_tokens(dataset: Dataset) -> None:
    """A token of the answer in one for each byte."""
    vocabulary = json.loads((dataset.root / "tokenizer.json").read_bytes())["model"]["vocab"]
    written = {number: text for text, number in vocabulary.items()}
    document = talking(dataset)
    places = answer(document)[1:-1].tolist()
    at = next(place for place in places if len(written[int(document.tokens[place])]) > 2)
    letters = [vocabulary[letter] for letter in written[int(document.tokens[at])]]
    document.tokens = np.concatenate([document.tokens[:at], letters, document.tokens[at + 1 :]]).astype(np.int32)
    for name in ("lossmask", "span"):
        values = getattr(document, name)
        setattr(document, name, np.insert(values, at, np.full(len(letters) - 1, values[at - 1])))


def test_an_honest_dataset_written_again_is_clean(made: tuple[Path, Path], tmp_path: Path) -> None:
    forgery.assert_honest(*made, tmp_path / "root", lambda _: None)


@pytest.mark.parametrize("name", list(forgery.by_name))
def test_a_forgery_is_found(name: str, made: tuple[Path, Path], tmp_path: Path) -> None:
    root, source = made
    report = forgery.report(name, root, tmp_path / "root", source)
    assert not report.clean, f"{name} is not found"
