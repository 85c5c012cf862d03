"""The list of faults fits the code as it is now. Whether the tests find them is what `make mutants` tells."""

import ast

import pytest

from tools.mutants.__main__ import FAULTS, judged
from tools.mutants.faults import Fault
from tools.mutants.outcomes import Outcome
from tools.mutants.trial import REPOSITORY, SOURCES, Run, StaleFaultError, check_fits, module_path

PACKAGE = SOURCES / "spanloom"


def test_there_are_at_least_forty_each_with_a_name_of_its_own() -> None:
    assert len(FAULTS) >= 40
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_one_place_of_a_module_that_stays_python(fault: Fault) -> None:
    check_fits(fault)
    assert fault.old != fault.new
    path = SOURCES / module_path(fault.module)
    compile(path.read_text("utf-8").replace(fault.old, fault.new), str(path), "exec")


@pytest.mark.parametrize("test", sorted({test for fault in FAULTS for test in fault.tests}))
def test_a_test_that_is_named_is_there(test: str) -> None:
    name, *steps = test.partition("[")[0].split("::")
    path = REPOSITORY / name
    assert path.exists(), "update tests/tools/mutants/faults.py"
    body: list[ast.stmt] = ast.parse(path.read_text("utf-8")).body if steps else []
    for step in steps:
        matches = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == step]
        assert matches, f"{name} has no {step}: update tests/tools/mutants/faults.py"
        body = matches[0].body


def test_every_package_and_every_family_has_a_fault() -> None:
    folders = [path.parent for pattern in ("*/__init__.py", "families/*/__init__.py") for path in PACKAGE.glob(pattern)]
    packages = {".".join(folder.relative_to(SOURCES).parts) for folder in folders} - {"spanloom.families"}
    assert len(packages) > 10
    assert {name for name in packages if not any(fault.module.startswith(f"{name}.") for fault in FAULTS)} == set()
    assert any(fault.module.count(".") == 1 for fault in FAULTS), "none in a module at the top"


@pytest.mark.parametrize(
    ("module", "old", "why"),
    [
        ("spanloom.split", "no such text", "stands there 0 times, not once\n.*\n.*in: no other module"),
        ("spanloom.split", "import", r"stands there \d+ times, not once"),
        ("spanloom.moved", FAULTS[0].old, f"there is no such module\n.*\n.*in: {FAULTS[0].module}"),
    ],
)
def test_a_fault_that_does_not_fit_any_more_is_named(module: str, old: str, why: str) -> None:
    stale = Fault(name="stale", module=module, old=old, new="", why="", tests=())
    with pytest.raises(
        StaleFaultError, match=f"the fault stale in tests/tools/mutants/faults.py must be updated: {module}: .*{why}"
    ):
        check_fits(stale)


FAILED = {
    "assertion": Outcome(test="t", result="failed", error="AssertionError: 1", counts=True),
    "error that is named": Outcome(test="t", result="failed", raised=("IndexError", "LookupError")),
    "error of another kind": Outcome(test="t", result="failed", raised=("NameError",)),
    "no collection": Outcome(test="t", result="not collected", error="ImportError", counts=True),
    "nothing": Outcome(test="t", result="passed"),
}


@pytest.mark.parametrize(("how", "found"), list(zip(FAILED, (True, True, False, False, False), strict=True)))
def test_a_fault_is_found_by_an_assertion_or_an_error_that_is_named(how: str, found: bool) -> None:
    fault = Fault(name="f", module="m", old="a", new="b", why="", tests=("t",), raises=("LookupError",))
    verdict = judged(fault, Run(outcomes=[FAILED[how]], seconds=1))
    assert (verdict.found_by is not None) is found
    assert bool(verdict.survived) is not found
