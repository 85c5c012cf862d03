"""Texts of published data that hold more than text: names of files, tokens of a template."""

import json
from typing import Any

import pytest

from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.turns import Dropping, Reading, Refusal
from support.read_chats import ANSWER, USER, read, refused, texts


@pytest.mark.parametrize("shown", ["<img>pets/cat.png</img>", "<audio>a.wav</audio>", "<video>https://x.y/v</video>"])
def test_a_file_that_a_question_shows_is_no_text(shown: str) -> None:
    asked = f"Picture 1: {shown}\nWhat is it?"
    turns = [{"from": "user", "value": "Hi"}, {"from": "assistant", "value": "Hi"}, {"from": "user", "value": asked}]
    for record in ({"query": asked, "response": "A"}, {"conversations": [*turns, {"from": "assistant", "value": "A"}]}):
        assert refused(record) == (Refusal.MEDIA, "--text-as-is keeps it as text")
        assert texts(read(record, text_as_is=True))[-2:] == [("user", asked), ("assistant", "A")]


@pytest.mark.parametrize(
    "asked", ['Why does <img src="a.png"> not load?', "<audio controls>or not</audio>", "a </img> b", "<img></img>"]
)
def test_html_in_a_question_is_text(asked: str) -> None:
    assert texts(read({"query": asked, "response": "A"})) == [("user", asked), ("assistant", "A")]


def test_the_turn_token_behind_an_answer_of_nemo_is_not_trained() -> None:
    record = {
        "prompt": "<extra_id_0>System\n\n<extra_id_1>User\nQ\n<extra_id_1>Assistant\n",
        "chosen_response": "A\n<extra_id_1>",
        "rejected_response": "B\n<extra_id_1>",
    }
    assert refused({**record, "prompt": "Q"}) == (Refusal.MARKUP, "--text-as-is keeps it as text")
    assert texts(read({**record, "prompt": "Q", "chosen_response": "A"}))[-1] == ("assistant", "A")
    rendered = "give the messages that were rendered; --text-as-is keeps it as text"
    assert refused({**record, "chosen_response": "A"}) == (Refusal.MARKUP, rendered)


def test_the_request_of_a_run_of_nemo_gym_is_its_question() -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]}
    record = {
        "responses_create_params": {"input": "Q", "instructions": "Be brief.", "tools": [tool], "temperature": 0.5},
        "response": {"id": "r", "output": [said]},
        "reward": 1.0,
    }
    chat = read(record)
    assert texts(chat) == [("system", "Be brief."), ("user", "Q"), ("assistant", "A")]
    assert [tool["name"] for tool in chat.tools] == ["look"]
    rest = {"responses_create_params": {"temperature": 0.5}, "response": {"id": "r"}, "reward": 1.0}
    assert chat.rest == rest
    assert recognise(record, key_map(()), "here").described(record)[1:] == [
        "  messages ← responses_create_params + response",
        "  metadata, not trained on: reward",
    ]


def test_the_messages_of_a_traj_file_are_named() -> None:
    record = {"trajectory": [{"action": "ls", "observation": "a"}], "history": [USER, ANSWER], "info": {"exit": 0}}
    assert recognise(record, key_map(()), "here").described(record)[1:] == [
        "  messages ← history",
        "  metadata, not trained on: trajectory, info",
    ]


@pytest.mark.parametrize("held", [{"input": [{"role": "system", "content": "Only the name."}, USER]}, [USER]])
def test_a_request_beside_question_and_answer_is_not_left_out_silently(held: Any) -> None:
    record = {"question": "Q", "answer": "A", "request": held}
    assert refused(record) == (Refusal.INPUT_BESIDE, "--metadata request leaves them out of it")
    form = recognise(record, key_map((), ("request",)), "here")
    assert texts(read_record(record, form, Reading(), Dropping())) == [("user", "Q"), ("assistant", "A")]
    assert texts(read({**record, "request": {"input": [ANSWER]}})) == [("user", "Q"), ("assistant", "A")]


REACT = "Thought: I look.\nAction: look\nAction Input: {}"


def test_a_call_as_react_text_is_not_trained_as_an_answer_where_the_record_has_tools() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    record = {"messages": [USER, {"role": "assistant", "content": REACT}]}
    assert texts(read(record))[-1] == ("assistant", REACT)
    assert refused({**record, "tools": tools}) == (Refusal.MARKUP, "--text-as-is keeps it as text")
    assert texts(read({**record, "tools": tools}, text_as_is=True))[-1] == ("assistant", REACT)
    asked = {"messages": [{"role": "user", "content": REACT}, ANSWER], "tools": tools}
    assert texts(read(asked))[0] == ("user", REACT)


def test_a_second_question_or_answer_is_not_left_out_silently() -> None:
    assert refused({"question": "Q", "prompt": "Be brief. Now:", "answer": "A"})[0] == Refusal.INPUT_BESIDE
    assert refused({"question": "Q", "answer": "A", "response": "B"}) == (
        Refusal.ANSWER_BESIDE,
        "--map answer=answer trains it in place of response, --metadata answer leaves it out",
    )
    assert texts(read({"question": "Q", "answer": "A", "response": "A"}))[-1] == ("assistant", "A")


# --- Calls and results, as data of others writes them ----------------------------------------------------------------


def says(text: str, role: str = "assistant") -> dict[str, Any]:
    return {"messages": [USER, {"role": role, "content": text}]}


LOOK = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
CALL = '{"name": "look", "arguments": {"at": "it"}}'


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"[{CALL}]",
        f"```json\n{CALL}\n```",
        f'{{"tool_calls": [{CALL}]}}',
        '{"type": "function", "function": {"name": "look", "arguments": "{}"}}',
        '{"thought": "I look.", "action": "look", "action_input": {}}',
    ],
)
def test_the_json_of_a_call_of_an_own_tool_is_no_answer(text: str) -> None:
    record = {"messages": [USER, {"role": "assistant", "content": text}], "tools": [LOOK]}
    assert refused(record) == (Refusal.MARKUP, "--text-as-is keeps it as text")
    assert texts(read(record, text_as_is=True))[-1] == ("assistant", text)
    for other in ({**record, "tools": [{**LOOK, "name": "seek"}]}, {"messages": record["messages"]}):
        assert texts(read(other))[-1] == ("assistant", text)  # an answer in JSON, as its question may ask for


@pytest.mark.parametrize("text", ['{"name": "Ada", "at": "look"}', "[]", '["look"]', f"Write {CALL}", "{look"])
def test_other_json_beside_tools_is_an_answer(text: str) -> None:
    record = {"messages": [USER, {"role": "assistant", "content": text}], "tools": [LOOK]}
    assert texts(read(record))[-1] == ("assistant", text)


def test_calls_of_toolace_are_also_known_by_the_tools_of_the_record() -> None:
    record = {"messages": [USER, {"role": "assistant", "content": '[look(at="it")]'}], "tools": [LOOK]}
    reason, remedy = refused(record)
    assert (reason, "--call-tags toolace" in remedy) == (Refusal.MARKUP, True)
    (call,) = read(record, call_tags="toolace").turns[-1].calls
    assert (call.name, call.arguments) == ("look", '{"at": "it"}')


def test_calls_one_a_line_between_two_tags_are_all_read() -> None:
    text = 'I do.\n<tool_call>\n{"name": "Look Up", "parameters": {"at": "a"}}\n{"name": "seek"}\n</tool_call>'
    turn = read({"messages": [USER, {"role": "assistant", "content": text}]}, call_tags="hermes").turns[-1]
    assert turn.texts == ("I do.",)
    assert [(call.name, call.arguments) for call in turn.calls] == [("Look_Up", '{"at": "a"}'), ("seek", "{}")]
    for wrong in ("{]", "{}\nand", "1\n2", "[]", ""):
        text = f"<tool_call>{wrong}</tool_call>"
        record = {"messages": [USER, {"role": "assistant", "content": text}]}
        assert refused(record, call_tags="hermes")[0] in (Refusal.MARKUP_UNCLEAR, Refusal.TOOL_CALL_INVALID)


def test_a_turn_with_a_call_that_python_wrote() -> None:
    called = {"role": "tool_call", "content": "{'name': 'look', 'arguments': '{\"at\": \"it\\'s\"}'}"}
    turns = read({"messages": [USER, called, {"role": "tool_response", "content": "R"}, ANSWER]}).turns
    assert [(call.name, call.arguments) for call in turns[1].calls] == [("look", '{"at": "it\'s"}')]


@pytest.mark.parametrize("key", ["tool", "tool_name"])
def test_a_call_names_its_tool_by_other_keys(key: str) -> None:
    record = says(f'<tool_call>{{"{key}": "look", "args": {{"at": "it"}}}}</tool_call>')
    (call,) = read(record, call_tags="hermes").turns[-1].calls
    assert (call.name, call.arguments) == ("look", '{"at": "it"}')


def test_a_function_call_that_is_a_list_of_calls() -> None:
    called = {"role": "assistant", "function_call": [{"name": "look", "arguments": {"at": at}} for at in "ab"]}
    results = {"role": "observation", "content": [{"found": True}, {"found": False}]}
    turns = read({"conversations": [USER, called, results, ANSWER], "functions": [LOOK]}).turns
    assert [call.arguments for call in turns[1].calls] == ['{"at": "a"}', '{"at": "b"}']
    assert turns[2].texts == ('[{"found": true}, {"found": false}]',)


def test_a_result_names_its_tool_as_ollama_does() -> None:
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]}
    turns = read({"messages": [USER, called, {"role": "tool", "tool_name": "look", "content": "R"}, ANSWER]}).turns
    assert (turns[2].name, turns[2].texts) == ("look", ("R",))


WITHOUT = '{"name": "look", "arguments": {"at": null}}'


@pytest.mark.parametrize(
    ("record", "options"),
    [
        (says(f"<tool_call>{WITHOUT}</tool_call>"), {"call_tags": "hermes"}),
        (says("[look(at=None)]"), {"call_tags": "toolace"}),
        (says(WITHOUT, "function_call"), {}),
        (says("{'name': 'look', 'arguments': {'at': None}}", "tool_call"), {}),
        ({"query": "Q", "answers": f"[{WITHOUT}]"}, {}),
        ({"messages": [USER, {"role": "assistant", "tool_calls": f"[{WITHOUT}]"}]}, {}),
    ],
)
def test_nulls_of_a_call_that_was_a_text_are_its_arguments(record: dict[str, Any], options: dict[str, Any]) -> None:
    (call,) = read({**record, "tools": [LOOK]}, **options).turns[-1].calls
    assert json.loads(call.arguments) == {"at": None}


def test_rendered_text_of_harmony_is_refused_where_no_parser_is_brought() -> None:
    """As by tool calls and traces."""
    text = "<|start|>user<|message|>Q<|end|><|start|>assistant<|channel|>final<|message|>A<|return|>"
    assert refused({"text": text})[0] is Refusal.MARKUP_UNCLEAR


def test_tools_in_metadata_that_is_a_text_are_not_passed_over() -> None:
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]}
    record = {"messages": [USER, called], "metadata": json.dumps({"tools": [LOOK], "at": 1})}
    reason, remedy = refused(record)
    assert (reason, '.tools = (.["metadata"] | fromjson)["tools"]' in remedy) == (Refusal.TOOLS_INVALID, True)
    for other in (json.dumps({"at": 1, "tool": "x"}), '{"tools": [', "{tools}"):
        assert read({**record, "metadata": other}).rest == {"metadata": other}


# --- NeMo Gym --------------------------------------------------------------------------------------------------------


def test_reasoning_that_nemo_gym_writes_as_a_summary() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in ("R1", "R2")]}
    record = {
        "responses_create_params": {"input": "Q", "reasoning": {"effort": "low"}},
        "response": {"output": [thought, said]},
    }
    reason, remedy = refused(record)
    assert (reason, "--map reasoning=summary" in remedy) == (Refusal.KEY_UNKNOWN, True)
    read_as = read(record, maps=("reasoning=summary",))
    assert [turn.reasoning for turn in read_as.turns] == [(), ("R1\n\nR2",)]
    assert read_as.settings == {"reasoning_effort": "low"}


@pytest.mark.parametrize("flag", [{"mask_sample": True}, {"instance_config": {"id": "i", "mask_sample": True}}])
def test_a_record_that_nemo_gym_masks_is_not_trained(flag: dict[str, Any]) -> None:
    record = {"messages": [USER, ANSWER]}
    assert refused({**record, **flag})[0] is Refusal.LABEL_UNCLEAR
    off = json.loads(json.dumps(flag).replace("true", "false"))
    assert texts(read({**record, **off})) == [("user", "Q"), ("assistant", "A")]


def test_tools_and_calls_that_are_parts_of_contents_are_read() -> None:
    tools = [{"name": name, "parameters": {"type": "object"}} for name in ("look", "move")]
    calls = [{"name": "look", "arguments": {"at": "x"}}, {"name": "move", "arguments": {}}]
    system = [{"type": "text", "value": "S"}, {"type": "tools", "value": json.dumps(tools)}]
    thought = {"type": "reasoning", "value": "R"}
    messages = [
        {"role": "system", "content": system, "loss_weight": 0.0},
        {"role": "user", "content": [{"type": "text", "value": "Q"}], "loss_weight": 0.0},
        {"role": "assistant", "content": [thought, {"type": "tool_calls", "value": json.dumps(calls)}]},
    ]
    done = read({"messages": messages})
    assert [tool["name"] for tool in done.tools] == ["look", "move"]
    assert texts(done) == [("system", "S"), ("user", "Q"), ("assistant", "")]
    assert done.turns[2].reasoning == ("R",)
    assert [(call.name, json.loads(call.arguments)) for call in done.turns[2].calls] == [
        ("look", {"at": "x"}),
        ("move", {}),
    ]
    messages[2] = {"role": "assistant", "content": [{"type": "tool_calls", "value": "look"}]}
    assert refused({"messages": messages})[0] is Refusal.PART_UNKNOWN


def test_an_id_or_a_call_that_is_repeated_is_one() -> None:
    call = {"function": "look", "args": {"at": "x"}, "id": "c"}
    for repeated in ({"id": "c", "call_id": "c"}, {"call_id": "c"}):
        messages = [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [{**call, **repeated}]},
            {"role": "tool", "content": "there", "tool_call_id": "c", "tool_call": call, "error": None},
            ANSWER,
        ]
        done = read({"messages": messages})
        assert [turn.calls[0].id for turn in done.turns if turn.calls] == ["c"]
        assert done.message_metadata == ({"message": 2, "tool_call": call},)
    other = {"role": "assistant", "content": None, "tool_calls": [{**call, "call_id": "d"}]}
    assert refused({"messages": [USER, other]})[0] is Refusal.KEY_UNKNOWN
    messages[2] = {**messages[2], "tool_call": {**call, "id": "d"}}
    assert refused({"messages": messages})[0] is Refusal.KEY_UNKNOWN
