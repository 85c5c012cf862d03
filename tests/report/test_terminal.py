"""Documents on a terminal: readable without colours, and content that wants to steer the terminal stays text."""

import json
import os
import pty
import re
from pathlib import Path

import pytest

from conftest import REPOSITORY, Cli
from support import warm

BLOCKS = re.findall(r"```text\n(.*?)```", (REPOSITORY / "docs/inspect.md").read_text("utf-8"), flags=re.DOTALL)
"""What the guide shows is what is printed: a conversation, and a table of counts."""


def stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_a_german_conversation_is_printed_as_the_guide_shows_it(demo: Path, cli: Cli) -> None:
    done = cli("inspect", demo, "train/1/4")
    assert done.returncode == 0, done.stderr
    assert stripped(done.stdout) == stripped(BLOCKS[0])


def test_counts_are_printed_as_the_guide_shows_them(demo: Path, cli: Cli) -> None:
    assert stripped(cli("stats", demo).stdout) == stripped(BLOCKS[1])


def test_colours_only_where_they_are_wanted(demo: Path, cli: Cli) -> None:
    assert "\x1b[35m" in cli("inspect", demo, "train/1/4", FORCE_COLOR="1").stdout
    plain = cli("inspect", demo, "train/1/4", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain), "no colour, whatever else a terminal may do"


def test_labels_are_one_place_ahead_of_tokens(demo: Path, cli: Cli) -> None:
    """SystemFields the borders of the spans, and at the end: what each position learns, and the two values on disk."""
    lines = cli("inspect", demo, "train/1/4", "--labels").stdout.splitlines()
    cells = {int(line.split()[0]): re.split(r"\s{2,}", line.strip()) for line in lines if re.match(r"\s*\d+  ", line)}
    assert cells[84] == ["84", "<|end|>", "<|start|>", "1", "┊ 1 analysis"]
    assert cells[83][3:] == ["0", "· 0 context"]
    assert cells[150][2:] == ["<|end|>", "1", "┊ 1 analysis"]
    assert cells[151] == ["151", "<|end|>", "<|start|>", "1", "┃ 2 final"]
    assert cells[188][2:] == ["<|return|>", "1", "┃ 2 final"]
    assert cells[189] == ["189", "<|return|>", "<|endoftext|>", "0", "· 0 context"]
    assert cells[190] == ["190", "<|endoftext|>", "–", "0", "· 0 context"]
    assert len(cells) == 191


def test_as_json_a_token_has_the_span_that_it_is_part_of(demo: Path, cli: Cli) -> None:
    """The same document as in the guide: analysis from its <|start|> at 85 to <|end|> at 151, final to <|return|>."""
    (document,) = json.loads(cli("inspect", demo, "train/1/4", "--json").stdout)
    tokens = document["tokens"]
    assert tokens["spans"] == [0] * 85 + [1] * 67 + [2] * 38 + [0]
    assert tokens["trained"] == [int(span > 0) for span in tokens["spans"]]
    assert [tokens["texts"][n] for n in (85, 151, 152, 189, 190)] == [
        *("<|start|>", "<|end|>", "<|start|>", "<|return|>", "<|endoftext|>")
    ]
    assert tokens["ids"][189:] == [200002, 199999]
    assert document["labels"] == {"context": 86, "analysis": 67, "final": 38}
    assert [(message["role"], message["channel"]) for message in document["messages"]][-3:] == [
        ("assistant", "analysis"),
        ("assistant", "final"),
        ("", ""),
    ]
    assert "".join(message["text"] for message in document["messages"]) == "".join(tokens["texts"])


@pytest.mark.parametrize(("stdout_too", "paged"), [(True, True), (False, False)])
def test_a_person_reads_in_a_pager_and_a_pipe_does_not(demo: Path, stdout_too: bool, paged: bool) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"PAGER": "sed s/^/PAGED/", "TERM": "xterm"}
    command = ("spanloom", "inspect", demo, "train/1/4")
    if stdout_too:
        process = warm.start(*command, env=environment, stdin=theirs, streams=(theirs, theirs))
        os.close(theirs)
        shown = warm.until_closed(ours)
        process.wait()
    else:
        shown = warm.run(*command, env=environment, stdin=theirs).stdout
        os.close(theirs)
        os.close(ours)
    assert "analysis" in shown
    assert ("PAGED" in shown) == paged


def test_tokens_and_ids_show_characters_that_several_tokens_make_up(hostile: Path, cli: Cli) -> None:
    said = cli("inspect", hostile, "--special-text", "--ids").stdout
    assert "<|start|>₂₀₀₀₀₆│" in said
    shown = cli("inspect", hostile, "--count", 9, "--tokens", "--pick", "first").stdout
    assert "│⟨f0⟩│⟨92⟩│⟨80⟩│⟨80⟩𒀀│<|return|>│" in shown, "the sign stands at the token that completes it"


@pytest.mark.parametrize("view", [(), ("--tokens",), ("--labels",), ("--ids",)])
def test_nothing_of_the_content_steers_the_terminal(hostile: Path, cli: Cli, view: tuple[str, ...]) -> None:
    done = cli("inspect", hostile, "--count", 99, *view)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", done.stdout)
    assert "␛" in done.stdout
    assert "⟨U+202E⟩" in done.stdout


def test_a_long_document_shows_its_two_ends(demo: Path, cli: Cli) -> None:
    said = cli("inspect", demo, "--pick", "longest", "--max-tokens", 40).stdout
    assert said.count("tokens not shown") == 4
    hidden = sum(int(number.replace(",", "")) for number in re.findall(r"… ([\d,]+) tokens not shown", said))
    assert hidden == 16_925 - 40
    assert said.endswith("· <|endoftext|>\n")
    assert "not shown" not in cli("inspect", demo, "--pick", "longest", "--max-tokens", 0).stdout


def test_filters_that_leave_nothing_say_so(demo: Path, cli: Cli) -> None:
    done = cli("inspect", demo, "--language", "tlh")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no document passes these filters")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("inspect", "train/0/0", "--language", "de"), "leave out --language"),
        (("inspect", "train/0/0", "--pick", "longest", "-n", "3"), "leave out --pick, --count"),
        (("inspect", "train/0/0", "--json", "--labels"), "leave out --labels"),
        (("stats", "--json", "--csv"), "one of them"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(
    cli: Cli, demo: Path, arguments: tuple[str, ...], said: str
) -> None:
    command, *rest = arguments
    done = cli(command, demo, *rest, COLUMNS="200")
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize("command", ["stats", "export"])
def test_commands_that_read_a_folder_say_how_to_bring_a_dataset_from_a_bucket(cli: Cli, command: str) -> None:
    done = cli(command, "s3://bucket/kd", COLUMNS="200")
    assert done.returncode == 2
    assert "spanloom fetch s3://bucket/kd DIR" in done.stderr


def test_a_source_of_conversations_is_not_taken_for_a_dataset(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema_version": "synth_harmony_v1", "storage": {"shards": []}}')
    done = cli("stats", tmp_path)
    assert done.returncode == 1
    assert "a source of conversations, not a dataset" in done.stderr
    assert "spanloom build --source" in done.stderr
