"""Records that others published become the traces that their descriptions say, held against an independent reading."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.families.traces.forms.chat import chat_form
from spanloom.families.traces.forms.form import NoTraceError
from spanloom.families.traces.forms.mapped import mapped_form
from spanloom.families.traces.places import trace_files
from spanloom.families.traces.store.ingest import Ingested, ingest_file
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.store.source import FormChoice
from spanloom.storage.scratch import scratch_for
from support import trace_forms_checker as checker

ANY_FORM = FormChoice(recognise=True)
Parts = checker.Parts


def records_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def taken(root: Path, path: Path, choice: FormChoice = ANY_FORM) -> tuple[Ingested, list[dict[str, Any]]]:
    """What an ingest counts, and the payloads that it stored, in their order."""
    store = open_store(default_url(root), create=True)
    try:
        store.remember_step_limit(1_000_000)
        done = ingest_file(store, path, source_name="published", choice=choice)
        with store.snapshot() as snapshot:
            return done, [trace.payload for trace in snapshot.traces(done.trace_ids)]
    finally:
        store.close()


def parts(payload: dict[str, Any]) -> Parts:
    return payload["prompt"], [step["content"] for step in payload["steps"]], payload["final_answer"]


@pytest.mark.parametrize("name", ["r1", "openthoughts", "qwen"])
def test_chat_with_reasoning(public_traces: Path, tmp_path: Path, name: str) -> None:
    (record,) = records_of(public_traces / f"{name}.jsonl")
    _, (payload,) = taken(tmp_path, public_traces / f"{name}.jsonl")
    assert parts(payload) == checker.chat(record)
    assert payload["meta"].get("system") == record.get("system")
    assert payload["meta"]["source"] == "published"


def test_columns_of_single_data_sets(public_traces: Path, tmp_path: Path) -> None:
    (limo,) = records_of(public_traces / "limo.jsonl")
    _, (payload,) = taken(tmp_path / "limo", public_traces / "limo.jsonl")
    assert parts(payload) == (limo["question"], [limo["solution"]], limo["answer"])
    (s1k,) = records_of(public_traces / "s1k.jsonl")
    _, (payload,) = taken(tmp_path / "s1k", public_traces / "s1k.jsonl")
    assert parts(payload) == (s1k["question"], s1k["thinking_trajectories"], s1k["attempt"])
    assert payload["meta"]["solution"] == s1k["solution"]
    mapped = mapped_form(["prompt=question", "answer=solution", "steps=thinking_trajectories"])
    _, (payload,) = taken(tmp_path / "map", public_traces / "s1k.jsonl", FormChoice(form=mapped))
    assert parts(payload) == (s1k["question"], s1k["thinking_trajectories"], s1k["solution"])
    (openr1,) = records_of(public_traces / "openr1.jsonl")
    _, (payload,) = taken(tmp_path / "openr1", public_traces / "openr1.jsonl")
    thought, answer = checker.reasoned({"content": openr1["generations"][0]})
    assert parts(payload) == (openr1["problem"], [thought], answer)
    assert payload["meta"]["generation"] == 0


def test_each_generation_is_a_trace_with_its_own_verdict(tmp_path: Path) -> None:
    record = {
        "problem": "1 + 1?",
        "generations": ["<think>a</think>2", "<think>never ends", "<think>b</think>3"],
        "correctness": [True, False, False],
        "source": "olympiads",
    }
    (tmp_path / "r.jsonl").write_text(json.dumps(record) + "\n")
    done, payloads = taken(tmp_path, tmp_path / "r.jsonl")
    assert [parts(payload)[1:] for payload in payloads] == [(["a"], "2"), (["b"], "3")]
    assert [payload["meta"]["correctness"] for payload in payloads] == [True, False]
    assert {payload["meta"]["record_source"] for payload in payloads} == {"olympiads"}
    assert dict(done.left_out) == {"tags are unclear": 1}


@pytest.mark.parametrize("name", ["gsm8k_test.jsonl", "gsm8k_train.jsonl"])
def test_gsm8k_as_it_was_published(published_files: Path, tmp_path: Path, name: str) -> None:
    path = published_files / name
    if not path.is_file():
        pytest.skip(f"missing: {path}; remedy: put GSM8K's file there")
    done, payloads = taken(tmp_path, path)
    assert list(map(parts, payloads)) == list(map(checker.gsm8k, records_of(path)))
    assert done.skipped_count == 0


def test_prm800k_as_it_was_published(published_files: Path, tmp_path: Path) -> None:
    path = published_files / "prm800k.jsonl"
    if not path.is_file():
        pytest.skip(f"missing: {path}; remedy: put records of PRM800K there")
    _check_prm800k(tmp_path, path)


def test_a_solution_of_prm800k_has_an_answer_from_its_question(public_traces: Path, tmp_path: Path) -> None:
    _check_prm800k(tmp_path, public_traces / "prm800k.jsonl")


def _check_prm800k(root: Path, path: Path) -> None:
    _, payloads = taken(root, path)
    records = records_of(path)
    assert len(payloads) == len(records)
    for payload, record in zip(payloads, records, strict=True):
        expected, ratings = checker.prm800k(record)
        assert parts(payload) == expected
        assert payload["meta"]["step_ratings"] == ratings
        assert payload["meta"]["label"] == record["label"]


def test_parquet_save_to_disk_gzip_and_stdin_give_the_same_traces(
    public_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = public_traces / "s1k.jsonl"
    _, (expected,) = taken(tmp_path / "lines", path)
    pq.write_table(pa.Table.from_pylist(records_of(path)), tmp_path / "s1k.parquet")
    saved = tmp_path / "saved"
    saved.mkdir()
    with (
        pa.OSFile(str(saved / "data-0.arrow"), "w") as file,
        pa.ipc.new_stream(file, pa.Table.from_pylist(records_of(path)).schema) as writer,
    ):
        writer.write_table(pa.Table.from_pylist(records_of(path)))
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-0.arrow"}]}))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(path.read_bytes()))))
    with scratch_for("test", [], None) as scratch:
        places = [str(tmp_path / "s1k.parquet"), str(saved), "-"]
        with trace_files(scratch, places) as files:
            assert [file.called for file in files] == [places[0], f"{saved}/data-0.arrow", "stdin"]
            for number, file in enumerate(files):
                _, (payload,) = taken(tmp_path / str(number), file.path)
                assert parts(payload) == parts(expected)


def test_records_without_reasoning_are_left_out_by_reason(tmp_path: Path) -> None:
    answered = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>t</think>a"}]
    plain = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    cut = [answered[0], {**answered[1], "finish_reason": "length"}]
    records = [{"messages": answered}, {"messages": plain}, {"messages": [*answered, *answered]}, {"messages": cut}]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    done, payloads = taken(tmp_path, tmp_path / "m.jsonl")
    assert [parts(payload) for payload in payloads] == [("q", ["t"], "a")]
    assert dict(done.left_out) == {"no reasoning": 1, "no single question": 1, "truncated": 1}
    assert [line["line"] for line in done.skipped] == [2, 3, 4]


@pytest.mark.parametrize("answer", [True, 4, 4.5])
@pytest.mark.parametrize(("key", "path"), [("answer", ".answer"), ("final.answer", ".final.answer")])
def test_an_answer_that_is_no_text_is_refused_with_the_program_that_writes_it(
    answer: float, key: str, path: str
) -> None:
    record = {"question": "2 + 2?", "reasoning": "It counts.", "answer": answer, "final": {"answer": answer}}
    written = rf"jq -c '\({path} \| numbers, booleans\) \|= tostring' FILE > records.jsonl"
    with pytest.raises(NoTraceError, match=f"{key}.*{written}"):
        mapped_form(["prompt=question", f"answer={key}", "steps=reasoning"]).traces(record)
    form = chat_form(record)
    assert form is not None
    with pytest.raises(NoTraceError, match=r"is a.*tostring' FILE > records\.jsonl"):
        form.traces(record)


def test_programs_of_jq_are_for_the_kind_of_file(tmp_path: Path) -> None:
    record = {"question": "2 + 2?", "reasoning": "It counts.", "answer": 4}
    whole = {**record, "answer": "4"}
    for name, text in (
        ("lines.jsonl", f"{json.dumps(whole)}\n{json.dumps(record)}\n"),
        ("array.json", json.dumps([whole, record])),
    ):
        (tmp_path / name).write_text(text)
        done, _ = taken(tmp_path / name.partition(".")[0], tmp_path / name)
        assert ("(arrays[], objects) | " in done.skipped[0]["reason"]) == (name == "array.json")
