"""Chart tests need helm: $SPANLOOM_HELM, or `helm` on PATH."""

import pytest

from support.helm_chart import helm_binary
from support.requirements import HELM, absent


@pytest.fixture(scope="session", autouse=True)
def helm() -> str:
    return helm_binary() or absent(HELM)
