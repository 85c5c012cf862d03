"""The supervisor itself: it sees what a process changes, whoever's code does it, and what it says happens."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.chaos import supervisor
from tools.chaos.driver import REPOSITORY

pytestmark = pytest.mark.skipif(supervisor.supported() is not None, reason=f"{supervisor.supported()}")

PROGRAM = """
import json, os, socket, sys
from pathlib import Path
from tools.chaos import supervisor
folder, answer, at, *command = sys.argv[1:]
ours, theirs = socket.socketpair()
child = os.fork()
if not child:
    os.setsid()
    os.chdir(folder)
    supervisor.listen(theirs)
    os.execvp(command[0], command)
theirs.close()
seen = []
def decide(change):
    seen.append(str(change))
    return int(answer) if str(change) == at else supervisor.LET
in_time = supervisor.supervise(supervisor.receive_listener(ours), child, Path(folder), decide, deadline=lambda: 10.0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps({"seen": seen, "code": code, "in_time": in_time}))
"""


def supervised(folder: Path, *command: str, answer: int = supervisor.LET, at: str = "") -> dict[str, Any]:
    """A command in `folder`, in whose change `at` the answer is given."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(answer), at, *command],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests")},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


SHELL = "echo one > a && mkdir d && mv a d/b && ln d/b c && rm c && ln -s d e && chmod 600 d/b && cat d/b > /dev/null"


def test_every_change_of_a_process_and_its_children_is_seen_in_order(tmp_path: Path) -> None:
    found = supervised(tmp_path, "sh", "-c", SHELL)
    assert found["code"] == 0
    names = [change.split(" #")[0] for change in found["seen"]]
    assert names == [
        *("open a", "write a", "mkdir d", "rename a -> d/b", "link d/b -> c", "unlink c", "symlink e", "chmod d/b"),
    ]


def test_calls_that_are_alike_are_counted(tmp_path: Path) -> None:
    found = supervised(tmp_path, "sh", "-c", "for i in 1 2 3; do echo $i >> a; done")
    assert [change for change in found["seen"] if change.startswith("write")] == [f"write a #{n}" for n in (1, 2, 3)]


def test_changes_elsewhere_and_reading_are_not_asked_about(tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    (watched / "a").write_text("one")
    assert supervised(watched, "sh", "-c", "cat a > ../b && mkdir ../d && ls -l > /dev/null")["seen"] == []


def test_a_refused_call_is_not_made_and_fails_with_the_errno(tmp_path: Path) -> None:
    script = (
        "import os; open('a', 'w').close()\n"
        "try: os.rename('a', 'b')\n"
        "except OSError as fault: raise SystemExit(fault.errno)"
    )
    found = supervised(tmp_path, sys.executable, "-c", script, answer=errno.ENOSPC, at="rename a -> b #1")
    assert found["code"] == errno.ENOSPC
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_a_kill_comes_before_the_change_and_takes_all_processes(tmp_path: Path) -> None:
    script = "(sleep 5; touch late) & touch a; mv a b; touch c"
    found = supervised(tmp_path, "sh", "-c", script, answer=supervisor.KILL, at="rename a -> b #1")
    assert found["code"] == -signal.SIGKILL
    assert found["in_time"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_what_libraries_write_past_python_is_seen(tmp_path: Path) -> None:
    script = (
        "import numpy, pyarrow as pa, pyarrow.parquet as pq\n"
        "numpy.arange(3, dtype='u1').tofile('numbers')\n"
        "pq.write_table(pa.table({'a': [1]}), 'table')"
    )
    found = supervised(tmp_path, sys.executable, "-c", script)
    assert found["code"] == 0
    assert "write numbers #1" in found["seen"]
    assert "write table #1" in found["seen"]


def test_a_command_that_does_not_end_is_ended(tmp_path: Path) -> None:
    slow = PROGRAM.replace("10.0", "0.2 - len(seen)")
    done = subprocess.run(
        [sys.executable, "-c", slow, str(tmp_path), "0", "", "sh", "-c", "echo > a; echo > b; exec sleep 60"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) | {"seen": None} == {"seen": None, "code": -signal.SIGKILL, "in_time": False}
