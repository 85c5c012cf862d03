"""`spanloom audit` as users call it: clean and faulty data, JSON, a page, samples, workers, conversations."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import spanloom
from audit.conftest import FORGETS, SmallModel
from spanloom.auditing.auditor import ModelOptions
from spanloom.auditing.run import AuditOptions, audit
from spanloom.cli import main
from spanloom.errors import SourceError
from support.audited import write_indexed, write_masks, write_saved
from support.chat_models import MARKERS, small_tokenizer, write_model
from support.model_datasets import stored, write_conversations


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit code and stdout of `spanloom audit`."""
    monkeypatch.setattr(sys, "argv", ["spanloom", "audit", *map(str, arguments)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0), capsys.readouterr().out


def write_chat(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_right_documents_are_clean(
    forgetful: SmallModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_masks(tmp_path / "data.parquet", forgetful.documents)
    code, text = run(monkeypatch, capsys, data, "--model", forgetful.folder, "-q")
    assert code == 0
    assert "no findings" in text
    chat = write_chat(tmp_path / "chat.jsonl", forgetful.records)
    code, text = run(monkeypatch, capsys, data, "--model", forgetful.folder, "--messages", chat, "--json")
    told = json.loads(text)
    assert (code, told["clean"], told["findings"]) == (0, True, {})
    counts = {"rows": 60, "refused": {}, "matched": len(forgetful.documents), "unmatched": 0, "not_proven": {}}
    assert told["messages"] == counts
    assert told["trained"] == sum(sum(mask) for _, mask in forgetful.documents)


def test_findings_are_counted_shown_and_end_with_4(
    forgetful: SmallModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shifted = [(tokens, [*mask[1:], 0]) for tokens, mask in forgetful.documents]
    data = write_masks(tmp_path / "data.parquet", shifted)
    page = tmp_path / "audit.html"
    code, text = run(monkeypatch, capsys, data, "--model", forgetful.folder, "--html", page)
    assert code == 4
    assert "stop_untrained" in text
    assert "remedy" in text
    html = page.read_text()
    assert html.count("<article") == 20  # ten of each of the two classes
    assert "prompt_supplied_trained" in html
    _, told = run(monkeypatch, capsys, data, "--model", forgetful.folder, "--json", "--aligned", "labels")
    assert json.loads(told)["clean"]
    declared = ("--declare", "stop_untrained", "--declare", "prompt_supplied_trained")
    code, text = run(monkeypatch, capsys, data, "--model", forgetful.folder, "--json", *declared)
    assert (code, set(json.loads(text)["notes"])) == (0, {"stop_untrained", "prompt_supplied_trained"})


def test_what_cannot_be_read_ends_with_1_and_an_unknown_class_with_2(
    forgetful: SmallModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, capsys, tmp_path, "--model", forgetful.folder)[0] == 1
    assert run(monkeypatch, capsys, tmp_path, "--model", forgetful.folder, "--declare", "x")[0] == 2


def test_a_dataset_for_another_tokenizer_is_not_judged(forgetful: SmallModel, tmp_path: Path) -> None:
    source = write_conversations(tmp_path / "source", [[stored(each) for each in forgetful.records]])
    root = spanloom.build(
        source=source, out=tmp_path / "root", model=forgetful.folder, shards=1, allow_unknown_sha=True
    ).root
    assert forgetful.audit(root, workers=1).documents
    other = write_model(tmp_path / "other", FORGETS, tokenizer=small_tokenizer([*MARKERS, "<|more|>"]))
    with pytest.raises(SourceError, match="was made with the tokenizer"):
        audit(AuditOptions(data=root, model=ModelOptions(folder=other), workers=1))


@pytest.fixture
def three_files(forgetful: SmallModel, tmp_path: Path) -> Path:
    """The same documents thrice, nothing trained."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        write_masks(folder / f"{number}.parquet", [(tokens, [0] * len(tokens)) for tokens, _ in forgetful.documents])
    return folder


@pytest.mark.nightly
def test_workers_change_nothing(forgetful: SmallModel, three_files: Path) -> None:
    two = audit(AuditOptions(data=three_files, model=forgetful.options, workers=2))
    assert two == forgetful.audit(three_files, workers=1)


def test_a_sample_is_drawn_by_its_seed(forgetful: SmallModel, three_files: Path) -> None:
    count = len(forgetful.documents)
    assert forgetful.audit(three_files, workers=1).found == {"no_loss": 3 * count, "duplicate": 2 * count}
    places = []
    for seed in (1, 1, 2):
        drawn = forgetful.audit(three_files, workers=1, sample=7, seed=seed)
        assert (drawn.rows, drawn.all_rows, drawn.found["no_loss"]) == (7, 3 * count, 7)
        places.append([each.place for each in drawn.examples["no_loss"]])
    assert places[0] == places[1] != places[2]


def test_with_messages_each_document_is_compared_with_its_proof(forgetful: SmallModel, tmp_path: Path) -> None:
    chat = write_chat(tmp_path / "chat.jsonl", forgetful.records)
    documents = list(forgetful.documents)
    (start,) = forgetful.ids("<|start|>")
    tokens, mask = documents[0]
    first = mask.index(1)
    # Another word in the answer: tokens alone do not show it.
    word = forgetful.ids("XQ")
    documents[0] = (tokens[:first] + word + tokens[first:], mask[:first] + [1] * len(word) + mask[first:])
    tokens, mask = documents[1]
    question = tokens.index(start, 1) if tokens[0] != start else 0
    asked = question + len(forgetful.ids("<|start|>user\n"))
    other = forgetful.ids("unheard")
    documents[2] = (tokens[:asked] + other + tokens[asked:], mask[:asked] + [0] * len(other) + mask[asked:])
    documents[3] = (documents[3][0], [1] * len(documents[3][0]))
    data = write_saved(tmp_path / "saved", documents)
    plain = audit(AuditOptions(data=data, model=forgetful.options))
    compared = audit(AuditOptions(data=data, model=forgetful.options, messages=chat))
    # The document with another question has an earlier answer that no document of that question trains.
    assert {name: [each.row for each in shown] for name, shown in plain.examples.items()} == {
        "all_trained": [3],
        "history_untrained": [2],
    }
    assert {name: [each.row for each in shown] for name, shown in compared.examples.items()} == {
        "all_trained": [3],
        "text_differs": [0],
    }
    assert compared.messages is not None
    assert compared.messages["unmatched"] == 1


def test_an_answer_that_is_sampled_otherwise_is_named_by_its_proof(forgetful: SmallModel, tmp_path: Path) -> None:
    """One document of a conversation whose template rewrites history, with all its answers trained."""
    chat = write_chat(tmp_path / "chat.jsonl", forgetful.records)
    (stop,) = forgetful.ids("<|end|>")
    header = forgetful.ids("<|start|>assistant\n")

    def all_answers(tokens: list[int], mask: list[int]) -> list[int]:
        flags, place = list(mask), 0
        while place < len(tokens):
            if tokens[place : place + len(header)] == header:
                end = tokens.index(stop, place)
                flags[place + len(header) : end + 1] = [1] * (end + 1 - place - len(header))
                place = end
            place += 1
        return flags

    changed = [(tokens, all_answers(tokens, mask)) for tokens, mask in forgetful.documents]
    rewritten = [row for row, (new, old) in enumerate(zip(changed, forgetful.documents, strict=True)) if new != old]
    assert rewritten
    prefix = write_indexed(tmp_path / "corpus", changed)
    result = audit(AuditOptions(data=prefix, model=forgetful.options, messages=chat))
    assert result.found == {"history_rewritten": len(rewritten)}


def test_a_share_of_findings_may_be_tolerated_and_all_are_listed(
    forgetful: SmallModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = [*forgetful.documents, forgetful.documents[0], (forgetful.documents[1][0], [0] * 3)]
    documents[-1] = (documents[-1][0][:3], [0, 0, 0])
    data = write_masks(tmp_path / "data.parquet", documents)
    listing = tmp_path / "rows.jsonl"
    code, _ = run(monkeypatch, capsys, data, "--model", forgetful.folder, "--json", "--rows", listing)
    assert code == 4
    lines = [json.loads(line) for line in listing.read_text().splitlines()]
    count = len(forgetful.documents)
    assert {(line["class"], line["row"]) for line in lines} >= {("duplicate", count), ("no_loss", count + 1)}
    assert all(line["should"] and line["cause"] and line["file"] == "data.parquet" for line in lines)
    names = {line["class"] for line in lines}
    allowed = [argument for name in names for argument in ("--fail-on", f"{name}=50%")]
    assert run(monkeypatch, capsys, data, "--model", forgetful.folder, "--json", *allowed)[0] == 0
    below = [argument for name in names for argument in ("--fail-on", f"{name}=0.01%")]
    assert run(monkeypatch, capsys, data, "--model", forgetful.folder, "--json", *below)[0] == 4
    for wrong in ("duplicate", "duplicate=1", "duplicate=2", "duplicate=x", "nothing=1%"):
        assert run(monkeypatch, capsys, data, "--model", forgetful.folder, "--fail-on", wrong)[0] == 2
