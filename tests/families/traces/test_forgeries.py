"""Datasets of traces that are false and fit together.

Each forgery changes one thing, and all that follows from it but for what only the tokens, the options, the tokenizer or
the export can tell. Those that tool calls have too are in `support/shared_forgeries.py`.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.export.lines import ExportOptions, export_lines
from spanloom.families.traces.recipe import TokenizeRules
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.token_build import TokenBuildOptions, build_tokens
from support.forging import Forgeries, tokens_of, trained, without
from support.shared_forgeries import Family, add_shared, documents, one_fewer, token_id
from support.traces import CASES, store_rows
from tools.corruption.dataset import Dataset, Document, plus

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


def one(dataset: Dataset) -> Document:
    return documents(dataset)[3]


def one_row_fewer(dataset: Dataset, gone: Document) -> None:
    one_fewer(dataset, gone, "no reason")
    dataset.manifest["content"]["input"]["shards"][0]["rows"] -= 1


add_shared(
    forgery,
    Family(
        plain=one,
        mixed=one,
        ids=IDS,
        control="<start_of_turn>",
        pad="<pad>",
        carried=("tokenizer.json", "tokenizer.json"),
        early=5,
        fewer=one_row_fewer,
    ),
    the_tokenizer_is_another="alone",
)


forgery.values(
    lambda dataset: one(dataset).about,
    {
        "response_start_is_another": ("alone", "response_start", plus(1)),
        "boundary_tokens_are_counted_that_are_not_there": ("alone", "boundary_tokens", plus(1)),
        "control_strings_are_counted_that_are_not_there": ("alone", "control_strings", 2),
    },
)
forgery.values(
    lambda dataset: dataset.manifest["content"],
    {
        "the_system_text_is_another": ("alone", "config.system", "Be brief."),
        "the_export_has_more_rows": ("alone", "input.shards.0.rows", plus(1)),
    },
)


@forgery("alone")
def _no_reasoning_is_trained(dataset: Dataset) -> None:
    for document in documents(dataset):
        trained(document, tokens_of(document, REASONING), 0)


@forgery("alone")
def _reasoning_is_called_the_answer(dataset: Dataset) -> None:
    one(dataset).span[one(dataset).span > 0] = ANSWER


@forgery("alone")
def _a_control_token_is_in_the_reasoning(dataset: Dataset) -> None:
    one(dataset).tokens[tokens_of(one(dataset), REASONING)[4]] = token_id(dataset, "<end_of_turn>")


@forgery("alone")
def _the_label_of_the_answer_is_missing(dataset: Dataset) -> None:
    document = one(dataset)
    without(document, tokens_of(document, REASONING)[-2:])


@forgery("alone")
def _the_format_is_another(dataset: Dataset) -> None:
    content = dataset.manifest["content"]
    content["config"]["format"] = "training_example"
    content["input"]["shards"][0]["path"] = "d-1.training_example.jsonl"


@forgery("source")
def _a_step_is_cut(dataset: Dataset) -> None:
    document = one(dataset)
    without(document, tokens_of(document, REASONING)[-6:-2])


@forgery("source")
def _a_document_is_left_out(dataset: Dataset) -> None:
    one_row_fewer(dataset, documents(dataset).pop(4))


def test_an_honest_dataset_written_again_is_clean(made: tuple[Path, Path], tmp_path: Path) -> None:
    forgery.assert_honest(*made, tmp_path / "root", lambda _: None)


@pytest.mark.parametrize("name", list(forgery.by_name))
def test_a_forgery_is_found(name: str, made: tuple[Path, Path], tmp_path: Path) -> None:
    root, source = made
    report = forgery.report(name, root, tmp_path / "root", source)
    assert not report.clean, f"{name} is not found"
