"""Forgeries of rows and rejects, and documents left out."""

from tools.corruption.dataset import Dataset
from tools.corruption.harmony.kinds import alone_in_row, cutting, documents, forgery, taken_out


@forgery("alone")
def _runs_are_more(dataset: Dataset) -> None:
    next(documents(dataset)).about["runs"] += 1


@forgery("alone")
def _a_cut_is_another(dataset: Dataset) -> None:
    document = alone_in_row(dataset)[0]
    document.about.update(cut=2, id=f"{document.about['conversation']}#2")


@forgery("alone", "flags")
def _a_weight_is_other_than_in_the_next_document(dataset: Dataset) -> None:
    alone_in_row(dataset, several=True)[0].about["weight"] = 4.0


@forgery("source")
def _a_weight_is_another(dataset: Dataset) -> None:
    alone_in_row(dataset)[0].about["weight"] = 4.0


@forgery("alone")
def _an_id_is_not_of_its_conversation(dataset: Dataset) -> None:
    alone_in_row(dataset)[0].about["id"] = "c7#0"


@forgery("source")
def _ids_are_exchanged(dataset: Dataset) -> None:
    first, second = alone_in_row(dataset)[:2]
    for name in ("id", "conversation"):
        first.about[name], second.about[name] = second.about[name], first.about[name]


@forgery("alone")
def _a_document_is_in_the_other_split(dataset: Dataset) -> None:
    document = alone_in_row(dataset)[0]
    taken_out(dataset, document)
    dataset.documents["valid", 0].append(document)
    dataset.documents["valid", 0].sort(key=lambda each: (each.about["row"], each.about["cut"]))


@forgery("source")
def _the_last_document_of_a_conversation_is_left_out(dataset: Dataset) -> None:
    rows = [document.about["row"] for document in documents(dataset)]
    at = next(at for at in range(1, len(rows)) if rows[at] == rows[at - 1] != rows[at + 1])
    gone = dataset.documents["train", 0].pop(at)
    cutting(dataset)["documents"] -= 1
    cutting(dataset)["runs"] -= gone.about["runs"]


@forgery("alone")
def _the_first_document_of_a_conversation_is_left_out(dataset: Dataset) -> None:
    gone = alone_in_row(dataset, several=True)[0]
    taken_out(dataset, gone)
    cutting(dataset)["documents"] -= 1
    cutting(dataset)["runs"] -= gone.about["runs"]


@forgery("source")
def _a_good_conversation_is_rejected(dataset: Dataset) -> None:
    gone = alone_in_row(dataset)[0]
    taken_out(dataset, gone)
    row = {"row": gone.about["row"], "id": gone.about["conversation"], "shard": 0}
    dataset.rejects[0].append({**row, "reason": "no_messages", "detail": "the list of messages is empty"})
    dataset.rejects[0].sort(key=lambda line: int(line["row"]))
    for name, lost in {"conversations": 1, "documents": 1, "runs": gone.about["runs"]}.items():
        cutting(dataset)[name] -= lost


@forgery("source")
def _a_reason_is_another(dataset: Dataset) -> None:
    dataset.rejects[0][0]["reason"] = "role_unknown"


@forgery("alone")
def _documents_are_in_another_order(dataset: Dataset) -> None:
    dataset.documents["train", 0].reverse()


@forgery("alone")
def _a_conversation_is_twice(dataset: Dataset) -> None:
    """In place of its neighbour."""
    first, second = alone_in_row(dataset)[:2]
    row = second.about["row"]
    second.about = {**first.about, "row": row}
    second.tokens, second.span, second.lossmask = first.tokens, first.span, first.lossmask


@forgery("alone")
def _a_conversation_is_left_out(dataset: Dataset) -> None:
    gone = alone_in_row(dataset)[0]
    taken_out(dataset, gone)
    for name, lost in {"conversations": 1, "documents": 1, "runs": gone.about["runs"]}.items():
        cutting(dataset)[name] -= lost
    dataset.manifest["content"]["shards"][0]["rows_read"] -= 1


@forgery("alone")
def _a_bad_conversation_is_forgotten(dataset: Dataset) -> None:
    dataset.rejects[0].clear()
    dataset.manifest["content"]["shards"][0]["rows_read"] -= 1


@forgery("alone")
def _a_refusal_is_of_another_row(dataset: Dataset) -> None:
    dataset.rejects[0][0]["row"] -= 1
