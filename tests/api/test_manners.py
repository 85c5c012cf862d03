"""What a process has for itself is the same before and after each call of the API: environment, signals, warnings, …

Each case is a fresh process that has not imported torch.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from support.chat_models import write_model

COMPARED = '''
import decimal, gc, json, locale, logging, multiprocessing, os, random, signal, socket, sys, threading, warnings
from pathlib import Path

def state():
    """What is a process's own, as text."""
    umask = os.umask(0)
    os.umask(umask)
    seen = {
        "environment": sorted(os.environ.items()),
        "folder": os.getcwd(),
        "umask": umask,
        "signals": {str(number): str(signal.getsignal(number)) for number in signal.valid_signals()},
        "blocked signals": sorted(map(str, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "warnings": [str(entry) for entry in warnings.filters if "torch" not in str(entry)],  # torch adds its own
        "showwarning": str(warnings.showwarning),
        "locale": [locale.setlocale(number) for number in (locale.LC_ALL, locale.LC_CTYPE, locale.LC_NUMERIC)],
        "start method": multiprocessing.get_start_method(allow_none=True),
        "hooks": [str(sys.excepthook), str(sys.unraisablehook), str(threading.excepthook), str(sys.displayhook)],
        "importers": [  # of libraries
            str(finder) for finder in sys.meta_path if "Six" not in str(finder) and "absl" not in str(finder)
        ],
        "path": list(sys.path),
        "streams": [str(sys.stdout), str(sys.stderr), str(sys.stdin)],
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "recursion": sys.getrecursionlimit(),
        "switching": sys.getswitchinterval(),
        "logging": [logging.root.level, list(map(str, logging.root.handlers)), logging.raiseExceptions],
        "decimal": str(decimal.getcontext()),
        "random": hash(random.getstate()),
        "timeout": socket.getdefaulttimeout(),
        "profile": [str(sys.getprofile()), str(sys.gettrace())],
        "limits": [str(__import__("resource").getrlimit(number)) for number in range(10)],
    }
    if "numpy" in sys.modules:
        import numpy
        seen["numpy"] = [numpy.geterr(), numpy.get_printoptions()["precision"], hash(str(numpy.random.get_state()))]
    if "torch" in sys.modules:
        import torch
        seen["torch"] = [
            str(torch.get_default_dtype()), str(torch.get_default_device()), torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(), torch.initial_seed(), torch.compile.__module__,
            torch.distributed.is_initialized(),
        ]
    return json.loads(json.dumps(seen, default=str))

import numpy, rich.style  # these change on import: filters of warnings; a random number is drawn

def compare(name, call):
    before = state()
    done = call()
    after = state()
    changed = {key: [before[key], after[key]] for key in before if before[key] != after[key]}
    assert not changed, (name, changed)
    return done
'''
CALLS = """
import spanloom
compare("import", lambda: [getattr(spanloom, name) for name in spanloom.__all__])
Path("chat.jsonl").write_text("".join(
    json.dumps({"prompt": f"question {n}", "response": f"answer {n}"}) + "\\n" for n in range(30)))
compare("convert", lambda: spanloom.convert("chat.jsonl", "source"))
compare("convert with workers", lambda: spanloom.convert("chat.jsonl", "source2", workers=2))
compare("build", lambda: spanloom.build("source", "root", valid_fraction=0.2))
compare("build for a model", lambda: spanloom.build("source", "of_model", model="model", valid_fraction=0.2))
compare("validate", lambda: spanloom.validate("root"))
compare("validate with the source", lambda: spanloom.validate("root", source="source", deep=4))
compare("read", lambda: [document.text for document in spanloom.open_dataset("root", split="train")])
compare("inspect", lambda: spanloom.inspect("root", count=2))
compare("export", lambda: spanloom.export("of_model", "exported", to="trl"))
compare("plan", lambda: spanloom.plan("root", 256))
compare("audit", lambda: spanloom.audit("exported", "model"))
def fails():
    try:
        spanloom.build("nowhere", "root2")
    except spanloom.SpanloomError:
        return
    raise AssertionError
compare("a build that fails", fails)
"""
COMPILES = """
import torch
calls = []
def backend(graph, _):
    calls.append(graph)
    return graph
torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
assert len(calls) == 1, "torch.compile does nothing"
"""


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMPARED + code], cwd=folder, check=False, capture_output=True, text=True, timeout=600
    )


@pytest.fixture(autouse=True)
def _model(tmp_path: Path) -> None:
    write_model(tmp_path / "model")


def test_nothing_of_the_process_is_changed_by_any_call(tmp_path: Path) -> None:
    """And torch, imported afterwards, still compiles."""
    done = run(tmp_path, CALLS + COMPILES)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.nightly
def test_a_process_without_collection_stays_without(tmp_path: Path) -> None:
    done = run(tmp_path, "gc.disable()\n" + CALLS)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("os.environ.update(A='1')", "environment"),
        ("warnings.simplefilter('ignore')", "warnings"),
        ("signal.signal(signal.SIGUSR1, signal.SIG_IGN)", "signals"),
        ("gc.disable()", "collector"),
        ("logging.root.setLevel(10)", "logging"),
        ("random.seed(1)", "random"),
    ],
)
def test_the_comparison_sees_a_change(tmp_path: Path, change: str, name: str) -> None:
    done = run(tmp_path, f"compare('a change', lambda: [{change}])")
    assert done.returncode == 1
    assert f"'{name}'" in done.stderr
