"""Models that the tests of this family are about."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanloom.cli import main
from spanloom.families.models.conversation import read_conversation
from spanloom.families.models.model import Model, load_model
from spanloom.families.models.probe.form import find_form, variable_sets
from spanloom.families.models.prove.conversation import Proven, Proving, prove_conversation
from spanloom.families.models.prove.refusals import Refusal
from support.chat_models import write_model

Run = Callable[..., str]
Prove = Callable[..., Proven | Refusal]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("probe", folder)` → what `spanloom model probe FOLDER` writes to stdout. It must end with 0."""

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["spanloom", "model", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        return capsys.readouterr().out

    return run


def proving_of(model: Model, **more: Any) -> Proving:
    """How the model's template is proven by default."""
    sets = variable_sets(model.template, "auto", {})
    return Proving(form=find_form(model.template, sets), variables=sets, **more)


@pytest.fixture
def prove(tmp_path: Path) -> Prove:
    """Proves messages for a template with a small tokenizer."""

    def proven(template: str, messages: list[dict[str, Any]], *, tools: Any = None, **more: Any) -> Proven | Refusal:
        served = more.pop("served", True)
        model = load_model(write_model(tmp_path / "model", template, **more))
        conversation = read_conversation({"messages": messages, "tools": tools}, name="test")
        return prove_conversation(model, conversation, proving_of(model, served=served))

    return proven
