"""Builds that `mutants.builders` makes wrong: validation with the source, without rendering a row again, calls them
clean as the code is. Whether it finds the faults is what `make mutants` tells."""

import json
from pathlib import Path

import pytest

import spanloom
from spanloom.families.traces.export.lines import ExportOptions, export_lines
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.findings import FindingsError
from support.bytes_of_builds import FAMILIES, Workshop
from tools.mutants.builders import BUILDERS, TEST

WITHOUT_RENDERING = {"synth_kd", "harmony_chat", "model_chat", "packed_chat"}
"""Families whose builds render a sample again by default."""

BUILDS = sorted({test.removeprefix(f"{TEST}[").removesuffix("]") for fault in BUILDERS for test in fault.tests})


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_is_called_clean(name: str, tmp_path: Path) -> None:
    family, build = name.split("/")
    more: dict[str, object] = {"deep": 0} if family in WITHOUT_RENDERING else {}
    if family in ("synth_kd", "harmony_chat"):
        more["audit_fraction"] = 0.0  # the build's own second renderer would stop it
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
        source = _source(workshop, family, build, tmp_path)
        assert spanloom.validate(root, source=source or (), deep=0, reader="independent").clean


def _source(workshop: Workshop, family: str, build: str, folder: Path) -> Path | None:
    """The source of a family whose build does not compare with it; the other builds do."""
    if family == "tool_calls":
        return workshop.samples
    if family != "reasoning_traces":
        return None
    options = FAMILIES[family][build]
    listed = json.loads((workshop.traces / f"datasets/{options.get('key', 'clean-1')}/manifest.json").read_bytes())
    source = folder / "export.jsonl"
    store = open_store(default_url(workshop.traces))
    with store.snapshot() as snapshot:
        lines = export_lines(snapshot, listed["trace_ids"], options["form"], ExportOptions())
        source.write_bytes(b"".join(lines))
    store.close()
    return source


def test_each_build_is_one_that_is_frozen() -> None:
    assert {tuple(name.split("/")) for name in BUILDS} <= {
        (family, name) for family, builds in FAMILIES.items() for name in builds
    }
