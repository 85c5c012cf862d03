"""The model's arithmetic on numbers that can be checked in the head."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tools.bench import pipeline_model as scale
from tools.bench.page import fill
from tools.bench.scale import arguments, tables

ROOT = Path(__file__).parents[3]

RATES = scale.Rates(
    render_tokens=10.0,
    audit_seconds=0.0,
    split_rows=5.0,
    write_bytes=60.0,
    check_tokens=20.0,
    compare_tokens=40.0,
    input_per_token=2.0,
    rendered_per_token=3.0,
    ids_per_row=8.0,
    table_per_row=10.0,
    worker_startup=1.0,
    reader_import=4.0,
    worker_memory=7.0,
    plain_tokens=1.0,
    convert_rows=4.0,
    join_rows=8.0,
)
CORPUS = scale.Corpus(rows=80, tokens=1000, shards=2)
MACHINES = scale.Machines(pods=2, cores=4, download=100.0, upload=50.0, start=0.0, efficiency=1.0, spread=0.0)


def test_volumes_are_rates_times_rows_and_tokens() -> None:
    found = scale.volumes(CORPUS, RATES)
    assert found["input"] == 2000
    assert found["rendered"] == 3000
    assert found["ids"] == 640
    assert found["digests"] == 1280  # 16 bytes a document: of its id and of its tokens
    assert found["tokens.bin"] == 4 * found["span.bin"] == 4 * found["lossmask.bin"] == 4000
    # Megatron's header is 34 bytes; lengths 4, pointers 8, documents 8 a sequence, and one document more.
    assert found["idx"] == 3 * (2 * (34 + 8) + 80 * (4 + 8 + 8))
    assert scale.dataset_bytes(found) == 6000 + found["idx"] + 800


def test_every_artifact_goes_up_once_and_comes_down_once_for_each_reader() -> None:
    found = scale.volumes(CORPUS, RATES)
    moved = scale.traffic(CORPUS, found)
    assert sum(up for _, up in moved.values()) == sum(found.values()) - found["raw"]
    assert moved["write-indexed"][0] == 3000 + 640
    assert moved["validate-shard"] == (scale.dataset_bytes(found) + 2000, 1280)
    assert moved["assemble-validation"] == (1280 + 800, 0)


def test_memory_is_8_bytes_a_row_in_the_split_up_to_a_bound_and_4_a_sequence_in_the_writer() -> None:
    held = scale.memory(CORPUS, RATES, cores=4)
    assert held["assemble-split"] == held["assemble-validation"] == 8 * 80
    assert held["write-indexed"] == (4 + 1) * 40
    assert held["render-shard"] == 28
    ten = scale.memory(CORPUS.times(10), RATES, cores=4)
    assert ten["assemble-split"] == 10 * held["assemble-split"]
    assert ten["render-shard"] == held["render-shard"], "a worker's memory does not follow the rows"
    most = scale.memory(CORPUS.times(10**8), RATES, cores=4)
    assert most["assemble-split"] == 1 << 30, "8,000,000,000 rows"
    assert scale.memory(CORPUS.times(10, shards=20), RATES, cores=4)["validate-shard"] == held["validate-shard"]


def test_a_transfer_is_bound_by_the_pod_by_its_streams_and_by_its_objects() -> None:
    pods = replace(MACHINES, stream=8.0, streams=4, object_bytes=10.0)
    assert pods.seconds(8, 100) == 1, "one object, one stream"
    assert pods.seconds(320, 100) == 10, "four streams of many objects"
    assert pods.seconds(320, 16) == 20, "the pod has no more"
    assert pods.seconds_up(320, 80) == 10, "eight parts of one object, of which four streams carry a part at once"
    assert replace(pods, parts=1).seconds_up(320, 80) == 10, "one stream for 80, the others for 240"
    assert replace(pods, parts=1).seconds_up(320, 160) == 20, "one stream for half of all"
    assert replace(pods, objects=2.0).seconds(320, 16) == 20 + 32 / 2


def test_a_task_is_download_compute_and_upload() -> None:
    tasks = {task.name: task for task in scale.pipeline(CORPUS, RATES, MACHINES)}
    render = tasks["render-shard 01"]
    assert (render.download, render.compute) == (1000 / 100, 500 / (10 * 4) + 1)
    assert render.upload == (1500 + 320) / 50
    assert tasks["convert-shard 00"].compute == 40 / 4
    assert tasks["validate-shard 01"].compute == 500 / 20 + 500 / (40 * 4) + 4, "all cores compare rows"
    assert {name.split()[0] for name, task in tasks.items() if task.cores > 1} == {"render-shard", "validate-shard"}
    assert tasks["assemble-validation"].compute == 80 / 8
    assert tasks["write-indexed 01"].after == ("render-shard 01",), "no shard waits for another"
    assert render.after == ("assemble-source", "verify-tokenizer")
    half = {task.name: task for task in scale.pipeline(CORPUS, RATES, replace(MACHINES, efficiency=0.5))}
    assert half["render-shard 01"].compute == 500 / (10 * 2.5) + 1


def test_what_happens_beside_computing_lasts_as_long_as_the_longer_of_both() -> None:
    parts = {"download": 5.0, "compute": 3.0, "upload": 1.0}
    assert scale.Task(name="a", **parts).seconds == 9
    assert scale.Task(name="a", **parts, beside="download").seconds == 6
    assert scale.Task(name="a", **parts, beside="upload").seconds == 8
    tasks = {task.name: task for task in scale.pipeline(CORPUS, RATES, MACHINES)}
    render, write = tasks["render-shard 01"], tasks["write-indexed 01"]
    assert render.seconds == pytest.approx(render.download + max(render.compute, render.upload))
    assert write.seconds == pytest.approx(max(write.download, write.compute) + write.upload)


def test_rendering_audits_one_row_in_a_thousand() -> None:
    found = scale.volumes(CORPUS, RATES)
    audited = scale.core_seconds(CORPUS, replace(RATES, audit_seconds=50.0), found)
    assert audited["render-shard"] == pytest.approx(1000 / 10 + 80 / 1000 * 50)


def test_a_core_twice_as_fast_halves_what_is_measured_and_keeps_what_is_assumed() -> None:
    found = scale.volumes(CORPUS, RATES)
    audited = replace(RATES, audit_seconds=50.0)
    before = scale.core_seconds(CORPUS, audited, found)
    after = scale.core_seconds(CORPUS, audited.on_core(2 * RATES.plain_tokens), found)
    for step in ("convert-shard", "render-shard", "write-indexed", "validate-shard"):
        assert after[step] == pytest.approx(before[step] / 2)
    for step in ("assemble-split", "assemble-validation"):
        assert after[step] == before[step]


def test_the_simulation_keeps_the_order_and_the_number_of_pods() -> None:
    tasks = [
        scale.Task(name="first", compute=1),
        scale.Task(name="a", after=("first",), compute=5),
        scale.Task(name="b", after=("first",), compute=3),
        scale.Task(name="c", after=("first",), compute=4),
        scale.Task(name="last", after=("a", "b", "c"), compute=2),
    ]
    two = scale.simulate(tasks, MACHINES, random.Random(0))
    assert two == {"first": 1, "b": 4, "a": 6, "c": 8, "last": 10}  # c waits for the pod that b leaves
    assert scale.simulate(tasks, replace(MACHINES, pods=3), random.Random(0))["last"] == 8
    assert scale.simulate(tasks, replace(MACHINES, pods=1), random.Random(0))["last"] == 15
    late = scale.simulate(tasks, replace(MACHINES, start=10.0), random.Random(0))
    assert late["last"] == 10 + 4 * 10, "four pods one after the other on the longest way"


def test_stragglers_cost_time_and_are_the_same_on_every_call() -> None:
    tasks = scale.pipeline(CORPUS, RATES, MACHINES)
    calm = max(scale.simulate(tasks, MACHINES, random.Random(0)).values())
    spread = replace(MACHINES, spread=0.5)
    middle, late = scale.makespans(tasks, spread, 200)
    assert middle < late
    assert late > calm, "the slowest of two shards is waited for"
    assert scale.makespans(tasks, spread, 200) == (middle, late)


def test_tasks_that_wait_for_one_another_are_refused() -> None:
    with pytest.raises(ValueError, match="wait for one another"):
        scale.simulate([scale.Task(name="a", after=("a",))], MACHINES, random.Random(0))


def test_a_task_without_a_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="no duration"):
        scale.simulate([scale.Task(name="a", compute=float("nan"))], MACHINES, random.Random(0))


def test_nothing_ends_before_what_it_waits_for() -> None:
    tasks = scale.pipeline(CORPUS, RATES, replace(MACHINES, spread=0.4))
    ended = scale.simulate(tasks, MACHINES, random.Random(1))
    assert all(ended[task.name] >= ended[before] + task.seconds for task in tasks for before in task.after)


def test_scratch_of_a_renderer_and_a_writer_has_their_packs_and_not_the_whole_rendered_shard() -> None:
    found = {**scale.volumes(CORPUS, RATES), "input": 2e9, "rendered": 4e9}
    disk = scale.scratch(CORPUS, found)
    assert disk["render-shard"] == (2e9 + 640) / 2 + 3 * (256 << 20)
    assert disk["write-indexed"] == scale.dataset_bytes(found) / 2 + 2 * (256 << 20)
    few = scale.scratch(CORPUS, {**found, "rendered": 1000})
    assert few["render-shard"] == (2e9 + 640) / 2 + 500, "a shard that fits one pack"


def test_the_bars_of_the_project() -> None:
    """Raw SYNTH within 45 minutes on 16 pods of 8 cores, ten times SYNTH within an hour on 256.

    The bars were set for cores on which the plain route makes 480,000 tokens a second.
    """
    results = json.loads((ROOT / "docs/performance.json").read_bytes())
    rates = scale.measured(results, split_rows=2e6, join_rows=2e6).on_core(480_000)
    given = {"cores": 8, "download": 200e6, "upload": 200e6, "start": 60, "efficiency": 0.9, "spread": 0.3}
    line = {"stream": 80e6, "objects": 20, "object_bytes": 256e6}
    synth = scale.Corpus(rows=79.6e6, tokens=75e9, shards=16)
    for corpus, pods, minutes in ((synth, 16, 45), (synth.times(10, shards=256), 256, 60)):
        machines = scale.Machines(pods=pods, **given, **line)
        _, late = scale.makespans(scale.pipeline(corpus, rates, machines), machines, 40)
        assert late <= minutes * 60, "19 of 20 runs"


def test_the_page_holds_the_tables_of_these_formulas() -> None:
    """Written by `python -m tools.bench.scale --page docs/deployment/scale.md`."""
    page = (ROOT / "docs/deployment/scale.md").read_text()
    assert fill(page, tables(arguments([]))) == page
