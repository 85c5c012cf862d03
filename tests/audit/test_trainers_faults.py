"""Faults as trainers make them: nearly all are named, and no document without one is accused."""

from pathlib import Path

import pytest

from support.model_material import Pair
from support.nightly import nightly
from tools.bench.audit_faults import MARKS, TEMPLATES, outcomes

NOT_CERTAIN = {
    "cut in question": "a dialogue may end in the user's turn",
    "thought missing": "the conversation may have none",
    "thought of call missing": "the conversation may have none",
    "tools as text": "they may be the system text of the conversation",
    "answer untrained": "another document of the same question may train it",
    "beginning of answer missing": "where an answer that calls a tool begins otherwise",
}
"""Kinds that documents alone do not always show, and why. With conversations they are certain."""

IN_CI = {"otc_qwen-3", *MARKS}


@pytest.mark.parametrize("template", [name if name in IN_CI else nightly(name) for name in TEMPLATES])
def test_faults_are_named_and_right_documents_are_not(
    template: str,
    model_material: list[Pair],  # skips where the templates are not there
    tmp_path: Path,
) -> None:
    found = outcomes(template, tmp_path, 40)
    accused = [(each.messages, each.named) for each in found if each.kind is None and each.named]
    assert not accused
    missed = {each.kind for each in found if each.kind is not None and not each.named and not each.messages}
    assert missed <= NOT_CERTAIN.keys()
    with_messages = [each for each in found if each.kind is not None and each.messages]
    assert len(with_messages) > 300
    assert all(each.named for each in with_messages)
    alone = [each for each in found if each.kind is not None and not each.messages]
    assert sum(bool(each.named) for each in alone) / len(alone) > 0.9
