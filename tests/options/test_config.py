"""`--config` and `--print-config`: a file has what the command line has, and is refused where the line would be."""

import os
from pathlib import Path

import pytest
import yaml

from conftest import REPOSITORY, Cli
from spanloom.options.config import MANY
from support.commands import all_commands

CHAT = REPOSITORY / "docs/examples/chat.jsonl"


def own(command: object) -> list[str]:
    return [each.name for each in command.params if each.name not in ("help", "config", "print_config")]  # type: ignore[attr-defined]


def test_every_command_with_more_than_ten_options_takes_a_file_and_no_other() -> None:
    commands = {name: command for name, command in all_commands().items() if not name.startswith("step ")}
    assert {"build", "convert", "export", "audit", "chat pack"} <= commands.keys()
    for name, command in commands.items():
        has = {"config", "print_config"} <= {each.name for each in command.params}
        assert has == (len(own(command)) > MANY), name


def test_a_file_gives_what_the_command_line_gives(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        f"inputs: {CHAT}\nout: {tmp_path / 'file'}\nyes: true\ndeveloper: 'on: it'\ndate: 2026-01-31\n"
        "drop: [audio, refusal]\nmetadata: topic\nrows-per-shard: 4\nlicense:\n"
    )
    done = cli("convert", "--config", tmp_path / "c.yaml", "-q")
    assert done.returncode == 0, done.stderr
    line = ("--yes", "--developer", "on: it", "--date", "2026-01-31", "--drop", "audio,refusal", "--metadata", "topic")
    assert cli("convert", CHAT, "--out", tmp_path / "line", *line, "--rows-per-shard", 4, "-q").returncode == 0
    names = sorted(path.name for path in (tmp_path / "line").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "file").iterdir())
    assert len(names) == 5
    for name in names:
        assert (tmp_path / "line" / name).read_bytes() == (tmp_path / "file" / name).read_bytes()


def test_the_command_line_counts_before_the_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("source: there\nvalid-fraction: 0.25\nallow-unknown-sha: true\nhistory: keep\n")
    done = cli("build", "--config", tmp_path / "c.yaml", "--history", "serve", "--no-resume", "--print-config")
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)
    assert {key: shown[key] for key in ("source", "valid-fraction", "allow-unknown-sha", "history", "resume")} == {
        "source": "there", "valid-fraction": 0.25, "allow-unknown-sha": True, "history": "serve", "resume": False,
    }  # fmt: skip
    (tmp_path / "again.yaml").write_text(done.stdout)
    assert cli("build", "--config", tmp_path / "again.yaml", "--print-config").stdout == done.stdout


def test_words_that_yaml_reads_as_other_types_stay_texts(cli: Cli, tmp_path: Path) -> None:
    """In YAML 1.1 `on` and `off` are booleans, and so would be no value of --thinking."""
    (tmp_path / "c.yaml").write_text("source: s\nmodel: m\nthinking: on\nmax-rejects: 1%\n")
    done = cli("build", "--config", tmp_path / "c.yaml", "--print-config")
    assert done.returncode == 0, done.stderr
    assert 'thinking: "on"\n' in done.stdout
    assert 'max-rejects: "1%"\n' in done.stdout


@pytest.mark.parametrize(("text", "message"), [
    ("valid_fraction: 0.1", "there is no option 'valid_fraction'"),
    ("valid-fraction: [0.1, 0.2]", "'valid-fraction' takes one value"),
    ("valid-fraction: {a: 1}", "'valid-fraction' takes one value"),
    ("valid-fraction: 2", "Invalid value for '--valid-fraction'"),
    ("valid-fraction: much", "Invalid value for '--valid-fraction'"),
    ("history: never", "'never' is not one of"),
    ("- a", "has no options"),
    ("a: [", "is not YAML"),
    ("", "has no options"),
])  # fmt: skip
def test_what_the_command_line_would_refuse_is_refused(cli: Cli, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    done = cli("build", "--config", tmp_path / "c.yaml", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_the_nearest_name_is_named_and_a_missing_file_too(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("valid_fracton: 0.1")
    assert "the nearest is 'valid-fraction'" in cli("build", "--config", tmp_path / "c.yaml").stderr
    done = cli("build", "--config", tmp_path / "none.yaml")
    assert done.returncode == 2
    assert "No such file" in done.stderr
    os.mkfifo(tmp_path / "fifo")
    done = cli("build", "--config", tmp_path / "fifo")
    assert (done.returncode, "no regular file" in done.stderr) == (2, True)
