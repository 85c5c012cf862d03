"""Datasets of traces that are false and fit together.

Each forgery changes one thing, and all that follows from it but for what only the tokens, the options, the tokenizer or
the export can tell.
"""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.export.lines import ExportOptions, export_lines
from spanloom.families.traces.recipe import TokenizeRules
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.token_build import TokenBuildOptions, build_tokens
from support.forging import Forgeries, as_another, exchanged, kept, tokens_of, trained, without
from support.traces import CASES, store_rows
from tools.corruption.dataset import Dataset, Document

forgery = Forgeries()
WORDS = ["river", "mount", "tidal", "moons", "house", "train", "green", "brown", "olden", "seven"]
OPTIONS = ExportOptions(control_tokens="escape", system="Be exact.")
IDS = ("row", "trace_id", "source", "weight")
REASONING, ANSWER = 1, 2


def traces() -> list[dict[str, Any]]:
    """120 traces, each with its own words; many have texts of the same length."""
    drawn = random.Random(7)

    def words(count: int) -> str:
        return " ".join(drawn.choice(WORDS) for _ in range(count))

    return [
        {
            "id": f"00000000-0000-4000-8000-{number:012d}",
            "created_at": f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}+00:00",
            "payload": {
                "trace_version": "1",
                "prompt": f"What of the {words(2)} {number:03d}?",
                "steps": [{"i": at, "type": "t", "content": words(4)} for at in range(drawn.choice([1, 2, 2, 3]))],
                "final_answer": f"{words(2)} {number:03d}",
                "meta": {"source": drawn.choice(["books", "web"]), "level": float(number % 7)},
            },
        }
        for number in range(120)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An honest dataset and its export."""
    folder = tmp_path_factory.mktemp("forged")
    store = open_store(default_url(folder), create=True)
    store_rows(store, traces())
    build_dataset(store, folder, BuildRequest(dataset_name="d", dataset_version="1", limit=1000), reproducible=True)
    options = TokenBuildOptions(
        root=folder,
        key="d-1",
        tokenizer=CASES / "fixtures/masks/tokenizer_gemmalike.json",
        out=folder / "root",
        rules=TokenizeRules(valid_fraction=0.2, options=OPTIONS, weight="level"),
        shards=2,
        reader="independent",
        allow_unknown_sha=True,
    )
    result = build_tokens(store, options)
    ids = json.loads((folder / "datasets/d-1/manifest.json").read_bytes())["trace_ids"]
    with store.snapshot() as snapshot:
        (folder / "d-1.tunix_sft.jsonl").write_bytes(b"".join(export_lines(snapshot, ids, "tunix_sft", OPTIONS)))
    store.close()
    assert result.report.clean, result.report.findings
    return result.root, folder / "d-1.tunix_sft.jsonl"


def documents(dataset: Dataset) -> list[Document]:
    return dataset.documents["train", 0]


def one(dataset: Dataset) -> Document:
    return documents(dataset)[3]


def token(dataset: Dataset, text: str) -> int:
    vocabulary = json.loads((dataset.root / "tokenizer.json").read_bytes())["model"]["vocab"]
    return int(vocabulary[text])


@forgery("alone")
def _a_token_of_the_prompt_is_trained(dataset: Dataset) -> None:
    trained(one(dataset), 12, REASONING)


@forgery("alone")
def _all_prompts_are_trained(dataset: Dataset) -> None:
    for group in dataset.documents.values():
        for document in group:
            trained(document, np.arange(1, tokens_of(document, REASONING)[0]), REASONING)


@forgery("alone")
def _the_template_before_the_response_is_trained(dataset: Dataset) -> None:
    first = int(tokens_of(one(dataset), REASONING)[0])
    trained(one(dataset), np.arange(first - 3, first), REASONING)


@forgery("alone")
def _the_end_of_the_turn_is_not_trained(dataset: Dataset) -> None:
    for document in documents(dataset):
        trained(document, tokens_of(document, ANSWER)[-1], 0)


@forgery("alone")
def _the_eod_is_trained(dataset: Dataset) -> None:
    trained(one(dataset), one(dataset).tokens.size - 1, ANSWER)


@forgery("alone")
def _an_answer_is_not_trained(dataset: Dataset) -> None:
    trained(one(dataset), tokens_of(one(dataset), ANSWER), 0)


@forgery("alone")
def _no_reasoning_is_trained(dataset: Dataset) -> None:
    for document in documents(dataset):
        trained(document, tokens_of(document, REASONING), 0)


@forgery("alone")
def _some_reasoning_is_not_trained(dataset: Dataset) -> None:
    trained(one(dataset), tokens_of(one(dataset), REASONING)[8:12], 0)


@forgery("alone")
def _reasoning_is_called_the_answer(dataset: Dataset) -> None:
    one(dataset).span[one(dataset).span > 0] = ANSWER


@forgery("alone")
def _reasoning_and_answer_are_exchanged(dataset: Dataset) -> None:
    document = one(dataset)
    document.span = np.array([0, 2, 1], np.uint8)[document.span]


@forgery("alone")
def _the_answer_begins_a_token_late(dataset: Dataset) -> None:
    trained(one(dataset), tokens_of(one(dataset), ANSWER)[0], REASONING)


@forgery("alone")
def _the_answer_begins_five_tokens_early(dataset: Dataset) -> None:
    trained(one(dataset), tokens_of(one(dataset), REASONING)[-5:], ANSWER)


@forgery("alone")
def _the_mask_is_a_place_late(dataset: Dataset) -> None:
    for document in documents(dataset):
        document.span[1:-2], document.lossmask[1:-2] = document.span[:-3].copy(), document.lossmask[:-3].copy()


@forgery("alone")
def _the_mask_is_a_place_early(dataset: Dataset) -> None:
    document = one(dataset)
    document.span[:-1], document.lossmask[:-1] = document.span[1:].copy(), document.lossmask[1:].copy()


@forgery("alone")
def _the_eod_is_inside(dataset: Dataset) -> None:
    one(dataset).tokens[14] = one(dataset).tokens[-1]


@forgery("alone")
def _a_control_token_is_in_the_prompt(dataset: Dataset) -> None:
    one(dataset).tokens[14] = token(dataset, "<start_of_turn>")


@forgery("alone")
def _a_control_token_is_in_the_reasoning(dataset: Dataset) -> None:
    one(dataset).tokens[tokens_of(one(dataset), REASONING)[4]] = token(dataset, "<end_of_turn>")


@forgery("alone")
def _the_bos_is_missing(dataset: Dataset) -> None:
    for document in documents(dataset):
        kept(document, np.arange(1, document.tokens.size))


@forgery("alone")
def _two_documents_are_one(dataset: Dataset) -> None:
    first, second = documents(dataset)[:2]
    for name in ("tokens", "lossmask", "span"):
        setattr(first, name, np.concatenate([getattr(first, name)[:-1], getattr(second, name)]))
    documents(dataset).pop(1)
    _one_row_fewer(dataset, second)


def _one_row_fewer(dataset: Dataset, gone: Document) -> None:
    """Numbers the rows as if a row had never been."""
    for group in dataset.documents.values():
        for document in group:
            document.about["row"] -= document.about["row"] > gone.about["row"]
    content = dataset.manifest["content"]
    content["input"]["shards"][0]["rows"] -= 1
    rows = sorted(
        ((d.about["row"], s, d) for (s, _), g in dataset.documents.items() for d in g), key=lambda each: each[0]
    )
    dataset.documents = {place: [] for place in dataset.documents}
    for row, split, document in rows:
        dataset.documents[split, row % 2].append(document)
    for shard in content["shards"]:
        shard["rows_read"] = len([row for row, _, _ in rows if row % 2 == shard["shard"]])


@forgery("alone")
def _the_label_of_the_answer_is_missing(dataset: Dataset) -> None:
    document = one(dataset)
    without(document, tokens_of(document, REASONING)[-2:])


@forgery("alone")
def _response_start_is_another(dataset: Dataset) -> None:
    one(dataset).about["response_start"] += 1


@forgery("alone")
def _boundary_tokens_are_counted_that_are_not_there(dataset: Dataset) -> None:
    one(dataset).about["boundary_tokens"] += 1


@forgery("alone")
def _control_strings_are_counted_that_are_not_there(dataset: Dataset) -> None:
    one(dataset).about["control_strings"] = 2


@forgery("alone")
def _the_system_text_is_another(dataset: Dataset) -> None:
    dataset.manifest["content"]["config"]["system"] = "Be brief."


@forgery("alone")
def _the_format_is_another(dataset: Dataset) -> None:
    content = dataset.manifest["content"]
    content["config"]["format"] = "training_example"
    content["input"]["shards"][0]["path"] = "d-1.training_example.jsonl"


@forgery("alone")
def _a_document_is_in_the_other_split(dataset: Dataset) -> None:
    moved = documents(dataset).pop(4)
    dataset.documents["valid", 0].append(moved)
    dataset.documents["valid", 0].sort(key=lambda document: int(document.about["row"]))


@forgery("alone")
def _the_fraction_is_another(dataset: Dataset) -> None:
    content = dataset.manifest["content"]
    content["config"]["valid_fraction"] = content["split"]["valid_fraction"] = 0.6
    content["split"]["threshold"] = str(2**64 * 6 // 10)


@forgery("alone")
def _the_eod_is_another(dataset: Dataset) -> None:
    content = dataset.manifest["content"]
    content["config"]["eod"] = {"text": "<pad>", "id": token(dataset, "<pad>")}
    content["tokenizer"]["eod"] = token(dataset, "<pad>")


@forgery("alone")
def _the_export_has_more_rows(dataset: Dataset) -> None:
    dataset.manifest["content"]["input"]["shards"][0]["rows"] += 1


@forgery("alone")
def _the_tokenizer_is_another(dataset: Dataset) -> None:
    path = dataset.root / "tokenizer.json"
    file = json.loads(path.read_bytes())
    vocabulary = file["model"]["vocab"]
    vocabulary["a"], vocabulary["e"] = vocabulary["e"], vocabulary["a"]
    path.write_text(json.dumps(file))
    dataset.manifest["content"]["tokenizer"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()


@forgery("alone")
def _the_tokenizer_is_a_link(dataset: Dataset) -> None:
    path = dataset.root / "tokenizer.json"
    target = (dataset.root.parent / "elsewhere.json").resolve()
    target.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(target)


@forgery("alone")
def _the_tokenizer_is_missing(dataset: Dataset) -> None:
    (dataset.root / "tokenizer.json").unlink()


@forgery("source")
def _a_token_of_the_reasoning_is_another(dataset: Dataset) -> None:
    document = one(dataset)
    at = tokens_of(document, REASONING)[-8]
    document.tokens[at] = token(dataset, "e")


@forgery("source")
def _a_token_of_the_prompt_is_another(dataset: Dataset) -> None:
    at = int(tokens_of(one(dataset), REASONING)[0]) - 12
    one(dataset).tokens[at] = token(dataset, "e")


@forgery("source")
def _the_end_of_the_answer_is_cut(dataset: Dataset) -> None:
    document = one(dataset)
    without(document, tokens_of(document, ANSWER)[-3:-1])


@forgery("source")
def _a_step_is_cut(dataset: Dataset) -> None:
    document = one(dataset)
    without(document, tokens_of(document, REASONING)[-6:-2])


@forgery("source")
def _documents_are_copies_of_one(dataset: Dataset) -> None:
    first, *others = documents(dataset)
    for other in others[:2]:
        as_another(other, first, IDS)


@forgery("source")
def _two_documents_are_exchanged(dataset: Dataset) -> None:
    first, second = documents(dataset)[:2]
    own = {name: first.about[name] for name in IDS}, {name: second.about[name] for name in IDS}
    documents(dataset)[:2] = [second, first]
    second.about, first.about = {**second.about, **own[0]}, {**first.about, **own[1]}


@forgery("source")
def _two_ids_are_exchanged(dataset: Dataset) -> None:
    first, second = documents(dataset)[:2]
    exchanged(first, second, ("trace_id",))


@forgery("source")
def _two_sources_are_exchanged(dataset: Dataset) -> None:
    first = documents(dataset)[0]
    other = next(each for each in documents(dataset) if each.about["source"] != first.about["source"])
    exchanged(first, other, ("source",))


@forgery("source")
def _a_weight_is_another(dataset: Dataset) -> None:
    one(dataset).about["weight"] = 99.0


@forgery("source")
def _a_document_is_left_out(dataset: Dataset) -> None:
    _one_row_fewer(dataset, documents(dataset).pop(4))


@forgery("all")
def _a_text_is_cut_into_other_tokens(dataset: Dataset) -> None:
    """The last piece of the reasoning in a token for each byte."""
    file = json.loads((dataset.root / "tokenizer.json").read_bytes())
    written = {number: text for text, number in file["model"]["vocab"].items()}
    document = one(dataset)
    at = next(
        place for place in tokens_of(document, REASONING)[6:].tolist() if len(written[int(document.tokens[place])]) > 2
    )
    letters = [file["model"]["vocab"][letter] for letter in written[int(document.tokens[at])]]
    document.tokens = np.concatenate([document.tokens[:at], letters, document.tokens[at + 1 :]]).astype(np.int32)
    for name in ("lossmask", "span"):
        values = getattr(document, name)
        setattr(document, name, np.insert(values, at, np.full(len(letters) - 1, values[at])))


def test_an_honest_dataset_written_again_is_clean(made: tuple[Path, Path], tmp_path: Path) -> None:
    forgery.assert_honest(*made, tmp_path / "root", lambda _: None)


@pytest.mark.parametrize("name", list(forgery.by_name))
def test_a_forgery_is_found(name: str, made: tuple[Path, Path], tmp_path: Path) -> None:
    root, source = made
    report = forgery.report(name, root, tmp_path / "root", source)
    assert not report.clean, f"{name} is not found"
