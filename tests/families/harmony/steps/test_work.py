"""What passes between the steps through a work place: a second try goes on, other options never mix, and clearing takes
what is ours alone."""

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from conftest import Cli
from spanloom.building.parts import work as work_place
from spanloom.building.parts.clear import clear_work
from spanloom.building.parts.packs import MOST_PACKS
from spanloom.building.parts.work import Rendered
from spanloom.conversations.source import folder as source_folder
from spanloom.errors import ArtifactError, ConflictError, RejectedRowError, SpanloomError, StorageError
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.steps import assemble_split, render_shard, write_indexed
from spanloom.report.progress import Mode, Progress
from spanloom.storage.publishing import publish_file, publish_folder
from spanloom.storage.staging import list_objects
from spanloom.storage.uri import is_uri, parse_uri
from support import sources
from support.nightly import nightly
from support.object_stores import Contents, Place
from support.remote_datasets import Built, build
from support.stores.proxy import Proxy, without_condition

ROWS = 10
PARTS = 5


class InThisProcess:
    """Renders where it is: a process that starts for each shard takes seconds, and says nothing of the work place."""

    workers = 1

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def result(self, future: Any, _what: str) -> Any:
        return future


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row group is a part, and each part a pack."""
    monkeypatch.setattr(source_folder, "ROWS_PER_PART", 1)
    monkeypatch.setattr(render_shard, "pack_bytes", lambda _source: 1)
    monkeypatch.setattr("spanloom.building.shards.files.process_pool", lambda *_, **__: nullcontext(InThisProcess()))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = [sources.rows(ROWS, prefix=f"s{shard}") for shard in range(2)]
    return sources.write_source(tmp_path / "source", rows, row_group_size=ROWS // PARTS)


def render(source: Path, out: Path, *, shard: int = 0, place: str | None = None, **options: Any) -> Path:
    """Renders a shard to a work place; returns its manifest."""
    manifest = out / f"rendered_{shard}.json"
    render_shard.run(
        source=str(source),
        shard=shard,
        rendered=str(manifest),
        work=place or str(out / "work"),
        progress=Progress(mode=Mode.SILENT),
        rendering=render_shard.Rendering(shards=2, workers=1, **options),
    )
    return manifest


def tree(place: str | Path) -> dict[str, int]:
    """The files at a place, with their sizes."""
    if is_uri(place):
        uri = parse_uri(str(place))
        return {entry.uri.key.removeprefix(f"{uri.key}/"): entry.bytes for entry in list_objects(uri)}
    return {
        path.relative_to(place).as_posix(): path.stat().st_size for path in Path(place).rglob("*") if path.is_file()
    }


def test_the_manifest_names_every_file_with_size_and_hash_and_packs_are_plain_tars(
    source: Path, tmp_path: Path
) -> None:
    manifest = Rendered.read(render(source, tmp_path))
    packs = [f"rendered_{number:05d}.tar" for number in range(PARTS)]
    assert [entry.name for entry in manifest.entries] == [*packs, "ids.parquet", "rendered.json"]
    below = Path(manifest.place).relative_to(tmp_path / "work").as_posix()
    assert tree(tmp_path / "work") == {
        f"{manifest.identity}/work.json": (tmp_path / "work" / manifest.identity / "work.json").stat().st_size,
        **{f"{below}/{entry.name}": entry.bytes for entry in manifest.entries},
    }
    with tarfile.open(f"{manifest.place}/{packs[1]}") as tar:
        assert tar.getnames() == ["rendered/part_00001.json", "rendered/part_00001.parquet", "ids/part_00001.parquet"]
        assert {(member.mtime, member.uid) for member in tar} == {(0, 0)}


def test_the_file_of_ids_has_the_digest_of_each_and_the_split_reads_no_id(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = [render(source, tmp_path, shard=shard) for shard in range(2)]
    ids = pq.read_table(Path(Rendered.read(manifests[0]).place) / "ids.parquet")
    assert ids.column("synth_id").to_pylist() == [f"s0-{number}" for number in range(ROWS)]
    expected = [hashlib.blake2b(f"s0-{number}".encode(), digest_size=8).digest() for number in range(ROWS)]
    assert ids.column("digest").to_pylist() == [int.from_bytes(digest, "big") for digest in expected]

    def no_digest(_ids: list[str]) -> None:
        raise AssertionError("ids were read")

    monkeypatch.setattr("spanloom.building.shards.ids.id_digests", no_digest)
    split = assemble_split.run(
        rendered=list(map(str, manifests)), split=str(tmp_path / "split.json"), valid_fraction=0.5
    )
    names = [f"s{shard}-{number}" for shard in range(2) for number in range(ROWS)]
    assert sum(shard["valid"] for shard in split["shards"]) == sum(
        hashlib.blake2b(name.encode(), digest_size=8).digest()[0] < 128 for name in names
    )


def test_a_manifest_of_as_many_packs_as_there_can_be_is_at_most_64_kib() -> None:
    """Of a shard whose rendered parts have three times the bytes of its source."""
    entries = [
        work_place.Entry(name=f"rendered_{number:05d}.tar", bytes=10**12, sha256="0" * 64)
        for number in range(3 * MOST_PACKS)
    ]
    place = f"s3://{'b' * 63}/{'k' * 900}"
    about = {"family": "synth_kd", "shard": 1000, "shards": 1024, "rows_read": 10**10, "rows": 10**10}
    rendered = Rendered(identity="0" * 32, place=place, given={"source": place}, entries=tuple(entries), **about)
    assert len(rendered.as_json()) <= 64 << 10


class Killed(Exception):
    """A task whose node is gone."""


@pytest.mark.parametrize("published", [nightly(0), 2, nightly(PARTS), PARTS + 1])
@pytest.mark.parametrize("remote", [False, True])
def test_a_second_try_goes_on_after_what_the_first_published(
    source: Path, tmp_path: Path, published: int, remote: bool, ordinary_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before file number `published`: packs, ids, rendered.json. Another machine goes on, in fresh scratch."""
    place = str(ordinary_place.uri / "work") if remote else str(tmp_path / "work")
    whole = Rendered.read(render(source, tmp_path / "whole"))
    transfer, done = work_place.ShardWork._transfer, iter(range(100))

    def killed(self: Any, path: Path, entry: Any) -> None:
        if next(done) == published:
            raise Killed
        transfer(self, path, entry)

    with monkeypatch.context() as patch:
        patch.setattr(work_place.ShardWork, "_transfer", killed)
        with pytest.raises(Killed):
            render(source, tmp_path, place=place)
    assert not (tmp_path / "rendered_0.json").exists()
    assert len(tree(place)) == 1 + published

    restored: list[str] = []
    unpack = work_place.unpack
    monkeypatch.setattr(work_place, "unpack", lambda pack, to: (restored.append(pack.name), unpack(pack, to))[1])
    again = Rendered.read(render(source, tmp_path, place=place))
    assert restored == [f"rendered_{number:05d}.tar" for number in range(min(published, PARTS))]
    assert again.entries == whole.entries
    assert again.identity == whole.identity


def test_a_finished_shard_is_left_alone_and_its_source_is_not_read_again(source: Path, tmp_path: Path) -> None:
    first = render(source, tmp_path).read_bytes()
    (source / sources.shard_name(0)).unlink()
    (tmp_path / "rendered_0.json").unlink()
    assert render(source, tmp_path).read_bytes() == first


def test_rows_that_were_set_aside_are_not_allowed_by_a_later_run_that_allows_fewer(tmp_path: Path) -> None:
    rows = [sources.row("good"), sources.row("bad", messages_json="{not json")]
    source = sources.write_source(tmp_path / "source", [rows, []])
    first = render(source, tmp_path, max_rejects="1").read_bytes()
    (tmp_path / "rendered_0.json").unlink()
    with pytest.raises(RejectedRowError, match="bad"):
        render(source, tmp_path, max_rejects="0")
    assert not (tmp_path / "rendered_0.json").exists()
    assert render(source, tmp_path, max_rejects="50%").read_bytes() == first


def test_a_shard_of_which_a_file_was_removed_is_rendered_again_as_far_as_needed(source: Path, tmp_path: Path) -> None:
    manifest = render(source, tmp_path)
    first, place = manifest.read_bytes(), Path(Rendered.read(manifest).place)
    before = tree(place)
    (place / "rendered_00002.tar").unlink()
    manifest.unlink()
    assert render(source, tmp_path).read_bytes() == first
    assert tree(place) == before


def test_other_options_go_to_another_folder_and_never_mix(source: Path, tmp_path: Path) -> None:
    shards = [render(source, tmp_path, shard=shard) for shard in range(2)]
    other = render(source, tmp_path / "other", shard=1, place=str(tmp_path / "work"), caps=Caps(max_rows_per_shard=3))
    assert len(list((tmp_path / "work").iterdir())) == 2
    for wrong in ([shards[0], other], [shards[1], shards[0]], [shards[0]]):
        with pytest.raises(ArtifactError):
            assemble_split.run(rendered=list(map(str, wrong)), split=str(tmp_path / "split.json"))
    shutil.rmtree(source)
    with pytest.raises(SpanloomError):  # nothing was staged: it is the source that is missed
        render(source, tmp_path)


@pytest.mark.parametrize("remote", [False, True])
def test_another_number_of_shards_at_one_work_place_is_refused_before_a_shard_is_staged(
    source: Path, tmp_path: Path, remote: bool, seaweedfs_place: Place
) -> None:
    place = str(seaweedfs_place.uri / "work") if remote else str(tmp_path / "work")
    render(source, tmp_path, place=place)
    before = tree(place)
    other = sources.write_source(tmp_path / "of_3", [sources.rows(2, prefix=f"s{shard}") for shard in range(3)])
    for shard in range(3):
        (other / sources.shard_name(shard)).unlink()
    manifest = tmp_path / "of_3.json"
    with pytest.raises(ConflictError, match="that of a source with 2 shards, this one has 3"):
        render_shard.run(
            source=str(other),
            shard=0,
            rendered=str(manifest),
            work=place,
            progress=Progress(mode=Mode.SILENT),
            rendering=render_shard.Rendering(shards=3),
        )
    assert tree(place) == before
    assert not manifest.exists()
    render(source, tmp_path, shard=1, place=place)


def test_a_store_that_ignores_the_condition_gets_no_rendered_file(
    source: Path, tmp_path: Path, place: Place, proxy: Proxy, contents: Contents
) -> None:
    proxy.fault = without_condition("send", "finish", "begin")
    with pytest.raises(StorageError, match="it overwrites objects that exist"):
        render(source, tmp_path, place=str(place.uri))
    (name,) = contents.names(place.uri)
    assert name.endswith("/work.json")


def test_a_manifest_of_other_options_in_the_way_is_refused_before_anything_is_rendered(
    source: Path, tmp_path: Path
) -> None:
    render(source, tmp_path)
    before = tree(tmp_path / "work")
    with pytest.raises(ConflictError, match="of another source, or of other options"):
        render(source, tmp_path, caps=Caps(max_rows_per_shard=3))
    assert tree(tmp_path / "work") == before


def damaged(manifest: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(manifest.read_bytes())
    change(value)
    manifest.write_text(json.dumps(value))


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.update(artifact="ids_v1"),
        lambda value: value.pop("identity"),
        lambda value: value["objects"].pop(),
        lambda value: value["objects"][0].update(name="../other.tar"),
        lambda value: value["objects"].append(value["objects"][0]),
        lambda value: value["objects"][0].pop("sha256"),
        lambda value: value.update(objects=7),
    ],
)
def test_a_damaged_manifest_is_refused(
    source: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    manifest = render(source, tmp_path)
    damaged(manifest, change)
    with pytest.raises(ArtifactError):
        assemble_split.run(rendered=[str(manifest)], split=str(tmp_path / "split.json"))


@pytest.mark.parametrize("name", ["rendered_00001.tar", "rendered.json"])
@pytest.mark.parametrize("change", ["removed", "cut", "changed"])
@pytest.mark.parametrize("remote", [False, True])
def test_a_file_that_is_not_the_one_of_the_manifest_is_named_and_no_inventory_is_written(
    source: Path, tmp_path: Path, name: str, change: str, remote: bool, gs_place: Place
) -> None:
    manifest = render(source, tmp_path)
    at = Rendered.read(manifest)
    file, place = Path(at.place) / name, at.place
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    if change != "removed":
        file.write_bytes(data[:-1] if change == "cut" else data)
    if remote:
        publish_folder(Path(at.place), gs_place.uri, last="ids.parquet")
        place = str(gs_place.uri)
        damaged(manifest, lambda value: value.update(uri=place))
    with pytest.raises(SpanloomError, match=f"where: {place}/{name}"):
        write_indexed.run(
            rendered=str(manifest), root=str(tmp_path / "root"), inventory=str(tmp_path / "inventory.json")
        )
    assert not (tmp_path / "inventory.json").exists()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Built:
    return build(tmp_path_factory.mktemp("built"), cli, "--valid-fraction", 0.5, "--shards", 2, rows=(8, 8))


@pytest.mark.parametrize("remote", [False, True])
def test_clear_removes_what_is_ours_and_nothing_else(
    tmp_path: Path, remote: bool, gs_place: Place, built: Built, cli: Cli
) -> None:
    for shard in range(2):
        built.manifest(shard)
    copy = tmp_path / "copy"
    shutil.copytree(built.root.parent / "work", copy)
    (folder,) = copy.iterdir()
    forged = copy / ("0" * 32)
    handed_on = {"artifact": "shard_validation_v3"}
    for name, data in {
        "validate-shard/0/report": json.dumps(handed_on).encode(),
        "validate-shard/0/digests": bytes(8),
        "assemble-split/split": json.dumps({"artifact": "split_v1"}).encode(),
    }.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(data)
    others = [
        copy / "notes.txt",
        copy / "validate-shard/0/html",
        copy / "validate-shard/1/digests",
        copy / "assemble-validation/report",
        copy / "a/b/inventory",
        folder / "notes.txt",
        folder / "shard_00/rendered_1.tar",
        forged / "work.json",
        forged / "shard_00/ids.parquet",
    ]
    for other in others:
        other.parent.mkdir(parents=True, exist_ok=True)
        artifact = b"{}" if "validation" in other.parent.name else (folder / "work.json").read_bytes()
        other.write_bytes(artifact)
    names = sorted(other.relative_to(copy).as_posix() for other in others)
    place = str(gs_place.uri / "work") if remote else str(copy)
    if remote:
        publish_folder(copy, gs_place.uri / "work", last="notes.txt")
        publish_file(copy / "notes.txt", gs_place.uri / "beside")
    before = tree(place)
    said = cli("work", "clear", place, **gs_place.environment)
    assert said.returncode == 0, said.stderr
    assert f"would remove {len(before) - len(names)} files" in said.stdout
    assert folder.name in said.stdout
    assert tree(place) == before
    done = cli("work", "clear", place, "--yes", **gs_place.environment)
    assert done.returncode == 0, done.stderr
    assert f"removed {len(before) - len(names)} files" in done.stdout
    assert [line for line in done.stdout.splitlines() if "stays" in line] == [
        f"{name} stays: it is a result, or not Spanloom's" for name in names
    ]
    assert sorted(tree(place)) == names
    if remote:
        assert tree(gs_place.uri)["beside"] > 0
    with pytest.raises(SpanloomError, match="published nothing at this place"):
        clear_work(place)


def test_clear_refuses_a_dataset(built: Built) -> None:
    before = tree(built.root)
    with pytest.raises(SpanloomError, match="published nothing at this place"):
        clear_work(str(built.root))
    assert tree(built.root) == before
