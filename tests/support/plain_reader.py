"""What the assistant says in a record of chat data, read by `json` and `re` alone: nothing here is shared with what it
checks.

In: a record as a JSON value. Out: the texts of the assistant in order, calls as their arguments, and the texts of all
others. A shape is known by its keys; what is published and not known here raises KeyError.
"""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

ASSISTANT = {"assistant", "gpt", "model", "ai", "bot", "chatgpt", "function_call", "tool_call"}
MARKS = re.compile(
    r"</?(?:think|thinking|reasoning|thought|tool_call)>|<\|(?:begin|end)_of_(?:thought|solution)\|>|<\|endoftext\|>|\s+"
)
RENDERED = re.compile(r"<\|start\|>(\w+)(.*?)<\|message\|>(.*?)<\|(?:end|return|call)\|>", re.DOTALL)

Spoken = tuple[bool, str]
"""Whether the assistant says it, and the text."""


def bare(text: str) -> str:
    """A text without tags and white space; a JSON object without its spelling."""
    try:
        value = json.loads(text)
    except ValueError:
        return MARKS.sub("", text)
    return json.dumps(value, sort_keys=True, separators=(",", ":")) if isinstance(value, dict) else MARKS.sub("", text)


def spoken(record: Any) -> list[Spoken]:
    """All texts of the conversation in a record, in order; of answers to choose from, the chosen one's."""
    return [(ours, text) for ours, text in _record(record) if isinstance(text, str) and text.strip()]


def _record(record: Any) -> Iterator[Spoken]:
    if isinstance(record, list):
        yield from _messages(record)
        return
    if "contents" in record:
        for content in record["contents"]:
            yield from _gemini(content)
        scored = record.get("completions") or ()
        for best in sorted(scored, key=lambda completion: completion["score"])[-1:]:
            yield from _gemini(best["completion"])
    elif "chat" in record:
        for turn in re.split(r"\n\n\n", record["chat"].strip()):
            name, _, text = turn.partition(":")
            yield name == "ASSISTANT", _functioncall(text)
    elif isinstance(record.get("text"), str) and "<|start|>" in record["text"]:
        yield from _rendered(record["text"])
    elif "preferred_output" in record:
        yield from _messages([*record["input"]["messages"], *record["preferred_output"]])
    elif "chosen" in record:
        yield from _chosen(record)
    elif isinstance(record.get("answers"), str | list):
        yield False, record["query"]
        for call in _json(record["answers"]):
            yield True, json.dumps(call["arguments"])
    elif isinstance(texts := record.get("data", record.get("conversations")), list) and isinstance(texts[0], str):
        yield from ((bool(number % 2), text) for number, text in enumerate(texts))
    elif isinstance(record.get("input"), list) or isinstance(record.get("output"), list):
        output = record.get("output") or []
        answer = [{"role": "assistant", "content": output}] if isinstance(output, str) else output
        for item in [*(record.get("input") or ()), *answer]:
            yield from _item(item)
    else:
        yield from _lists_or_columns(record)


def _lists_or_columns(record: dict[str, Any]) -> Iterator[Spoken]:
    if isinstance(record.get("completion"), list):  # verifiers: `answer` is what a reward compares with
        yield from _messages([*record["prompt"], *record["completion"]])
        return
    for key in ("messages", "conversations", "conversation", "trajectory"):
        if record.get(key):
            yield from _messages(_json(record[key]))
            return
    for question, answer in record.get("history") or ():
        yield False, question
        yield True, answer
    for key in ("instruction", "context", "input", "prompt", "question", "query", "problem"):
        yield False, record.get(key) or ""
    for key in ("thinking_trajectories", "reasoning", "deepseek_reasoning", "attempt", "deepseek_solution"):
        value = record.get(key)
        yield True, "".join(value) if isinstance(value, list) else value or ""
    answer = next((record[key] for key in ("response", "answer", "completion", "output") if record.get(key)), "")
    if "<|message|>" in answer:
        yield from _rendered(answer if answer.startswith("<|start|>") else "<|start|>assistant" + answer)
    else:
        yield True, answer


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _chosen(record: dict[str, Any]) -> Iterator[Spoken]:
    chosen = record["chosen"]
    if isinstance(chosen, str) and chosen.startswith("\n\nHuman:"):
        for turn in re.split(r"\n\n(?=Human:|Assistant:)", chosen.strip()):
            name, _, text = turn.partition(":")
            yield name == "Assistant", text
    elif isinstance(chosen, str):
        yield False, record.get("prompt") or record.get("question") or record.get("instruction") or ""
        yield True, chosen
    else:
        yield from _messages(
            [*(record.get("conversations") or ()), *(chosen if isinstance(chosen, list) else [chosen])]
        )


_CONTENT = ("content", "value", "text", "system_prompt", "parts")


def _messages(messages: list[Any]) -> Iterator[Spoken]:
    for message in messages:
        role = message.get("role", message.get("from")).lower()
        ours = role in ASSISTANT
        if role in ("function_call", "tool_call"):
            yield True, json.dumps(_json(_json(message.get("value", message.get("content")))["arguments"]))
            continue
        if message.get("recipient", "").startswith("functions."):
            yield True, "".join(part["text"] for part in message["content"])
            continue
        for key in ("reasoning_content", "reasoning", "thinking"):
            yield ours, message.get(key) or ""
        content = next((message[key] for key in _CONTENT if message.get(key)), "")
        for part in [content] if isinstance(content, str) else content:
            yield from _part(part, ours)
        for call in _json(message.get("tool_calls")) or ():
            arguments = call.get("function", call)["arguments"]
            yield True, json.dumps(_json(_json(arguments)))  # some data sets encode them twice


def _part(part: Any, ours: bool) -> Iterator[Spoken]:
    if isinstance(part, str):
        before, mark, after = part.partition("<tool_call>")
        if ours and mark:
            yield True, before
            for call in re.findall(r"(\{.*?\})\s*</tool_call>", after, re.DOTALL):
                yield True, json.dumps(json.loads(call)["arguments"])
        elif ours and (call := re.fullmatch(r"\[(\w+)\((\w+)=(.*)\)\]", part)):
            yield True, json.dumps({call[2]: ast.literal_eval(call[3])})
        else:
            yield ours, part
    elif part.get("type") == "tool_use":
        yield True, json.dumps(part["input"])
    elif "toolUse" in part:
        yield True, json.dumps(part["toolUse"]["input"])
    elif "reasoningContent" in part:
        yield ours, part["reasoningContent"]["reasoningText"]["text"]
    elif "toolResult" in part:
        yield from (
            (False, json.dumps(piece.get("json", piece.get("text")))) for piece in part["toolResult"]["content"]
        )
    elif part.get("type") == "tool_result":
        inner = part["content"]
        for piece in [inner] if isinstance(inner, str) else inner:
            yield from _part(piece, False)
    elif part.get("type") == "tool_call":
        yield True, json.dumps((part if "arguments" in part else _json(part["value"]))["arguments"])
    elif part.get("type") == "tool_call_response":
        yield False, part["response"]
    elif "toolCallId" in part:  # of a model's message the call or the result, of a UI message both
        if part["type"] != "tool-result":
            yield True, json.dumps(part["input"])
        if "output" in part:
            yield False, part["output"]["value"] if isinstance(part["output"], dict) else part["output"]
    elif part.get("type") not in ("system_content", "developer_content", "step-start"):
        yield ours, next((part[key] for key in ("text", "value", "thinking", "content") if part.get(key)), "")


def _gemini(content: dict[str, Any]) -> Iterator[Spoken]:
    for part in content["parts"]:
        if "functionCall" in part:
            yield True, json.dumps(part["functionCall"]["args"])
        elif "functionResponse" in part:
            yield False, json.dumps(part["functionResponse"]["response"])
        else:
            yield content.get("role") == "model", part["text"]


def _item(item: dict[str, Any]) -> Iterator[Spoken]:
    kind = item.get("type", "message")
    if kind == "function_call":
        yield True, item["arguments"]
    elif kind == "function_call_output":
        yield False, item["output"]
    elif kind == "reasoning":
        yield from ((True, part["text"]) for part in item.get("content") or ())
    else:
        content = item["content"]
        for part in [content] if isinstance(content, str) else content:
            yield item["role"] == "assistant", part if isinstance(part, str) else part["text"]


def _functioncall(text: str) -> str:
    match = re.search(r"<functioncall>.*?\"arguments\": '?(\{.*\})'?\}", text, re.DOTALL)
    return match[1] if match else text


def _rendered(text: str) -> Iterator[Spoken]:
    yield from ((match[1] == "assistant", match[3]) for match in RENDERED.finditer(text))
