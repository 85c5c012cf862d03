"""Chart tests need helm: $SPANLOOM_HELM, or `helm` on PATH."""

import os

import pytest

from support.helm_chart import helm_binary


@pytest.fixture(scope="session", autouse=True)
def helm() -> str:
    """SPANLOOM_REQUIRE_HELM=1 turns its absence from a skip into a failure."""
    binary = helm_binary()
    if binary is None:
        if os.environ.get("SPANLOOM_REQUIRE_HELM") == "1":
            pytest.fail("helm is required here, but it is not on PATH: install it, or name it in SPANLOOM_HELM")
        pytest.skip("helm is not on this machine: install it, or name it in SPANLOOM_HELM")
    return binary
