"""Publishing and fetching as the containers do it, each command a process: killed and run again, two at once, through a
store that fails, into a store that refuses."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Cli
from spanloom.storage.staging import list_objects, read_object, stage_folder
from spanloom.storage.uri import Uri
from support import warm
from support.folders import files_of
from support.nightly import nightly
from support.object_stores import BUCKET, Place
from support.remote_datasets import Built, build, publish
from support.stores.gcs import CloudStorage
from support.stores.proxy import Fault, Proxy, Request, every

pytestmark = pytest.mark.slow

PATIENCE = 60.0
"""Seconds to wait for what must come at once; reached only when a test fails."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Built:
    return build(tmp_path_factory.mktemp("built"), cli, "--valid-fraction", 0.1)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Built:
    """A build of the same source with another split."""
    return build(tmp_path_factory.mktemp("other"), cli, "--valid-fraction", 0.5)


@pytest.fixture
def proxy(place: Place) -> Iterator[Proxy]:
    proxy = Proxy(place.address)
    yield proxy
    proxy.close()


def started(*arguments: object, **environment: str) -> warm.Piped:
    return warm.piped("spanloom", *arguments, env={**os.environ, **environment})


def below(uri: Uri, tmp_path: Path) -> dict[str, bytes]:
    """What lies below a URI, claim and manifests aside."""
    there = stage_folder(uri, tmp_path)
    files = files_of(there)
    return {name: data for name, data in files.items() if "/" in name}


def test_a_step_killed_during_its_upload_is_run_again(tmp_path: Path, place: Place, proxy: Proxy, built: Built) -> None:
    root, inventory = place.uri / "root", place.uri / "inventory_00.json"
    step = ("step", "write-indexed", *built.inputs(0), "--root", root, "--inventory", inventory)
    uploads: list[Request] = []
    of_claim = 1 + {"gs": 2, "s3": 3}[place.uri.scheme]  # the claim and its probe

    def hold_the_third_file(request: Request) -> Fault | None:
        if request.method in ("PUT", "POST") and request.bytes:
            uploads.append(request)
        return Fault.HOLD if len(uploads) > of_claim + 2 else None

    proxy.fault = hold_the_third_file
    process = started(*step, **place.through(proxy.address))
    assert proxy.held.wait(PATIENCE), process.communicate()
    until = time.monotonic() + PATIENCE
    while not below(root, tmp_path / f"until_{time.monotonic_ns()}"):  # the two before it may still be under way
        assert time.monotonic() < until
    process.send_signal(signal.SIGKILL)
    process.communicate()
    proxy.go_on.set()
    assert 0 < len(below(root, tmp_path / "before")) < len(built.files(0))
    assert read_object(inventory) is None

    again = started(*step, **place.environment)
    _, said = again.communicate()
    assert again.returncode == 0, said
    assert below(root, tmp_path / "after") == built.files(0)
    assert read_object(inventory) is not None


def test_a_fetch_killed_midway_is_run_again(tmp_path: Path, place: Place, proxy: Proxy, built: Built, cli: Cli) -> None:
    publish(built, place.uri, tmp_path)
    downloads: list[Request] = []

    def hold_the_twentieth_file(request: Request) -> Fault | None:
        """Eight are under way at once: when the twentieth is asked for, at least twelve stand."""
        reads = "alt=media" in request.path if place.uri.scheme == "gs" else request.method == "GET"
        if reads and "shard_" in request.path:
            downloads.append(request)
        return Fault.HOLD if len(downloads) >= 20 else None

    proxy.fault = hold_the_twentieth_file
    process = started("fetch", place.uri, tmp_path / "dir", **place.through(proxy.address))
    assert proxy.held.wait(PATIENCE), process.communicate()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    proxy.go_on.set()
    assert not (tmp_path / "dir" / "manifest.json").exists()

    done = cli("fetch", place.uri, tmp_path / "dir", **place.environment)
    assert done.returncode == 0, done.stderr
    assert int(re.search(r", (\d+) kept", done.stdout)[1]) >= 12  # type: ignore[index]
    here = {path.relative_to(tmp_path / "dir").as_posix() for path in (tmp_path / "dir").rglob("*") if path.is_file()}
    assert here == {*built.files(), "manifest.json"}
    done = cli("validate", tmp_path / "dir", "--source", built.source)
    assert done.returncode == 0, done.stderr


def test_of_two_builds_into_one_root_one_wins_and_the_other_says_who(
    tmp_path: Path, place: Place, built: Built, other: Built
) -> None:
    builds = {"alice": built, "bob": other}
    root = place.uri / "root"
    processes = {
        (who, shard): started(
            *("step", "write-indexed", *which.inputs(shard), "--root", root),
            *("--inventory", place.uri / f"{who}_{shard}.json"),
            LOGNAME=who,
            **place.environment,
        )
        for shard in (0, 1)
        for who, which in builds.items()
    }
    ends = {key: (process.communicate()[1], process.returncode) for key, process in processes.items()}
    winners = {who for (who, _), (_, code) in ends.items() if code == 0}
    assert len(winners) == 1, ends
    (winner,) = winners
    (loser,) = set(builds) - winners
    for shard in (0, 1):
        assert ends[winner, shard][1] == 0, ends
        said, code = ends[loser, shard]
        assert code == 1
        assert f"the dataset root belongs to another build, begun by {winner}@" in said
        assert "with git SHA" in said
        assert "config, split are not the same" in said
        assert read_object(place.uri / f"{loser}_{shard}.json") is None
    files = builds[winner].files()
    assert below(root, tmp_path) == {
        name: data for name, data in files.items() if "shard_00" in name or "shard_01" in name
    }


@pytest.mark.parametrize("place", ["gs", nightly("s3")], indirect=True)
def test_the_steps_that_publish_pass_through_a_store_that_fails(
    tmp_path: Path, place: Place, proxy: Proxy, built: Built, cli: Cli
) -> None:
    """Every fourth request fails in one way or another; the dataset and its content are those of a calm day."""
    faults = (Fault.UNAVAILABLE, Fault.HALF_REQUEST, Fault.LOST_ANSWER, Fault.HALF_ANSWER)
    proxy.fault = every(4, *faults)
    environment = place.through(proxy.address)
    root = place.uri / "root"

    def step(*arguments: object) -> None:
        done = cli(*arguments, **environment)
        assert done.returncode == 0, done.stderr

    inventories = [place.uri / f"inventory_{shard:02d}.json" for shard in range(4)]
    for shard, inventory in enumerate(inventories):
        step("step", "write-indexed", *built.inputs(shard), "--root", root, "--inventory", inventory)
    given = [word for inventory in inventories for word in ("--inventory", inventory)]
    step("step", "assemble-manifest", *given, *built.split, "--root", root)
    step("step", "validate-alignment", "--root", root)
    step("fetch", root, tmp_path / "dir")
    assert set(proxy.faults) == set(faults)
    assert Built(source=built.source, root=tmp_path / "dir").files() == built.files()
    assert Built(source=built.source, root=tmp_path / "dir").content() == built.content()
    assert [entry.uri.name for entry in list_objects(root) if "shard_" not in entry.uri.name] == [
        "README.md",
        "claim.json",
        "manifest.json",
        "report.html",
        "report.json",
    ]


def test_a_bucket_that_is_not_there_and_one_that_is_closed(
    tmp_path: Path, gs_place: Place, cloud_storage: CloudStorage, built: Built, cli: Cli
) -> None:
    inventory = tmp_path / "inventory.json"
    for command in (
        ("fetch", "gs://no-such-bucket/dataset", tmp_path / "dir"),
        ("step", "write-indexed", *built.inputs(0), "--root", "gs://no-such-bucket/root", "--inventory", inventory),
    ):
        done = cli(*command, **gs_place.environment)
        assert done.returncode == 1
        assert "error: the bucket 'no-such-bucket' does not exist" in done.stderr
        assert "where: gs://no-such-bucket/" in done.stderr
        assert "remedy: create the bucket" in done.stderr
        assert "Traceback" not in done.stderr
    cloud_storage.closed.add(BUCKET)
    try:
        done = cli("fetch", gs_place.uri, tmp_path / "dir", **gs_place.environment)
    finally:
        cloud_storage.closed.clear()
    assert done.returncode == 1
    assert "error: no permission: test@example.com does not have storage.objects access" in done.stderr
    assert "roles/storage.objectViewer" in done.stderr
    assert not inventory.exists()


def test_s3_says_that_there_is_no_such_bucket_too(tmp_path: Path, s3_address: str, cli: Cli) -> None:
    environment = {"AWS_ENDPOINT_URL": s3_address, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    done = cli("fetch", "s3://no-such-bucket/dataset", tmp_path / "dir", **environment)
    assert done.returncode == 1
    assert "error: the bucket 'no-such-bucket' does not exist" in done.stderr
    assert "AWS_ENDPOINT_URL" in done.stderr


def test_without_credentials_it_says_how_to_get_some(tmp_path: Path, cli: Cli) -> None:
    nobody = {"NO_GCE_CHECK": "true", "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
    done = cli("fetch", "gs://bucket/dataset", tmp_path / "dir", **nobody)
    assert done.returncode == 1
    assert "error: no Google credentials were found" in done.stderr
    assert "gcloud auth application-default login" in done.stderr
    done = cli("fetch", "s3://bucket/dataset", tmp_path / "dir", **nobody)
    assert done.returncode == 1
    assert "error: no AWS credentials were found" in done.stderr
    assert "AWS_PROFILE" in done.stderr
    assert "Traceback" not in done.stderr
