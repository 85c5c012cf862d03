"""Builds that `mutants.builders` makes wrong: validation with the source, without rendering a row again, calls them
clean as the code is. Whether it finds the faults is what `make mutants` tells."""

from pathlib import Path

import pytest

import spanloom
from mutants.builders import BUILDERS, TEST
from spanloom.findings import FindingsError
from support.bytes_of_builds import FAMILIES, Workshop

WITHOUT_RENDERING = {"synth_kd", "harmony_chat", "model_chat", "packed_chat"}
"""Families whose builds render a sample again by default."""

BUILDS = sorted({test.removeprefix(f"{TEST}[").removesuffix("]") for fault in BUILDERS for test in fault.tests})


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_is_called_clean(name: str, tmp_path: Path) -> None:
    family, build = name.split("/")
    more = {"deep": 0} if family in WITHOUT_RENDERING else {}
    workshop = Workshop(tmp_path)
    try:
        out = workshop.build(family, build, **more)
    except FindingsError:
        raise
    except Exception as fault:
        if not isinstance(fault, AssertionError):
            raise RuntimeError("it was not built, which is no finding of validation") from fault
        raise
    for root in sorted(path.parent for path in out.rglob("manifest.json")):
        assert spanloom.validate(root, reader="independent").clean


def test_each_build_is_one_that_is_frozen() -> None:
    assert {tuple(name.split("/")) for name in BUILDS} <= {
        (family, name) for family, builds in FAMILIES.items() for name in builds
    }
