"""A variable that keeps earlier thoughts: the probe names it, and counts what it saves."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spanloom.families.models.conversation import Conversation, read_conversation
from spanloom.families.models.model import load_model
from spanloom.families.models.probe.history import KEEPS_HISTORY
from spanloom.families.models.probe.result import ProbeOptions, as_json, probe
from support.chat_models import CHATML, write_model

Run = Callable[..., str]


def template(keeps: str) -> str:
    """Forgets earlier reasoning, unless the condition holds."""
    return CHATML.replace(
        "{% if m.reasoning_content %}", "{% if m.reasoning_content and (loop.last or " + keeps + ") %}"
    )


BY_VARIABLE = {
    name: template(f"({name} is defined and {name})" if value else f"({name} is defined and not {name})")
    for name, value in KEEPS_HISTORY.items()
}


def conversations(turns: int = 3) -> list[tuple[str, Conversation]]:
    messages = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"the question {turn}"})
        messages.append({"role": "assistant", "reasoning": f"a thought {turn}", "content": f"the answer {turn}"})
    return [("turns", read_conversation({"messages": messages}, name=str(number))) for number in range(4)]


@pytest.mark.parametrize("name", KEEPS_HISTORY)
def test_the_variable_and_what_it_saves_are_named(name: str, tmp_path: Path) -> None:
    """Forgotten, each of three runs has a document: the sum of three texts. Kept, one text has them all."""
    model = load_model(write_model(tmp_path / "model", BY_VARIABLE[name]))
    result = probe(model, conversations())
    history = result.history
    assert history is not None
    assert (history.variable, history.value, history.conversations) == (name, KEEPS_HISTORY[name], 4)
    assert (history.documents, history.kept_documents) == (12, 4)
    whole = conversations()[0][1].messages
    given = [{**each, "reasoning_content": each["reasoning"]} if "reasoning" in each else each for each in whole]

    def tokens(count: int, **variables: bool) -> int:
        text = model.template.render(given[:count], **variables)
        return len(model.tokenizer.encode([text], special=False)[0].ids)

    # Behind the stop token of the last answer, the template writes a line feed, which is in no run but in the text.
    assert history.tokens == 4 * sum(tokens(count) for count in (2, 4, 6))
    assert history.kept_tokens == 4 * tokens(6, **{name: KEEPS_HISTORY[name]})
    assert as_json(result)["history"]["kept_tokens"] == history.kept_tokens


def test_nothing_is_said_where_nothing_is_saved(tmp_path: Path) -> None:
    forgetting = load_model(write_model(tmp_path / "forgets", template("false")))
    named = load_model(write_model(tmp_path / "named", BY_VARIABLE["preserve_thinking"]))
    for model, turns, variables in (
        (forgetting, 3, {}),
        (named, 1, {}),
        (named, 3, {"preserve_thinking": True}),
        (named, 3, {"preserve_thinking": False}),
    ):
        result = probe(model, conversations(turns), ProbeOptions(variables=variables))
        assert result.history is None
        assert "history" not in as_json(result)


def test_the_command_says_it(tmp_path: Path, run: Run) -> None:
    model = write_model(tmp_path / "model", BY_VARIABLE["clear_thinking"])
    file = tmp_path / "turns.jsonl"
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "c"},
        {"role": "user", "content": "d"},
        {"role": "assistant", "content": "e", "reasoning_content": "f"},
    ]
    file.write_text(json.dumps({"messages": messages}) + "\n")
    lines = run("probe", model, "--conversations", file).splitlines()
    said = [line for line in lines if line.startswith("earlier thoughts")]
    assert len(said) == 1
    assert "kept with --set clear_thinking=false: 1 documents instead of 2, " in said[0]
    assert (
        json.loads(run("probe", model, "--conversations", file, "--set", "clear_thinking=false", "--json"))["proven"]
        == 1
    )
