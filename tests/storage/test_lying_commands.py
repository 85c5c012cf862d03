"""Commands over a store that lies: exit code 1 and an error in words, nothing that looks finished; and when the store
tells the truth again, the same command finishes with the same bytes."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from conftest import Cli
from spanloom.storage.staging import list_objects, read_object
from support import sources
from support.nightly import nightly, on_one_store
from support.object_stores import Place
from support.remote_datasets import Built, build, publish
from support.stores import lies
from support.stores.lies import page, status
from support.stores.proxy import Answer, Fault, Lie, Proxy, when

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Built:
    """Two shards: what a command does with a file does not depend on how many there are."""
    return build(tmp_path_factory.mktemp("built"), cli, "--valid-fraction", 0.1, "--shards", 2, rows=(30, 20))


@pytest.fixture
def proxy(place: Place) -> Iterator[Proxy]:
    """Before the store for commands alone; this process goes to the store itself."""
    proxy = Proxy(place.address)
    yield proxy
    proxy.close()


Run = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def run(cli: Cli, place: Place, proxy: Proxy) -> Run:
    return lambda *arguments, deadline="20": cli(
        *arguments, **{**place.through(proxy.address), "SPANLOOM_STORAGE_DEADLINE": deadline, "COLUMNS": "1000"}
    )


def fails(run: Run, command: tuple[object, ...], expected: str) -> None:
    """What must end at the deadline has a short one; what must end before has a long one."""
    given_up = "no usable answer" in expected
    done = run(*command, deadline="1" if given_up else "20")
    assert done.returncode == (75 if given_up else 1), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    said = " ".join(done.stderr.split())
    assert expected in said, done.stderr
    assert "where:" in said
    assert "remedy:" in said


def by_day(lies_by_name: Iterable[str], *names: str) -> list[Any]:
    """Each lie with each store; `make test` takes those named, with one store each. Other tests of lies have all."""
    return [each if each.values[1] in names else nightly(*each.values) for each in on_one_store(lies_by_name)]


FETCH: dict[str, tuple[str, Lie, str]] = {
    "a byte changed": ("read", Fault.CHANGED_ANSWER, "3 downloads were damaged"),
    "HTML": ("read", page(), "no usable answer"),
    "another range": ("read", lies.another_range, "no usable answer"),
    "a byte now and then": ("read", Fault.SLOW_ANSWER, "no usable answer"),
    "412": ("read", status(412), "replaced or removed while it was being downloaded"),
    "no answer": ("describe", Fault.HOLD, "no usable answer"),
    "nothing said of the object": ("describe", Answer(data=b"{}"), "no usable answer"),
}


@pytest.mark.parametrize(("place", "name"), by_day(FETCH, "a byte changed", "HTML", "no answer"), indirect=["place"])
def test_fetch(tmp_path: Path, place: Place, proxy: Proxy, run: Run, built: Built, name: str) -> None:
    publish(built, place.uri, tmp_path)
    does, lie, expected = FETCH[name]
    proxy.fault = when(does, lie)
    fails(run, ("fetch", place.uri, tmp_path / "dir"), expected)
    assert not (tmp_path / "dir").exists()

    manifest_first = iter(range(1000))  # the manifest comes, the data does not
    proxy.fault = lambda request: lie if request.does == does and next(manifest_first) > 0 else None
    fails(run, ("fetch", place.uri, tmp_path / "dir"), expected)
    assert not (tmp_path / "dir" / "manifest.json").exists()

    proxy.fault = lambda _request: None
    done = run("fetch", place.uri, tmp_path / "dir")
    assert done.returncode == 0, done.stderr
    assert sources.data_files(tmp_path / "dir") == built.files()


WRITE: dict[str, tuple[str, Lie, str]] = {
    "HTML": ("send", page(), "no usable answer"),
    "no answer": ("send", Fault.HOLD, "no usable answer"),
    "dropped": ("send", Fault.DROP, "no usable answer"),
    "412": ("send", status(412), "the claim was written, but does not exist"),
    "403": ("send", page(403), "no permission"),
    "answers lost": ("send", Fault.LOST_ANSWER, "no usable answer"),
}


@pytest.mark.parametrize(("place", "name"), by_day(WRITE, "HTML", "412", "answers lost"), indirect=["place"])
def test_write_indexed(place: Place, proxy: Proxy, run: Run, built: Built, name: str) -> None:
    root, inventory = place.uri / "root", place.uri / "inventory_00.json"
    step = ("step", "write-indexed", *built.inputs(0), "--root", root, "--inventory", inventory)
    does, lie, expected = WRITE[name]
    proxy.fault = when(does, lie)
    fails(run, step, expected)
    assert read_object(inventory) is None

    claim_first = iter(range(1000))
    proxy.fault = lambda request: lie if request.does == does and next(claim_first) > 0 else None
    fails(run, step, "was there and is gone again" if name == "412" else expected)
    assert read_object(inventory) is None

    proxy.fault = lambda _request: None
    done = run(*step)
    assert done.returncode == 0, done.stderr
    assert read_object(inventory) is not None
    there = {entry.uri.key.removeprefix(f"{root.key}/"): entry.uri for entry in list_objects(root)}
    assert {name: read_object(uri) for name, uri in there.items() if "/" in name} == built.files(0)
