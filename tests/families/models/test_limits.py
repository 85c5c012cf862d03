"""A template that reaches a limit stops the command with one error. It is no refusal, and no finding."""

import json
from pathlib import Path
from typing import Any

import pytest

import spanloom
from conftest import Cli
from spanloom.errors import RecordError, RejectedRowError
from spanloom.families.models.build import BuildOptions, build
from spanloom.families.models.conversation import read_conversation
from spanloom.families.models.documents.rules import ModelRules
from spanloom.tokenizers.chat_template import RESERVED
from spanloom.tokenizers.rendering.process import (
    SECONDS_VARIABLE,
    TemplateDelayError,
    TemplateLimitError,
    shared_process,
)
from support.chat_models import CHATML, write_model
from support.model_datasets import record, stored, write_conversations

RECORDS = [record(seed, tools=False) for seed in range(40)]
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
LARGE = "{% set a = 'a' * 10**10 %}"


def on_word(word: str, then: str) -> str:
    """A template that does everything right, unless a message has this word."""
    return (
        "{% for m in messages %}{% if m.content and '"
        + word
        + "' in m.content %}\n"
        + then
        + "{% endif %}{% endfor %}\n"
        + CHATML
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversation 30 of 40 has the word."""
    records = [json.loads(json.dumps(each)) for each in RECORDS]
    records[30]["messages"][-2]["content"] += " gargoyle"
    rows = [stored(each) for each in records]
    return write_conversations(tmp_path_factory.mktemp("source"), [rows[:20], rows[20:]])


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_process(), "limits", type(shared_process().limits)(seconds=1))


def made(source: Path, model: Path, out: Path, **more: Any) -> Any:
    rules = ModelRules(valid_fraction=0.3, inline_think=True)
    return build(BuildOptions(source=source, model=model, out=out, rules=rules, allow_unknown_sha=True, **more))


def check_stopped(ran: Any, model: Path, root: Path, code: int) -> None:
    """One error with its place, nothing counted, no dataset."""
    assert ran.returncode == code, ran.stderr
    assert ran.stderr.count("error: ") == 1
    assert "the chat template was stopped" in ran.stderr
    assert f"where: {model / 'chat_template.jinja'}, line 2" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "rejected" not in ran.stderr
    assert not (root / "manifest.json").exists()


@pytest.mark.parametrize(("then", "code"), [(ENDLESS, 75), (LARGE, 1)])
def test_a_build_is_stopped(then: str, code: int, source: Path, tmp_path: Path, cli: Cli) -> None:
    """By a deadline, which load may be the cause of, with the exit code for trying again; by memory without."""
    model, root = write_model(tmp_path / "model", on_word("gargoyle", then)), tmp_path / "root"
    given = ("--source", source, "--model", model, "--out", root, "--max-rejects", "100%", "--allow-unknown-sha")
    check_stopped(cli("build", *given, **{SECONDS_VARIABLE: "1"}), model, root, code)


@pytest.mark.usefixtures("one_second")
def test_workers_are_stopped_alike(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, "1")
    model = write_model(tmp_path / "model", on_word("gargoyle", ENDLESS))
    for workers in (1, 2):
        with pytest.raises(TemplateDelayError, match="runs for more than 1 seconds") as error:
            made(source, model, tmp_path / str(workers), max_rejects="100%", workers=workers)
        assert error.value.exit_code == 75


def test_the_same_build_without_the_word_has_all_documents(source: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", on_word("chimera", ENDLESS))
    result = made(source, model, tmp_path / "root")
    assert result.report.clean, result.report.findings
    assert result.manifest.content.totals.rejected == {}


@pytest.mark.usefixtures("one_second")
def test_the_api_is_stopped(source: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", on_word("gargoyle", LARGE))
    with pytest.raises(TemplateLimitError, match="takes more than 1,024 MiB of memory"):
        spanloom.build(source, tmp_path / "root", model=model, max_rejects="100%", allow_unknown_sha=True)


def test_a_probe_is_stopped(tmp_path: Path, cli: Cli) -> None:
    for name, then in (("endless", ENDLESS), ("large", LARGE)):
        model = write_model(tmp_path / name, "\n" + then + CHATML)
        check_stopped(cli("model", "probe", model, **{SECONDS_VARIABLE: "1"}), model, tmp_path, 1)


@pytest.fixture(scope="module")
def root(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    result = made(source, write_model(folder / "model", CHATML), folder / "root")
    assert result.report.clean, result.report.findings
    root: Path = result.root
    return root


def test_validation_and_audit_are_stopped_and_find_nothing(root: Path, source: Path, cli: Cli) -> None:
    """With a deadline that nobody keeps. The exit code of findings is 4."""
    hurried = {SECONDS_VARIABLE: "0.000001"}
    validated = cli("validate", root, "--source", source, "--deep", 10, **hurried)
    audited = cli("audit", root, "--model", root / "model", "--messages", source, **hurried)
    for ran in (validated, audited):
        assert ran.returncode in (1, 75), ran.stdout + ran.stderr
        assert ran.stderr.count("error: the chat template was stopped: it runs for more than") == 1
        assert "Traceback" not in ran.stderr
    assert cli("validate", root, "--source", source, "--deep", 10).returncode == 0


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_name_that_rendering_gives_is_refused_in_options_and_rows(
    name: str, root: Path, tmp_path: Path, cli: Cli
) -> None:
    said = f"chat_template_kwargs sets {name}, which rendering gives"
    row = stored(RECORDS[1], chat_template_kwargs={name: True})
    with pytest.raises(RejectedRowError, match=f"field_invalid: {said}"):
        made(write_conversations(tmp_path / "source", [[row]]), root / "model", tmp_path / "root")
    with pytest.raises(RecordError, match=said):
        read_conversation({**RECORDS[1], "chat_template_kwargs": {name: True}}, name="row")
    ran = cli("model", "probe", root / "model", "--set", f"{name}=1")
    assert ran.returncode == 1, ran.stderr
    assert f"error: the template variable {name} cannot be set: rendering gives it" in ran.stderr
    assert "Traceback" not in ran.stderr
