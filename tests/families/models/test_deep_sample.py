"""Of a sample, long conversations are rendered in part: a budget of tokens, and what it covered is said."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import spanloom
from spanloom.families.models.verify import source as checked
from spanloom.report.summary import findings_text
from support.chat_models import write_model
from support.forging import forged
from support.model_datasets import stored, write_conversations
from tools.corruption.dataset import Dataset

TURNS = 40


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One conversation of forty turns among twenty short ones, and its source."""
    folder = tmp_path_factory.mktemp("long")
    rows = []
    for number in range(21):
        messages = []
        for turn in range(TURNS if number == 0 else 1):
            messages.append({"role": "user", "content": f"Where is the answer {number} {turn}?"})
            messages.append({"role": "assistant", "content": f"The answer is there, {turn}."})
        rows.append(stored({"id": f"c{number}", "messages": messages}))
    source = write_conversations(folder / "source", [rows])
    built = spanloom.build(
        source, folder / "root", model=write_model(folder / "model"), valid_fraction=0, deep=0, reader="independent"
    )
    return built.root, source


def test_a_long_conversation_takes_a_share_of_the_budget(
    made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, source = made
    whole = spanloom.validate(root, source=source, deep="all")
    assert (whole.checked["runs rendered again"], whole.checked["runs in these rows"]) == (TURNS + 20, TURNS + 20)
    monkeypatch.setattr(checked, "TOKENS_OF_ROW", 500)
    part = spanloom.validate(root, source=source, deep=20)
    assert part.clean, part.findings
    assert part.checked["runs in these rows"] == TURNS + 19
    again = part.checked["runs rendered again"]
    assert 20 < again < 20 + TURNS / 2
    assert f", {again} of their {TURNS + 19} runs" in str(findings_text(part))


def test_the_text_of_a_long_document_is_compared_whole(
    made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In answers that are not rendered too: the last one is rendered with all that is before it."""
    monkeypatch.setattr(checked, "TOKENS_OF_ROW", 1)
    root, source = made
    copy = shutil.copytree(root, tmp_path / "root")

    def forge(dataset: Dataset) -> None:
        document = max(dataset.documents["train", 0], key=lambda each: each.tokens.size)
        trained = np.flatnonzero(document.span)
        place = int(trained[trained.size // 3])
        assert document.tokens[place] != document.tokens[place + 1]
        document.tokens[place] = document.tokens[place + 1]

    forged(copy, forge)
    report = spanloom.validate(copy, source=source, deep=20)
    assert any("the tokens are not those of the conversation" in each.message for each in report.findings)
