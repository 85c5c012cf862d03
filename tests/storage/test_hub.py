"""`hf://`: places of the Hugging Face Hub, through the real huggingface_hub, against a server of ours.

The real Hub is not reached by any test; the server speaks its HTTP API as huggingface_hub uses it.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spanloom
from conftest import REPOSITORY, Cli
from support import warm
from support.stores.hub import Hub, Repository, serving_hub

FROZEN = REPOSITORY / "tests/frozen"
NAME = "team/chats"
RECORDS = [
    {"messages": [{"role": "user", "content": f"Question {number}?"}, {"role": "assistant", "content": "Yes."}]}
    for number in range(5)
]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving_hub() as serving:
        yield serving


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def lines(records: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def parquet(records: list[dict[str, object]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(records), sink)
    return bytes(sink.getvalue())


def folder(path: Path, below: str = "") -> dict[str, bytes]:
    """The files of a folder as a commit has them."""
    return {
        f"{below}{each.relative_to(path).as_posix()}": each.read_bytes() for each in path.rglob("*") if each.is_file()
    }


def test_convert_reads_one_commit_of_a_revision_and_records_it(hub: Hub, cli: Cli, tmp_path: Path) -> None:
    repository = hub.repositories[NAME] = Repository()
    old = repository.commit({"data/a.jsonl": lines(RECORDS[:2]), "data/b.parquet": parquet(RECORDS[2:4])})
    repository.commit({"data/a.jsonl": lines(RECORDS[4:])})
    done = cli(
        *("convert", f"hf://datasets/{NAME}@{old}/data", "--out", tmp_path / "old", "--yes", "-q"),
        **hub.environment(token=False),
    )
    assert done.returncode == 0, done.stderr
    conversion = json.loads((tmp_path / "old/manifest.json").read_bytes())["conversion"]
    assert conversion["rows_written"] == 4
    assert conversion["places"] == [f"hf://datasets/{NAME}@{old}/data"]
    done = cli(
        *("convert", f"hf://datasets/{NAME}/data/a.jsonl", "--out", tmp_path / "new", "--yes", "-q"),
        **hub.environment(token=False),
    )
    assert done.returncode == 0, done.stderr
    conversion = json.loads((tmp_path / "new/manifest.json").read_bytes())["conversion"]
    assert conversion["rows_written"] == 1
    assert conversion["places"] == [f"hf://datasets/{NAME}@{repository.branches['main']}/data/a.jsonl"]


def test_convert_synth_records_the_commit(hub: Hub, cli: Cli, tmp_path: Path) -> None:
    done = cli("sample", "--out", tmp_path / "raw")
    assert done.returncode == 0, done.stderr
    repository = hub.repositories[NAME] = Repository()
    commit = repository.commit(folder(tmp_path / "raw", "synth/"))
    done = cli(
        *("convert-synth", "--raw", f"hf://datasets/{NAME}/synth", "--out", tmp_path / "out", "-q"),
        **hub.environment(token=False),
    )
    assert done.returncode == 0, done.stderr
    done = cli("convert-synth", "--raw", tmp_path / "raw", "--out", tmp_path / "local", "-q")
    assert done.returncode == 0, done.stderr
    manifests = [json.loads((tmp_path / name / "manifest.json").read_bytes()) for name in ("out", "local")]
    assert manifests[0]["conversion"].pop("places") == [f"hf://datasets/{NAME}@{commit}/synth"]
    assert manifests[0]["storage"] == manifests[1]["storage"]
    inventories = [str(tmp_path / "work" / f"{shard}.json") for shard in range(4)]
    for shard, inventory in enumerate(inventories):
        done = cli(
            *("step", "convert-shard", "--raw", f"hf://datasets/{NAME}/synth", "--shard", shard, "--shards", 4),
            *("--out", tmp_path / "sharded", "--inventory", inventory),
            **hub.environment(token=False),
        )
        assert done.returncode == 0, done.stderr
    given = [part for inventory in inventories for part in ("--inventory", inventory)]
    assert cli("step", "assemble-source", *given, "--out", tmp_path / "sharded").returncode == 0
    conversion = json.loads((tmp_path / "sharded/manifest.json").read_bytes())["conversion"]
    assert conversion["places"] == [f"hf://datasets/{NAME}@{commit}/synth"]
    changed = json.loads(Path(inventories[2]).read_bytes()) | {"place": f"hf://datasets/{NAME}@{'0' * 40}/synth"}
    Path(inventories[2]).write_text(json.dumps(changed))
    done = cli("step", "assemble-source", *given, "--out", tmp_path / "sharded")
    assert (done.returncode, "place is not that of the first" in done.stderr) == (1, True), done.stderr
    done = cli("build", "--source", tmp_path / "out", "--out", tmp_path / "root", "--allow-unknown-sha", "-q")
    assert done.returncode == 0, done.stderr


def test_the_same_files_give_the_same_source_as_a_local_folder(hub: Hub, cli: Cli, tmp_path: Path) -> None:
    files = {"a.jsonl": lines(RECORDS[:3]), "b.parquet": parquet(RECORDS[3:])}
    (tmp_path / "in").mkdir()
    for name, data in files.items():
        (tmp_path / "in" / name).write_bytes(data)
    hub.repositories[NAME] = Repository()
    hub.repositories[NAME].commit(files)
    for place, out in ((f"hf://datasets/{NAME}", "remote"), (tmp_path / "in", "local")):
        done = cli("convert", place, "--out", tmp_path / out, "--yes", "-q", **hub.environment())
        assert done.returncode == 0, done.stderr
    shards = [(tmp_path / out / "conversations_shard_00.parquet").read_bytes() for out in ("remote", "local")]
    assert shards[0] == shards[1]


def test_a_private_dataset_needs_the_token_and_the_error_says_so(hub: Hub, cli: Cli, tmp_path: Path) -> None:
    hub.repositories[NAME] = Repository(private=True)
    hub.repositories[NAME].commit({"a.jsonl": lines(RECORDS)})
    command = ("convert", f"hf://datasets/{NAME}/a.jsonl", "--out", tmp_path / "out", "--yes", "-q")
    done = cli(*command, **hub.environment(token=False))
    assert done.returncode == 1
    assert "the Hub has no such dataset, or it is private" in done.stderr
    assert "HF_TOKEN" in done.stderr
    assert cli(*command, **hub.environment()).returncode == 0


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (f"hf://datasets/{NAME}@nowhere/a.jsonl", "the dataset has no such revision"),
        (f"hf://datasets/{NAME}/b.jsonl", "there is no"),
        ("hf://datasets/team/other/a.jsonl", "the Hub has no such dataset, or it is private"),
        ("hf://chats/a.jsonl", "hf://datasets/OWNER/NAME/path"),
    ],
)
def test_what_is_not_there_is_named(hub: Hub, cli: Cli, tmp_path: Path, place: str, said: str) -> None:
    hub.repositories[NAME] = Repository()
    hub.repositories[NAME].commit({"a.jsonl": lines(RECORDS)})
    done = cli("convert", place, "--out", tmp_path / "out", "--yes", "-q", **hub.environment())
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_gated_dataset_is_named_and_the_switch_for_no_network(hub: Hub, cli: Cli, tmp_path: Path) -> None:
    hub.repositories[NAME] = Repository(gated=True)
    hub.repositories[NAME].commit({"a.jsonl": lines(RECORDS)})
    command = ("convert", f"hf://datasets/{NAME}/a.jsonl", "--out", tmp_path / "out", "--yes", "-q")
    done = cli(*command, **hub.environment())
    assert (done.returncode, "the dataset is gated" in done.stderr) == (1, True), done.stderr
    done = cli(*command, **{**hub.environment(), "HF_HUB_OFFLINE": "1"})
    assert (done.returncode, "HF_HUB_OFFLINE is set" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("name", ["a.jsonl", "b.parquet"])
def test_damage_on_the_way_is_found_and_downloaded_again(hub: Hub, cli: Cli, tmp_path: Path, name: str) -> None:
    """A small file is held against its git id, a large one against the sha256 of its LFS object."""
    hub.repositories[NAME] = Repository()
    files = {"a.jsonl": lines(RECORDS), "b.parquet": parquet(RECORDS)}
    hub.repositories[NAME].commit(files)
    command = ("convert", f"hf://datasets/{NAME}/{name}", "--out", tmp_path / "out", "--yes", "-q")
    first = cli(*command, **hub.environment())
    assert first.returncode == 0, first.stderr
    address = name if name == "a.jsonl" else f"/objects/{next(iter(hub.objects))}"
    shutil.rmtree(tmp_path / "out")
    hub.damage, hub.failing = {address: 1}, 2
    assert cli(*command, **hub.environment()).returncode == 0
    assert hub.damage == {address: 0}
    shutil.rmtree(tmp_path / "out")
    hub.damage = {address: 99}
    done = cli(*command, **hub.environment())
    assert done.returncode == 1
    assert "downloads were damaged on the way" in done.stderr or "has sha256" in done.stderr


def test_a_dataset_on_the_hub_is_validated_inspected_and_opened(
    hub: Hub, cli: Cli, cache: dict[str, str], tmp_path: Path
) -> None:
    hub.repositories[NAME] = Repository()
    sha = hub.repositories[NAME].commit(folder(FROZEN / "synth_kd", "kd/"))
    place, environment = f"hf://datasets/{NAME}/kd", {**hub.environment(), **cache}
    done = cli("validate", place, "-q", "--deep", "0", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = cli("inspect", place, "train/0/0", "--json", **environment)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == json.loads(cli("inspect", FROZEN / "synth_kd", "train/0/0", "--json").stdout)
    copy = tmp_path / "cache/spanloom/hub/team/chats" / sha / "kd"
    assert folder(copy) == folder(FROZEN / "synth_kd")
    downloads = [line for line in hub.asked if "/resolve/" in line]
    script = f"import spanloom; print(spanloom.open_dataset({place!r}, split='train')[0].tokens[:3].tolist())"
    opened = warm.run_code(script, **environment)
    first = spanloom.open_dataset(FROZEN / "synth_kd", split="train")[0]
    assert opened.stdout.strip() == str(first.tokens[:3].tolist())
    again = cli("stats", place, "--json", **environment)
    assert again.returncode == 0, again.stderr
    assert [line for line in hub.asked if "/resolve/" in line] == downloads


def test_a_source_on_the_hub_is_built_and_the_manifest_names_the_commit(hub: Hub, cli: Cli, tmp_path: Path) -> None:
    hub.repositories[NAME] = Repository()
    sha = hub.repositories[NAME].commit(folder(FROZEN / "synth_harmony"))
    done = cli(
        *("build", "--source", f"hf://datasets/{NAME}", "--out", tmp_path / "kd", "--deep", "0", "--workers", "1"),
        *("--shards", "2", "--max-rows", "4", "-q", "--valid-fraction", "0"),
        **hub.environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"hf://datasets/{NAME}@{sha}" in (tmp_path / "kd/manifest.json").read_text()


def test_nothing_is_written_to_the_hub_by_out(hub: Hub, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(RECORDS))
    done = cli(
        "convert", tmp_path / "a.jsonl", "--out", f"hf://datasets/{NAME}/out", "--yes", "-q", **hub.environment()
    )
    assert done.returncode == 2
    assert "hf:// is only read" in done.stderr
    assert hub.asked == []


def test_an_export_is_pushed_with_its_card_and_read_back(
    hub: Hub, cli: Cli, cache: dict[str, str], tmp_path: Path
) -> None:
    command = ("export", FROZEN / "synth_kd", "--to", "trl", "--out", tmp_path / "trl", "--push", NAME, "--json", "-q")
    done = cli(*command, **hub.environment())
    assert done.returncode == 0, done.stderr
    repository = hub.repositories[NAME]
    assert repository.private
    pushed = repository.commits[repository.branches["main"]]
    made = {name: data for name, data in folder(tmp_path / "trl").items() if not name.startswith(".")}
    assert {name: data for name, data in pushed.items() if not name.startswith(".")} == made
    assert "README.md" in made
    assert any(name.endswith(".parquet") for name in made)
    assert json.loads(done.stdout)["pushed"].endswith(repository.branches["main"])
    assert cli(*command, **hub.environment()).returncode == 0
    read = cli("audit", f"hf://datasets/{NAME}", "--model", tmp_path / "none", **hub.environment(), **cache)
    copy = tmp_path / "cache/spanloom/hub" / NAME / repository.branches["main"]
    assert read.returncode == 1, "there is no such model"
    assert {name: data for name, data in folder(copy).items() if not name.startswith(".")} == made


def test_a_push_without_a_token_says_what_to_do_and_the_export_stays(hub: Hub, cli: Cli, tmp_path: Path) -> None:
    done = cli(
        *("export", FROZEN / "synth_kd", "--out", tmp_path / "out", "--push", NAME, "-q"),
        **hub.environment(token=False),
    )
    assert done.returncode == 1
    assert "HF_TOKEN" in done.stderr
    assert (tmp_path / "out/export.json").is_file()
    assert hub.repositories == {}
