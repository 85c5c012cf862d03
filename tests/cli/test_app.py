"""The frame of all commands: exit codes, where results and errors go, and help that waits for no library."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY, Cli
from spanloom.dataset import manifest
from spanloom.errors import ChatError, RecordError, SourceError, SpanloomError
from spanloom.findings import Finding, Report
from support.commands import Run, all_commands
from support.nightly import drawn

HELP = """
import json, sys
sys.path.insert(0, sys.argv[1])
from support.commands import all_commands
from spanloom.cli import app

codes = {}
for name in ["", *all_commands()][:: int(sys.argv[2])]:
    try:
        app([*name.split(), "--help"])
    except SystemExit as end:
        codes[name] = end.code
libraries = ("torch", "megatron", "pyarrow", "openai_harmony", "tiktoken")
heavy = [name for name in libraries if name in sys.modules]
print(json.dumps([codes, heavy]), file=sys.stderr)
"""


class TestExitCodes:
    def test_errors_and_reports_carry_them(self) -> None:
        for error in (SpanloomError, SourceError, RecordError, ChatError):
            assert error("it stopped").exit_code == 1
        report = Report()
        assert report.exit_code == 0
        report.add([Finding(check="style", message="odd", severity="warning")])
        assert report.exit_code == 0
        report.add([Finding(check="labels", message="wrong")])
        assert report.exit_code == 4

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (["--version"], 0),
            (["--help"], 0),
            (["manifest", "show", "nowhere"], 1),
            (["stats", "nowhere"], 1),
            (["no-such-command"], 2),
            (["manifest", "show"], 2),
            (["build", "--shards", "0"], 2),
            (["build", "--no-such-option"], 2),
            (["chat", "pack", "--input", "a", "--out", "b", "--on-error", "perhaps"], 2),
            (["validate", "nowhere", "--deep", "3"], 2),
        ],
        ids=str,
    )
    def test_of_commands(self, run: Run, arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(*arguments) == code
        said = capsys.readouterr()
        assert bool(said.out) == (code == 0), "results go to stdout, all else to stderr"
        assert bool(said.err) == (code != 0)
        assert "Traceback" not in said.err

    def test_an_error_decides_its_own(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        class StoppedError(SpanloomError):
            exit_code = 7

        def stop(_: str, check: object) -> Any:
            raise StoppedError("it stopped", where="here", remedy="begin anew")

        monkeypatch.setattr(manifest, "read_place_as", stop)
        assert run("manifest", "show", "root") == 7
        assert capsys.readouterr().err == "error: it stopped\n  where: here\n  remedy: begin anew\n"

    @pytest.mark.parametrize(
        ("number", "remedy"),
        [
            (errno.ENOSPC, "free some space"),
            (errno.EACCES, "look at the permissions of this path"),
            (errno.ENOENT, "check the path"),
            (errno.EFBIG, "raise the limit of a file's size"),
        ],
    )
    def test_what_the_system_refuses_is_an_error_with_a_remedy(
        self,
        run: Run,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        number: int,
        remedy: str,
    ) -> None:
        def refuse(_: str, check: object) -> Any:
            raise OSError(number, os.strerror(number), "some/file")

        monkeypatch.setattr(manifest, "read_place_as", refuse)
        assert run("manifest", "show", "root") == 1
        said = capsys.readouterr().err
        assert said.startswith(f"error: {os.strerror(number)}\n  where: some/file\n  remedy: {remedy}")

    def test_of_a_command_without_memory(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(manifest, "read_place_as", lambda *_: bytearray(1 << 60))
        assert run("manifest", "show", "root") == 1
        assert capsys.readouterr().err.startswith("error: out of memory\n  remedy: raise the limit")

    def test_of_a_command_that_was_interrupted(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as store:
            store.settimeout(120)
            running = subprocess.Popen(
                [sys.executable, "-m", "spanloom", "validate", "gs://bucket/dataset"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{store.getsockname()[1]}"},
                # A test that a shell runs in the background is born with Ctrl-C ignored, and so would the command be.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )
            connection, _ = store.accept()
            with connection:
                connection.recv(1)  # the command has asked, and waits for what never comes
                running.send_signal(signal.SIGINT)
                out, errors = running.communicate()
        assert running.returncode == 130, errors
        assert errors.splitlines()[-1] == "interrupted", "it keeps no parts"
        assert "Traceback" not in errors
        assert out == ""

    def test_of_a_command_that_was_interrupted_while_a_class_was_made(self, tmp_path: Path) -> None:
        """Dataclasses and named tuples are made by running text, which CPython remembers to the end of the process."""
        done = run_as_command(
            tmp_path,
            """
            try:
                exec('raise KeyboardInterrupt')
            except KeyboardInterrupt:
                sys.exit(130)
            """,
        )
        assert (done.returncode, done.stderr) == (130, "")

    def test_of_a_command_that_was_interrupted_where_python_ignores_exceptions(self, tmp_path: Path) -> None:
        """As in the callbacks of weak references that each import runs."""
        done = run_as_command(
            tmp_path,
            """
            class Broken:
                def __del__(self):
                    raise ValueError('still printed')
            class Deleted:
                def __del__(self):
                    signal.raise_signal(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            Broken()
            Deleted()
            time.sleep(60)
            print('not interrupted')
            """,
        )
        assert (done.returncode, done.stdout) == (130, "")
        assert "still printed" in done.stderr
        assert "KeyboardInterrupt" not in done.stderr
        assert done.stderr.splitlines()[-1] == "interrupted"


def run_as_command(folder: Path, body: str) -> "subprocess.CompletedProcess[str]":
    """Runs `body` in a process of its own in place of `spanloom.cli.main`."""
    (folder / "command.py").write_text(
        "import signal, sys, time\n"
        "from spanloom import cli, __main__\n"
        "def main():\n" + textwrap.indent(textwrap.dedent(body), "    ") + "cli.main = main\n"
        "__main__.main()\n"
    )
    return subprocess.run([sys.executable, "-m", "command"], cwd=folder, capture_output=True, text=True, check=False)


def test_the_help_of_every_command_works_and_loads_no_heavy_library() -> None:
    """All commands are loaded; by day a seventh of the pages are shown, and `test_help.py` shows them all."""
    step = drawn(nightly=1, otherwise=7)
    command = [sys.executable, "-c", HELP, REPOSITORY / "tests", str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    codes, heavy = json.loads(done.stderr.splitlines()[-1])
    assert list(codes) == ["", *all_commands()][::step]
    assert set(codes.values()) == {0}
    assert heavy == []


def test_every_option_and_argument_says_what_it_is() -> None:
    silent = {
        f"{name} {param.name}" for name, command in all_commands().items() for param in command.params if not param.help
    }
    assert silent == set()
    assert not [name for name, command in all_commands().items() if not command.help]


@pytest.mark.parametrize(
    "words",
    [["convert", "", "--out", "source"], ["convert", "a.jsonl", "--out", ""], ["validate", ""], ["fetch", "", "d"]],
)
def test_an_empty_text_is_no_place(cli: Cli, words: list[str], tmp_path: Path) -> None:
    done = cli(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: an empty text is no place")
    assert list(tmp_path.iterdir()) == []
