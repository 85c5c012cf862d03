"""A driver for the tests of this folder, and scenarios set up once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.requirements import SUPERVISION, absent
from support.stores.gcs import CloudStorage
from tools.chaos import supervisor
from tools.chaos.driver import Driver
from tools.chaos.enumeration import Prepared, prepare
from tools.chaos.scenarios import scenarios


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory, asset: Path) -> Iterator[Driver]:
    """Runs commands under supervision; the folder is whatever the last test left."""
    if why := supervisor.supported():
        absent(SUPERVISION, why)
    folder = tmp_path_factory.mktemp("chaos")
    with Driver(folder / "base", log=folder / "log.txt", asset=asset) as driver:
        yield driver


@pytest.fixture(scope="session")
def prepared(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Prepared]]:
    """Scenarios by name, each set up when it is first asked for."""
    store = CloudStorage()
    by_name = {scenario.name: scenario for scenario in scenarios(store)}
    ready: dict[str, Prepared] = {}
    templates = tmp_path_factory.mktemp("templates")

    def get(name: str) -> Prepared:
        if name not in ready:
            ready[name] = prepare(by_name[name], driver, templates)
        return ready[name]

    yield get
    store.close()
