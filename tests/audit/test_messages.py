"""Conversations that a dataset was made from: in which files they may be, and which of them a document belongs to."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from audit.conftest import SmallModel
from spanloom.errors import SourceError, SpanloomError
from spanloom.families.models.conversation import read_conversation
from spanloom.families.models.prove.conversation import Proven, prove_conversation
from support.audited import Document, write_masks
from support.chat_sources import write_manifest, write_source
from support.model_datasets import stored, write_conversations

Records = list[dict[str, Any]]


def talk(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


TALKS = [talk(f"Where is place {number}?", f"answer {number}") for number in range(5)]


def proven(model: SmallModel, records: Records) -> list[Document]:
    documents: list[Document] = []
    for each in records:
        outcome = prove_conversation(model.auditor.model, read_conversation(each, name="test"), model.auditor.proving)
        assert isinstance(outcome, Proven)
        documents += [(made.tokens.tolist(), made.mask.tolist()) for made in outcome.documents]
    return documents


def _lines(folder: Path, records: Records) -> Path:
    path = folder / "chat.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def _parquet(folder: Path, records: Records) -> Path:
    pq.write_table(pa.table({"messages": [each["messages"] for each in records]}), folder / "chat.parquet")
    return folder / "chat.parquet"


def _prompts(folder: Path, records: Records) -> Path:
    halves = {"prompt": [each["messages"][:1] for each in records], "completion": [r["messages"][1:] for r in records]}
    pq.write_table(pa.table(halves), folder / "chat.parquet")
    return folder


def _csv(folder: Path, records: Records) -> Path:
    with (folder / "chat.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("prompt", "completion"))
        writer.writerows([[message["content"] for message in each["messages"]] for each in records])
    return folder / "chat.csv"


def _saved(folder: Path, records: Records) -> Path:
    from datasets import Dataset

    Dataset.from_list(records).save_to_disk(str(folder / "saved"))
    return folder / "saved"


def _source(folder: Path, records: Records) -> Path:
    return write_conversations(folder / "source", [[stored({**each, "id": str(n)})] for n, each in enumerate(records)])


def _harmony(folder: Path, records: Records) -> Path:
    rows = []
    for number, each in enumerate(records):
        question, answer = (message["content"] for message in each["messages"])
        messages = [
            {"role": "system", "content": [{"type": "system_content"}]},
            {"role": "user", "content": question},
            {"role": "assistant", "channel": "final", "content": answer},
        ]
        row = {"messages_json": json.dumps({"messages": messages}), "metadata_json": json.dumps({"id": str(number)})}
        rows.append({**row, "id": str(number)})
    write_source(folder / "harmony", [rows], row_group_size=2)
    write_manifest(folder / "harmony", 1, schema_version="harmony_conversations_v1")
    return folder / "harmony"


PLACES: dict[str, Callable[[Path, Records], Path]] = {
    "JSON Lines": _lines,
    "Parquet of messages": _parquet,
    "a folder of prompts and completions": _prompts,
    "CSV": _csv,
    "save_to_disk": _saved,
    "conversations_v1": _source,
    "harmony_conversations_v1": _harmony,
}


@pytest.mark.parametrize("name", PLACES)
def test_conversations_are_read_from_all_that_the_product_reads(
    name: str, faithful: SmallModel, tmp_path: Path
) -> None:
    documents = proven(faithful, TALKS)
    tokens, mask = documents[3]
    word = faithful.ids("XQ")
    place = mask.index(1)
    documents[3] = (tokens[:place] + word + tokens[place:], mask[:place] + [1] * len(word) + mask[place:])
    data = write_masks(tmp_path / "data.parquet", documents)
    folder = tmp_path / "chat"
    folder.mkdir()
    result = faithful.audit(data, messages=PLACES[name](folder, TALKS))
    assert {name: [each.row for each in shown] for name, shown in result.examples.items()} == {"text_differs": [3]}
    assert result.messages == {"rows": 5, "refused": {}, "matched": 5, "unmatched": 0, "not_proven": {}}


def test_conversations_of_another_dataset_are_an_error(faithful: SmallModel, tmp_path: Path) -> None:
    data = write_masks(tmp_path / "data.parquet", proven(faithful, TALKS))
    others = [talk("Another question?", "another answer")]
    with pytest.raises(SourceError, match="none of the 5 documents is of a conversation"):
        faithful.audit(data, messages=_source(tmp_path, others))


def test_rows_that_make_no_conversation_are_counted_and_their_documents_are_judged_by_tokens(
    faithful: SmallModel, tmp_path: Path
) -> None:
    """Two ask the same; of one of them the row is refused. Its document is not that of the other."""
    data = write_masks(tmp_path / "data.parquet", proven(faithful, [TALKS[0], talk("Where is place 0?", "elsewhere")]))
    refused = {"messages": [*TALKS[0]["messages"][:1], {"role": "nobody", "content": 7}]}
    result = faithful.audit(data, messages=_lines(tmp_path, [TALKS[0], refused, {"text": "x"}]))
    assert result.found == {}
    assert result.messages is not None
    assert (result.messages["rows"], sum(result.messages["refused"].values())) == (3, 2)
    assert result.messages["not_proven"] == {"not_read": 1}


def test_a_document_finds_its_conversation_among_many_with_the_same_question(
    faithful: SmallModel, tmp_path: Path
) -> None:
    records = [talk("Tell me more.", f"answer {'so ' * (number % 7)}number {number}") for number in range(60)]
    documents = proven(faithful, records)
    chat = _lines(tmp_path, records)
    whole = faithful.audit(write_masks(tmp_path / "a.parquet", documents), messages=chat)
    assert whole.found == {}
    tokens, mask = documents[50]
    documents[50] = (tokens[:-3], mask[:-3])
    tokens, mask = documents[51]
    other = mask.index(1) + 2
    documents[51] = (tokens[:other] + faithful.ids("XQ") + tokens[other:], [*mask[:other], 1, 1, *mask[other:]])
    text = b"".join(map(faithful.auditor.model.tokenizer.token_bytes, documents[52][0])).decode()
    first = text.index("number")
    pieces = (
        faithful.ids(text[:first]) + [faithful.ids(letter)[0] for letter in "number"] + faithful.ids(text[first + 6 :])
    )
    start = documents[52][1].index(1)
    stop = pieces.index(faithful.ids("<|end|>")[0], start)
    documents[52] = (pieces, [int(start <= place <= stop) for place in range(len(pieces))])
    changed = faithful.audit(write_masks(tmp_path / "b.parquet", documents), messages=chat)
    assert {name: [each.row for each in shown] for name, shown in changed.examples.items()} == {
        "truncated": [50],
        "text_differs": [51],
        "retokenised": [52],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "conversations are missing"),
        ("", "the file is empty"),
        ("{", "no record that can be read"),
        ('{"messages": [{"role": "user", "content": "a"}]}\n', "no row makes a conversation"),
        ('{"a": 1}\n', ""),
    ],
)
def test_what_holds_no_conversations_ends_in_a_message(
    content: str | None, message: str, faithful: SmallModel, tmp_path: Path
) -> None:
    path = tmp_path / "chat.jsonl"
    if content is not None:
        path.write_text(content)
    data = write_masks(tmp_path / "data.parquet", faithful.documents[:2])
    with pytest.raises(SpanloomError) as fault:
        faithful.audit(data, messages=path)
    assert message in str(fault.value)
    assert fault.value.remedy


def test_a_truncated_answer_is_right_without_its_stop(faithful: SmallModel, tmp_path: Path) -> None:
    question, answer = TALKS[0]["messages"]
    records = [*TALKS[1:], {"messages": [question, {**answer, "truncated": True}]}]
    data = write_masks(tmp_path / "data.parquet", proven(faithful, records))
    assert faithful.audit(data, messages=_source(tmp_path / "cut", records)).found == {}
    assert faithful.audit(data, messages=_source(tmp_path / "whole", TALKS)).found == {"stop_untrained": 1}
