"""Chart tests need helm: $SPANLOOM_HELM, or `helm` on PATH."""

import pytest

from support.helm_chart import helm_binary
from support.requirements import HELM, absent


@pytest.fixture(scope="session")
def helm() -> str:
    """The program, for tests that render the chart."""
    return helm_binary() or absent(HELM)
