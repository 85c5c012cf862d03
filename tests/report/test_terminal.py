"""Documents on a terminal: readable without colours, and content that wants to steer the terminal stays text."""

import re
from pathlib import Path

import pytest

from conftest import Cli

GERMAN = """\
margin  · context, masked   ┊ analysis   ┃ final   

train/01/4  sample-000025 · de · math exercise
191 tokens; labels: 86 context, 67 analysis, 38 final
· system – masked, 61 tokens
· <|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.
· Knowledge cutoff: 2024-06
· Current date: 2026-01-01
· 
· Reasoning: high
· 
· # Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>
· user – masked, 24 tokens
· <|start|>user<|message|>Ein Fahrrad kostet 240 Euro und wird um 5 % reduziert. Wie viel kostet es danach?<|end|>
┊ assistant analysis – learned as analysis, 67 tokens
┊ <|start|>assistant<|channel|>analysis<|message|>### 1. Anfrage
┊ 
┊ Grundwert 240 €, Prozentsatz 5 % → gesucht: verminderter Grundwert.
┊ 
┊ ### 2. Rechnung
┊ 
┊ - Nachlass: 240 · 5 / 100 = 12 € ●
┊ - 240 − 12 = 228 € ●<|end|>
┃ assistant final – learned as final, 38 tokens
┃ <|start|>assistant<|channel|>final<|message|>Der Nachlass beträgt 5 % von 240 €, also 12 €. Das Fahrrad kostet danach 240 € − 12 € = **228 €**.<|return|>
· <|endoftext|>
"""  # noqa: E501, W291


def test_a_german_conversation_as_it_is_printed(demo: Path, cli: Cli) -> None:
    done = cli("inspect", demo, "train/1/4")
    assert done.returncode == 0, done.stderr
    assert done.stdout == GERMAN


def test_colours_only_where_they_are_wanted(demo: Path, cli: Cli) -> None:
    assert "\x1b[35m" in cli("inspect", demo, "train/1/4", FORCE_COLOR="1").stdout
    plain = cli("inspect", demo, "train/1/4", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain), "no colour, whatever else a terminal may do"


def test_labels_are_one_place_ahead_of_tokens(demo: Path, cli: Cli) -> None:
    """Around the borders of the spans, and at the end: what each position learns, and the two values on disk."""
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
