"""The commands of packed chat: one function a step, and defaults that stand in one place."""

import inspect
import json
from pathlib import Path

import pytest

from support.chat_datasets import write_tokenizer
from support.commands import Changed, Run, all_commands

CHATS = [
    [{"role": "user", "content": "Two?"}, {"role": "assistant", "content": "2"}],
    [{"role": "user", "content": "word " * 300}, {"role": "assistant", "content": "too long"}],
]


def test_every_default_of_an_option_is_the_one_of_the_family(changed: Changed) -> None:
    constants, defaults = changed(
        "spanloom.families.chat.defaults",
        "spanloom.families.chat.steps.pack_chat:PackingRules",
        "spanloom.families.chat.steps.generate_chat:GeneratorRules",
        "spanloom.families.chat.build:PackOptions",
    )
    packing = ("block_size", "post_training", "strict_user", "keep_lossless", "pad_tail", "shards")
    for command in ("chat pack", "PackingRules"):
        assert {name: defaults[command][name] for name in packing} == {
            name: constants[name.upper()] for name in packing
        }
    switches = ("post_training", "strict_user", "keep_lossless", "pad_tail")  # which have a value in a step
    assert {name: defaults["step pack-chat"][name] for name in packing} == {
        name: str(int(constants[name.upper()])) if name in switches else constants[name.upper()] for name in packing
    }
    for command in ("chat pack", "step pack-chat", "PackOptions"):
        assert defaults[command]["on_error"] == constants["ON_ERROR"]
    for command in ("chat pack", "PackOptions"):
        assert defaults[command]["deep"] == constants["DEEP"]
    for command in ("chat generate", "step generate-chat", "GeneratorRules"):
        assert defaults[command]["context_len"] == constants["CONTEXT_LEN"]
    assert defaults["chat sample"]["conversations"] == constants["SAMPLE_CONVERSATIONS"]


def test_a_command_and_its_step_are_one_function_that_takes_input_and_source() -> None:
    commands = all_commands()
    command, step = commands["chat generate"], commands["step generate-chat"]
    assert inspect.unwrap(command.callback) is inspect.unwrap(step.callback)
    for each in (command, step):
        (source,) = [param for param in each.params if param.name == "source"]
        assert source.opts == ["--input", "--source"]
        assert source.required


@pytest.mark.parametrize("option", ["--input", "--source"])
def test_the_step_prints_json_and_the_command_a_line_for_people(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in CHATS))
    out, tokenizer = tmp_path / "transcripts.jsonl", write_tokenizer(tmp_path / "tokenizer.json")
    given = (option, tmp_path / "chats.jsonl", "--out", out, "--tokenizer", tokenizer, "--context-len", 100, "--quiet")
    assert run("step", "generate-chat", *given) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["conversations_read"], said["conversations_written"]) == (2, 1)
    assert run("chat", "generate", *given) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"1 transcripts in {out} (2 conversations read)"
    assert run("chat", "generate", *given, "--json") == 0
    assert json.loads(capsys.readouterr().out) == said


def test_the_end_of_a_run_says_what_was_lost(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chat = [
        {"role": "user", "content": "Two?", "name": "Ann"},
        {"role": "assistant", "content": "<think>one, two</think>2", "reasoning_content": "1 + 1"},
        {"role": "tool", "content": "unasked"},
        {"role": "user", "content": "And?"},
    ]
    (tmp_path / "chats.jsonl").write_text(json.dumps(chat) + "\n")
    out, tokenizer = tmp_path / "transcripts.jsonl", write_tokenizer(tmp_path / "tokenizer.json")
    given = ("chat", "generate", "--input", tmp_path / "chats.jsonl", "--out", out, "--tokenizer", tokenizer, "--quiet")
    assert run(*given) == 1
    refused = capsys.readouterr().err
    assert "no place for the keys name, reasoning_content" in refused
    assert "line 1" in refused
    assert "--drop name,reasoning_content" in refused
    assert run(*given, "--drop", "name,reasoning_content, tool") == 1
    assert "--think drop" in capsys.readouterr().err
    assert run(*given, "--drop", "name,reasoning_content, tool", "--think", "drop") == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "skipped: none; shortened: 0 (0 pairs); ended at a user without an answer: 1",
        "messages: 4 read, 2 written; left out: 1 dropped_role, 1 unanswered_user",
        "dropped: keys 1 name, 1 reasoning_content; roles 1 tool; think blocks 1 (0 trained as text)",
    ]


def test_page_and_help_name_the_variables(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parents[2] / "docs/reference/commands.md").read_text("utf-8")
    for command in (("chat", "--help"), ("chat", "pack", "--help")):
        assert run(*command) == 0
        said = capsys.readouterr().out
        for variable in ("POST_TRAINING", "WARMUP_PCT"):
            assert variable in said
            assert variable in readme
