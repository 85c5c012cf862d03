"""The merge, as the original does it and as ours does; ids; batches."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families.toolcalls.conftest import Run, values
from spanloom.errors import SpanloomError
from spanloom.families.toolcalls.format.ids import Ids, content_id, hash_input
from spanloom.families.toolcalls.format.source import files_below
from spanloom.families.toolcalls.format.tables import weight_of
from spanloom.families.toolcalls.merge.merged import MergeOptions, lines_of_samples, merge, repeats
from spanloom.families.toolcalls.rules import Rules
from spanloom.families.toolcalls.validation import validate_files
from support.cases import lines
from support.toolcall_samples import changed, harmful, retain, write_samples


def test_every_given_id(fixtures: Path) -> None:
    cases = values(fixtures / "ids.json")
    assert cases
    for case in cases:
        assert content_id(case["source"], case["split"], case["content_hash_input"]) == case["id"]


def test_the_hash_input_is_that_of_the_given_ids(fixtures: Path) -> None:
    inputs = {case["content_hash_input"] for case in values(fixtures / "ids.json")}
    made = set()
    for case in lines(fixtures / "samples.jsonl"):
        made.add(hash_input(case["sample"]))
    assert made & inputs


def test_an_id_that_is_taken_gets_more_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = Ids()
    first, again = ids.take("b4", "harmful", "a"), ids.take("b4", "harmful", "a")
    assert (first[1], again) == (False, (first[0], True))
    ids._contents[content_id("b4", "harmful", "b")] = "another content"
    ids._contents[content_id("b4", "harmful", "b", 12)] = "a third"
    assert ids.take("b4", "harmful", "b") == (content_id("b4", "harmful", "b", 16), False)


def test_every_given_merge(fixtures: Path, run: Run, tmp_path: Path) -> None:
    inputs = ["--harmful-dir", fixtures / "merge/in/harmful", "--retain-dir", fixtures / "merge/in/retain"]
    for case in values(fixtures / "merge/cases.json"):
        folder = tmp_path / case["case"]
        places = ["--output", folder / "train.jsonl", "--eval-output", folder / "eval.jsonl"]
        ended = run("merge", *inputs, *places, "--stats", folder / "stats.json", "--compat", *case["args"])
        assert ended.code == case["exit_code"], case["case"]
        assert [sample["id"] for sample in lines(folder / "train.jsonl")] == case["train_ids"], case["case"]
        assert [sample["id"] for sample in lines(folder / "eval.jsonl")] == case["eval_ids"], case["case"]
        assert values(folder / "stats.json") == case["stats"], case["case"]
        expected = fixtures / "merge/expected" / case["case"] / "train.jsonl"
        if expected.is_file():
            assert (folder / "train.jsonl").read_bytes() == expected.read_bytes()


def as_original(places: tuple[Path, Path], run: Run, *options: object) -> tuple[int, Any, dict[str, Any]]:
    """Exit code, samples and numbers of a merge with `--compat`, in order, 0.9 retain samples for each harmful one."""
    out = places[0].parent / "train.jsonl"
    folders = ["--harmful-dir", places[0], "--retain-dir", places[1]]
    ended = run("merge", *folders, "--output", out, "--compat", "--no-shuffle", "--dr-ratio", 0.9, *options)
    return ended.code, lines(out) if out.exists() else None, json.loads(ended.out or "{}")


def test_compat_reads_as_the_original_does(tmp_path: Path, run: Run) -> None:
    """Files right in the folder alone; lines that are no samples are passed over; a limit counts lines."""
    places = folders(tmp_path, [harmful(n) for n in range(10)], [])
    others = [retain(1), [], changed(retain(2), "messages", ...), changed(retain(3), "assistant_raw", "")]
    text = "\n".join(["", "{", *map(json.dumps, others), json.dumps(changed(retain(4), "labels.split", "harmful"))])
    (places[1] / "r.jsonl").write_text(text)
    write_samples(places[1] / "below/r.jsonl", [retain(9)])
    _, made, stats = as_original(places, run)
    assert len(made) == 19
    assert [sample["id"].partition("_dup")[2] for sample in made[10:]] == list("012345678")
    assert stats["retain_sources"] == {"r": 3}
    assert stats["by_split"]["retain"] == 9, "by the folder, whatever labels.split says"
    assert as_original(places, run, "--max-per-source", 3)[2]["retain_sources"] == {"r": 1}
    assert as_original(places, run, "--max-per-source", 6)[2]["retain_sources"] == {"r": 2}


@pytest.mark.parametrize(
    ("stem", "tools"),
    [("tau2", "tau2_native"), ("tau2_traces", "tau2_native"), ("my_tau2", "b4_standard_v1"), ("agentdojo_x", None)],
)
def test_compat_gives_tools_by_the_name_of_the_file(tmp_path: Path, run: Run, stem: str, tools: str | None) -> None:
    places = folders(tmp_path, [harmful(1), harmful(2)], [])
    write_samples(places[1] / f"{stem}.jsonl", [harmful(3, tools=None, labels={})])
    _, made, _ = as_original(places, run)
    assert made[-1]["tools"] == (tools or "b4_standard_v1")


def test_compat_holds_a_sample_without_an_id_by_its_hash_alone(tmp_path: Path, run: Run) -> None:
    nameless = changed(harmful(1), "id", ...)
    content = {"messages": nameless["messages"], "assistant_raw": nameless["assistant_raw"]}
    given = "auto_" + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
    places = folders(tmp_path, [nameless, nameless, harmful(2, id=given)], [retain(1), retain(2)])
    _, made, _ = as_original(places, run)
    assert [sample["id"] for sample in made[:2]] == [given, given]
    assert [sample["messages"][1]["content"][:14] for sample in made[:2]] == ["Find picture 1", "Find picture 2"]


def test_compat_counts_samples_that_resisted_by_their_label(tmp_path: Path, run: Run) -> None:
    """And writes the files before it looks."""
    safe = [changed(retain(n), "labels.is_adversarial_safe", True) for n in range(400)]
    places = folders(tmp_path, [harmful(n) for n in range(80)], safe)
    assert as_original(places, run, "--validate", "--dr-ratio", 5)[0] == 0
    code, made, _ = as_original(places, run, "--validate", "--dr-ratio", 3)
    assert (code, len(made)) == (1, 320)
    write_samples(places[1] / "r.jsonl", safe[1:])
    assert as_original(places, run, "--validate", "--dr-ratio", 5)[0] == 1


@pytest.mark.parametrize("change", [("messages", None), ("assistant_raw", 3), ("labels", []), ("metadata", "x")])
def test_compat_stops_at_what_the_original_fails_at(tmp_path: Path, run: Run, change: tuple[str, Any]) -> None:
    places = folders(tmp_path, [harmful(1)], [changed(retain(1), *change)])
    assert as_original(places, run)[:2] == (1, None)
    write_samples(places[1] / "r.jsonl", [])
    assert as_original(places, run)[:2] == (1, None), "a folder without samples too"


def test_every_given_batch(fixtures: Path, run: Run, tmp_path: Path) -> None:
    given_batches = values(fixtures / "merge/batches.json")
    for case in given_batches["cases"]:
        out = tmp_path / f"{case['case']}.jsonl"
        ended = run("batches", "--data", fixtures / "merge" / case["input"], "--output", out, "--compat", *case["args"])
        assert ended.code == case["exit_code"], case["case"]
        if "batches" in case:
            rows = lines(out)
            for row in rows:
                row["harmful"] = [sample["id"] for sample in row["harmful"]]
                row["benign"] = [sample["id"] for sample in row["benign"]]
            assert rows == case["batches"], case["case"]
        else:
            assert not out.exists()
    assert lines(tmp_path / "default.jsonl")[0] == given_batches["first_row_of_default"]


def folders(tmp_path: Path, harmful_ones: list[Any], retain_ones: list[Any]) -> tuple[Path, Path]:
    write_samples(tmp_path / "harmful/h.jsonl", harmful_ones)
    write_samples(tmp_path / "retain/r.jsonl", retain_ones)
    return tmp_path / "harmful", tmp_path / "retain"


@pytest.mark.parametrize("compat", [[], ["--compat"]])
@pytest.mark.parametrize("empty", ["harmful", "retain"])
def test_a_merge_without_samples_of_a_split_is_refused(tmp_path: Path, run: Run, empty: str, compat: list[str]) -> None:
    places = folders(tmp_path, [harmful(1)] * (empty != "harmful"), [retain(1)] * (empty != "retain"))
    out = tmp_path / "train.jsonl"
    ended = run("merge", "--harmful-dir", places[0], "--retain-dir", places[1], "--output", out, *compat)
    assert ended.code == 1
    assert "the folder has no samples" in ended.err
    assert str(tmp_path / empty) in ended.err
    assert not out.exists()


def test_what_differs_from_the_original(tmp_path: Path) -> None:
    nameless = changed(retain(3), "id", ...)
    renamed = {"context": retain(4)["messages"], "completion": "x"}
    places = folders(
        tmp_path, [harmful(1), harmful(1)], [retain(1), {**retain(1), "id": "a_retain_00009"}, nameless, renamed]
    )
    merged = merge(*places, MergeOptions(ratio=9, shuffle=False))
    by_id = {sample["id"]: sample for sample in merged.train}
    assert list(by_id) == sorted(by_id)
    assert len(by_id) == 4
    assert "a_retain_00009" in by_id, "of two ids with one content the first by id stays"
    assert content_id("r", "retain", hash_input(nameless)) in by_id
    assert by_id["b4_harmful_00001"]["metadata"] == {
        "source": "fujitsu_b4",
        "has_tool_calls": True,
        "split": "harmful",
        "source_file": "h",
    }
    assert merged.stats["counted"] == {"ids_made": 2, "same_content": 1, "same_id_and_content": 1}


@pytest.mark.parametrize(
    ("harmful_ones", "retain_ones", "said"),
    [
        ([harmful(1), harmful(1, assistant_raw="x")], [retain(1)], "two contents"),
        ([harmful(1)], [{**harmful(1), "id": "x_retain_00001", "labels": {"split": "retain"}}], "harmful and retain"),
        ([harmful(1)], [{**harmful(1), "labels": {"split": "retain"}}], "harmful and retain"),
        ([harmful(1)], [harmful(2)], "is in the folder of retain"),
        ([harmful(1)], [[]], "is not a JSON object"),
    ],
)
def test_what_does_not_fit_together_stops_it(
    tmp_path: Path, run: Run, harmful_ones: list[Any], retain_ones: list[Any], said: str
) -> None:
    places = folders(tmp_path, harmful_ones, retain_ones)
    out = tmp_path / "train.jsonl"
    ended = run("merge", "--harmful-dir", places[0], "--retain-dir", places[1], "--output", out)
    assert ended.code == 1
    assert said in ended.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--min-ratio", "3"], "less than 3 each"),
        (["--min-adversarial-safe", "1"], "fewer than 1"),
        (["--validate", "--min-ratio", "0", "--min-adversarial-safe", "0"], "b4_harmful_00001: F1 tools"),
        (["--validate"], "fewer than 400"),
    ],
)
def test_gates_stop_it_before_anything_is_written(tmp_path: Path, run: Run, options: list[str], said: str) -> None:
    places = folders(tmp_path, [changed(harmful(1), "tools", None), harmful(2)], [retain(1), retain(2)])
    write_samples(places[0] / "h.jsonl", [harmful(1, assistant_raw="no call", tools=None), harmful(2)])
    out = tmp_path / "train.jsonl"
    ended = run("merge", "--harmful-dir", places[0], "--retain-dir", places[1], "--output", out, *options)
    assert ended.code == 1
    assert said in ended.err
    assert not out.exists()


def test_too_few_retain_samples_are_repeated_only_where_asked_for(tmp_path: Path) -> None:
    places = folders(tmp_path, [harmful(1), harmful(2)], [retain(1), retain(2), retain(3)])
    plain = merge(*places, MergeOptions(ratio=5))
    assert len(plain.train) == 5
    more = merge(*places, MergeOptions(ratio=5, oversample=True))
    assert len(more.train) == 5
    assert sum(repeats(sample) for sample in more.train if sample["labels"]["split"] == "retain") == 10
    assert len({sample["id"] for sample in more.train}) == 5


def test_too_many_are_cut_by_weight(tmp_path: Path) -> None:
    weighty = changed(retain(3), "training.sample_weight", 3.0)
    places = folders(tmp_path, [harmful(1)], [retain(1), retain(2), weighty, retain(4)])
    merged = merge(*places, MergeOptions(ratio=2))
    kept = [sample["id"] for sample in merged.train if sample["labels"]["split"] == "retain"]
    assert sorted(kept) == ["ultrachat_retain_00001", "ultrachat_retain_00003"]
    assert merged.stats["counted"] == {"above_ratio": 2}


@settings(max_examples=40)
@given(st.permutations(range(8)), st.integers(1, 4), st.booleans())
def test_the_order_of_samples_and_files_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], files: int, oversample: bool
) -> None:
    samples = [retain(1), retain(2), retain(3), {**retain(1), "id": "z_retain_00001"}, retain(4), retain(2)]
    samples += [changed(retain(5), "training.sample_weight", 2), changed(retain(3), "metadata.note", "a")]
    options = MergeOptions(ratio=2 if not oversample else 9, oversample=oversample, eval_fraction=0.3)
    made = []
    for arrangement, count in ((range(8), 1), (order, files)):
        folder = tmp_path_factory.mktemp("merge")
        write_samples(folder / "h/h.jsonl", [harmful(1), harmful(2)])
        for number in range(count):
            write_samples(folder / f"r/{number}.jsonl", [samples[i] for i in arrangement[number::count]])
        merged = merge(folder / "h", folder / "r", options)
        for sample in (*merged.train, *merged.evaluation):
            sample["metadata"].pop("source_file")
        made.append(lines_of_samples(merged.train) + b"|" + lines_of_samples(merged.evaluation))
    assert made[0] == made[1]


def test_what_is_merged_and_batched_is_valid(tmp_path: Path, run: Run) -> None:
    places = folders(tmp_path, [harmful(n) for n in range(4)], [retain(n) for n in range(3)])
    out = tmp_path / "stage2"
    assert (
        run("merge", "--harmful-dir", places[0], "--retain-dir", places[1], "--output", out / "train.jsonl").code == 0
    )
    assert run("batches", "--data", out / "train.jsonl", "--output", out / "batches.jsonl").code == 0
    assert run("validate", "--data-dir", out, "--strict").code == 0
    rows = lines(out / "batches.jsonl")
    assert [row["id"] for row in rows] == [f"batch_{n}" for n in range(4)]
    taken = [sample["id"] for row in rows for sample in row["benign"]]
    assert taken[:3] * 6 + taken[:2] == taken, "in turn, and from the start again"


def test_without_samples_of_a_split_there_are_no_batches(tmp_path: Path, run: Run) -> None:
    file = write_samples(tmp_path / "x.jsonl", [harmful(1)])
    out = tmp_path / "out.jsonl"
    ended = run("batches", "--data", file, "--output", out)
    assert (ended.code, out.exists()) == (1, False)
    assert "no retain sample" in ended.err


def test_evaluation_samples_need_a_file(tmp_path: Path, run: Run) -> None:
    assert run("merge", "--eval-fraction", "0.5").code == 2


def test_options_that_make_no_sense() -> None:
    with pytest.raises(SpanloomError, match="eval fraction"):
        MergeOptions(eval_fraction=2)


def test_the_sums_of_weights_do_not_depend_on_the_order(tmp_path: Path) -> None:
    write_samples(tmp_path / "r.jsonl", [retain(n) for n in range(10)])
    run = validate_files(files_below(tmp_path), Rules())
    assert run.subtypes["retain"]["general_conversation"] == (10, 8.0)
    assert weight_of(json.loads(json.dumps(retain(1)))) == 0.8
