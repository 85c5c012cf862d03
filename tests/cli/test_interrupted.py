"""What a command says that Ctrl-C ended: that parts are kept only where some are."""

import sys

import pytest

from spanloom import cli

KEPT = "interrupted: the same command resumes from what it had finished\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["build", "--source", "raw"], KEPT),
        (["fetch", "gs://bucket/dataset", "here"], KEPT),
        (["step", "render-shard", "--shard", "0"], KEPT),
        (["convert", "chat.jsonl", "--out", "source"], KEPT),
        (["convert-synth", "--raw", "raw", "--out", "build"], "interrupted\n"),
        (["export", "build"], "interrupted\n"),
        (["validate", "fetch"], "interrupted\n"),
        (["chess", "prepare", "--source", "games"], KEPT),
        (["chat", "pack", "--input", "build"], "interrupted\n"),
        (["step", "validate-alignment"], "interrupted\n"),
    ],
)
def test_only_commands_that_keep_parts_say_so(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: list[str], **__: object) -> int:
        return 130

    monkeypatch.setattr(sys, "argv", ["spanloom", *arguments])
    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    assert capsys.readouterr().err == said
