"""A build goes on over damaged intermediates to the right dataset, or stops in words; a part drawn by a seed."""

from collections.abc import Iterator

import pytest

from support.stores.gcs import CloudStorage
from tools.chaos.driver import Driver
from tools.chaos.enumeration import Prepared, prepare
from tools.chaos.scenarios import scenarios
from tools.corruption.intermediates import SCENARIO, damages, wrong_after
from tools.corruption.test_corruption import drawn
from tools.corruption.trial import Bench

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def killed_late(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """A build that was killed when all its intermediates stood. `bench` is there where commands can be supervised."""
    folder = tmp_path_factory.mktemp("intermediates")
    store = CloudStorage()
    (scenario,) = (scenario for scenario in scenarios(store) if scenario.name == SCENARIO)
    store.close()
    with Driver(folder / "work", log=folder / "log.txt") as driver:
        yield prepare(scenario, driver, folder)


def test_a_build_goes_on_over_damage_to_the_right_dataset_or_stops_in_words(killed_late: Prepared) -> None:
    tried = {
        f"{kind}: {name}": wrong_after(killed_late, kind, damage) for kind, name, damage in drawn(list(damages()), 3)
    }
    assert [f"{name}: {fault}" for name, fault in tried.items() if fault] == []
