"""The remedy for a record of no known form: options that name its keys, guessed from their names.

In: the first record. Out: a remedy for the error. This only suggests options; the user decides.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from spanloom.conversations.forms.beside import parsed_or_none
from spanloom.conversations.forms.form import are_messages, jq_path, listed
from spanloom.conversations.forms.keys import KNOWN_NAMES
from spanloom.conversations.reading.markup import template_mark, turns_mark
from spanloom.conversations.reading.messages import ROLE_KEYS, ROLES
from spanloom.conversations.turns import RecordRefusedError, says_nothing

SHAPES = (
    '{"messages": [{"role": "user", "content": "…"}, …]}, {"conversations": [{"from": "human", "value": "…"}, …]} or '
    '{"prompt": "…", "response": "…"}'
)
TEXTS = ("text", "content", "document", "body", "raw_content")
"""Names of columns with plain text, which is not a conversation."""
PLAIN_TEXT = "plain text without a question is trained as packed chat (`spanloom chat`, docs/families/chat.md)"
QUESTIONS = (
    "prompt", "query", "question", "instruction", "problem", "input", "inputs", "input_text", "text_input", "message",
    "user", "human", "task",
)  # fmt: skip
ANSWERS = (
    "response", "completion", "output", "attempt", "deepseek_attempt", "solution", "generated_solution", "answer",
    "output_text", "target", "targets", "correct_answer", "reply", "assistant", "chosen", "generation",
    "generated_text", "llm_response", "model_response", "model_output", "bot", "gpt", "ground_truth",
    "expected_output",
)  # fmt: skip
_NAMES = ("user", "human", "task")
"""Of these, names of columns that beside a text may be a name."""
REASONINGS = ("reasoning", "reasoning_content", "thinking", "complex_cot", "cot", "deepseek_thinking_trajectory")
"""Names of such columns, in lower case; the likeliest first."""


def remedy(record: Any) -> str:
    """The remedy for a record of no known form."""
    if isinstance(record, list) and record and _are_asked(record[0]):
        return "each item of the record is a conversation: jq -c '.[]' FILE > records.jsonl makes a record of each"
    if isinstance(record, str) and isinstance(parsed_or_none(record), dict):
        return "each record is the JSON text of one: jq -c 'fromjson' FILE > records.jsonl makes records of them"
    if not isinstance(record, dict):
        return _shapes(record)
    if isinstance(record.get("custom_id"), str) and isinstance(record.get("response", record.get("result")), dict):
        return _OF_BATCH
    asked = {
        key for key, value in record.items() if key.lower() in QUESTIONS and isinstance(value, str) and value.strip()
    }
    spans = [key for key, value in record.items() if isinstance(value, list) and value and span_remedy(value[0])]
    if wrapped := spans or [key for key, value in record.items() if _holds_records(value, asked)]:
        return _taken_out(record, wrapped)
    for key, rows in record.items():
        if inner := _inner_records(rows, asked):
            program = f"{jq_path(key)}[] | {jq_path(inner)}"
            return (
                f"the records are under {inner!r} of each of {key!r}: jq -c '{program}' FILE > records.jsonl takes "
                "them out"
            )
    if session := _session(record):
        return session
    if {"conversation_a", "conversation_b", "winner"} <= record.keys():
        chosen = 'if .winner == "model_a" then .conversation_a else .conversation_b end'
        program = f'select(.winner == ("model_a", "model_b")) | {{messages: ({chosen})}} + .'
        return f"each record holds two conversations: jq -c '{program}' FILE > records.jsonl takes the winner's"
    if {"role", "text"} <= record.keys() and "parent_id" in record:
        return "each record is one message of a tree: write one record for each path through it"
    if {"mapping", "current_node"} <= record.keys():
        return f"each record is a tree: jq -c '{_CHATGPT}' FILE > records.jsonl takes the path that was shown last"
    prompt = record.get("prompt")
    if _is_tree(prompt, "replies") and _key(("text",), prompt):
        return f"each record is a tree: jq -c '{_OASST}' FILE > records.jsonl takes the replies of the best rank"
    if _is_tree(prompt, "replies") or _is_tree(record.get("mapping"), "children"):
        return "each record is a tree of messages: write one record for each path through it"
    if are_messages([record]):
        return _gathered(record)
    if len(record) > 1 and all(_holds_dialogue(each) or _is_answered(each) for each in record.values()):
        return (
            "each value is a record: jq -c 'to_entries[] | .value + {id: .key}' FILE > records.jsonl makes records "
            "of them, with their keys as ids"
        )
    columns = [key for key, value in record.items() if _is_column(value)]
    if len(columns) == len(record) > 0:
        return (
            f"{columns[0]!r} is a column of all records, as to_json of pandas writes it: write the records, "
            'DataFrame.to_json(FILE, orient="records", lines=True)'
        )
    query, answer, reasoning = (_key(names, record) for names in (QUESTIONS, ANSWERS, REASONINGS))
    if query and answer:
        return f"--map query={query},answer={answer}" + (f",reasoning={reasoning}" if reasoning else "")
    dialogues = [key for key, value in record.items() if _holds_messages(value)]
    spoken = _key(("content", "text"), record) if query and query.lower() not in _NAMES else None
    if spoken and {*dialogues} <= {*KNOWN_NAMES["history"]}:
        return f"--map query={query},answer={spoken}" + (f",reasoning={reasoning}" if reasoning else "")
    if dialogues:
        return _mapped(dialogues[0], record[dialogues[0]], answer)
    if query and isinstance(outputs := record.get("outputs"), list) and _key(("text",), next(iter(outputs), None)):
        taken = ".outputs[0] as $first | . + {response: $first.text, finish_reason: $first.finish_reason}"
        return f"jq -c '{taken} | del(.outputs)' FILE > records.jsonl takes the first of 'outputs' as the response"
    if opened := _opened(record):
        return f"the question and the answer are within objects: jq -c '{opened}' FILE > records.jsonl takes them out"
    if inner := next((key for key, value in record.items() if _holds_dialogue(value)), None):
        path = jq_path(inner)
        return (
            f"the messages are within {inner!r}: jq -c '. + {path} | del({path})' FILE > records.jsonl takes them out"
        )
    if len(record) == 1 and any(sign in next(iter(record)) for sign in (";", "\t", "|")):
        return "a .csv file has commas between its columns, a .tsv file has tabs"
    if any(len(key.split()) > 3 for key in record):
        return "a .csv or .tsv file names its columns in the first line: add one, such as question,answer"
    return _shapes(record)


_CHATGPT = (
    ". as $all | {id, messages: [.current_node | recurse($all.mapping[.].parent; . != null) | $all.mapping[.].message "
    '| objects | select(.content.parts != [""]) | {role: .author.role, content: .content.parts, weight} '
    '+ if .recipient == "all" then {} else {recipient} end] | reverse}'
)
"""An export of ChatGPT. Content that is no list of parts (code, thoughts) becomes null, which is refused."""
_OASST = (
    "{id: .message_tree_id, messages: [.prompt | recurse(.replies // [] | map(select(.deleted != true and "
    ".review_result != false)) | sort_by(.rank // 1e9) | .[0]; . != null) "
    "| {role, content: .text}]}"
)
_OF_BATCH = (
    "each record is an answer of a batch, and its question is in the file of requests: jq -cn --slurpfile asked "
    "REQUESTS.jsonl 'INDEX($asked[]; .custom_id) as $by | inputs | ($by[.custom_id] | .body // .params) + "
    "(.response.body // {message: .result.message}) + {id: .custom_id}' FILE > records.jsonl joins them"
)
"""OpenAI's and Anthropic's."""


def _opened(record: Mapping[str, Any]) -> str | None:
    """jq's program for a record whose question and answer are within two objects (LangSmith's `inputs`, `outputs`)."""
    inner = {key: value for key, value in record.items() if isinstance(value, dict)}
    holds = {key: _key(QUESTIONS, value) or any(map(_holds_messages, value.values())) for key, value in inner.items()}
    asked = next((key for key, value in holds.items() if value), None)
    if asked is None:
        return None
    replies = (*ANSWERS, "content", "text") if _key(QUESTIONS, inner[asked]) else ANSWERS
    replied = next(
        (
            key
            for key, value in inner.items()
            if key != asked and (_key(replies, value) or are_messages([value.get("message")]))
        ),
        None,
    )
    if replied is None or inner[asked].keys() & inner[replied].keys():
        return None
    paths = jq_path(asked), jq_path(replied)
    return f". + {paths[0]} + {paths[1]} | del({paths[0]}, {paths[1]})"


def listed_records(record: Mapping[str, Any], key: str) -> str | None:
    """The remedy for a list of records, each with messages of its own, or of conversations, under a key of messages;
    None for any other."""
    value = record[key]
    first = value[0] if isinstance(value, list) and value else None
    if _are_asked(first):
        path = jq_path(key)
        program = f". as $all | {path}[] as $one | $all | {path} = $one"
        return f"each of {key!r} is a conversation: jq -c '{program}' FILE > records.jsonl makes a record of each"
    if not isinstance(first, dict) or not first.keys().isdisjoint(ROLE_KEYS):
        return None
    return _taken_out(record, [key]) if any(map(_holds_messages, first.values())) else None


CONVERSATION_KEYS = (
    "conversation_id", "conv_id", "c_id", "chat_id", "session_id", "thread_id", "dialog_id", "dialogue_id", "group_id",
)  # fmt: skip
"""Names of columns that say to which conversation a message belongs."""


SPAN_TYPES = frozenset({
    "span", "event", "generation", "agent", "tool", "chain", "retriever", "evaluator", "embedding", "guardrail", "llm",
    "prompt", "parser", "reranker",
})  # fmt: skip
"""Types of the spans of a trace, in lower case: Langfuse's observations, LangSmith's runs, OpenInference's spans."""
_TRACE_KEYS = ("trace_id", "traceId")
_OPERATION = "gen_ai.operation.name"
"""The attribute of OpenTelemetry that says what a span is."""
_OF_MODELS = ("chat", "generate_content", "text_completion")
"""What it says of a call of a model."""
_TYPE_KEYS = ("type", "run_type", "observation_type", "span_kind")


def span_remedy(record: Any) -> str | None:
    """The remedy for a span of a trace, the input and output of one step of a program; None for any other record."""
    if not isinstance(record, dict):
        return None
    for path, held in ((".", record), (".attributes", record.get("attributes"))):
        name = held.get(_OPERATION) if isinstance(held, dict) else None
        if isinstance(name, str) and (name not in _OF_MODELS or {"input", "output"} <= record.keys()):
            kept = ", ".join(map(_quoted, _OF_MODELS))
            return _calls(f'select({path}["{_OPERATION}"] == ({kept}))', record)
    if all(says_nothing(record.get(key)) for key in _TRACE_KEYS):
        return None
    for key in _TYPE_KEYS:
        name = record.get(key)
        if isinstance(name, str) and name.lower() in SPAN_TYPES:
            model = "llm" if key in ("run_type", "span_kind") else "generation"
            program = f"select({jq_path(key)} == {_quoted(model.upper() if name.isupper() else model)})"
            return _calls(program, record)
    return None


def _calls(program: str, record: Mapping[str, Any]) -> str:
    taken = ",".join(
        f"{meaning}={next((at for at in names if at in record), names[0])}"
        for meaning, names in (("query", ("input", "inputs")), ("answer", ("output", "outputs")))
    )
    return f"jq -c '{program}' FILE > calls.jsonl keeps the calls of a model, and --map {taken} reads them"


def _quoted(text: str) -> str:
    return f'"{text}"'


_OF_SESSIONS = frozenset({"sessionId", "leafUuid", "parentUuid"})
"""Keys of the events of Claude Code, which its first lines have even where they hold no message."""


def _session(record: Mapping[str, Any]) -> str | None:
    """The remedy for an event of a session of Claude Code or Codex: a file of them is one conversation."""
    if not isinstance(record.get("type"), str):
        return None
    if isinstance(record.get("payload"), dict):
        program = '{input: [.[] | select(.type == "response_item") | .payload]}'
    elif not _OF_SESSIONS.isdisjoint(record):
        # Claude Code itself writes answers such as "API Error: …", under the name of no model.
        said = 'objects | select(.isSidechain != true) | select(.message | objects | .role and .model != "<synthetic>")'
        program = f"[.[] | {said}] | group_by(.sessionId)[] | {{id: .[0].sessionId, messages: map(.message)}}"
    else:
        return None
    return (
        f"each record is an event of a session: jq -cs '{program}' FILE > session.jsonl makes a record of each "
        "session, for a file of JSON Lines"
    )


def _is_tree(value: Any, branches: str) -> bool:
    """Whether a value is a message with replies, or holds the nodes of a tree of messages by their ids (ChatGPT)."""
    if not isinstance(value, dict):
        return False
    return branches in value or any(isinstance(node, dict) and branches in node for node in value.values())


def _gathered(record: Mapping[str, Any]) -> str:
    """The remedy for records of one message each."""
    if not isinstance(_role(record), str):
        return "the columns are those of messages: give them under one key, " + '{"messages": {"role": […], …}}'
    if key := next((name for name in CONVERSATION_KEYS if name in record), None):
        path = jq_path(key)
        program = f"group_by({path})[] | {{id: .[0]{path}, messages: map(del({path}))}}"
        return (
            f"each record is one message: jq -cs '{program}' FILE > conversations.jsonl makes a record of each "
            f"{key!r}, for a file of JSON Lines"
        )
    return (
        "each record is one message: if all of them are one conversation, jq -cs 'flatten(1)' FILE > "
        "conversation.jsonl makes one record of it, for a file of JSON Lines"
    )


def _is_column(value: Any) -> bool:
    """Whether a value holds messages or texts by the numbers of their rows, from 0."""
    return isinstance(value, dict) and "0" in value and all(map(str.isdecimal, value))


def _shapes(record: Any) -> str:
    shapes = (
        f"give records such as {SHAPES}; --map query=KEY,answer=KEY or --map messages=KEY says which key means what"
    )
    texts = [record] if isinstance(record, str) else []
    texts += [record[key] for key in TEXTS if isinstance(record.get(key), str)] if isinstance(record, dict) else []
    if marks := [mark for text in texts if (mark := template_mark(text) or turns_mark(text))]:
        return f"{shapes}; the text holds {marks[0]!r}: give the messages that it was written from"
    return f"{shapes}; {PLAIN_TEXT}" if texts else shapes


def _mapped(key: str, messages: Any, answer: str | None) -> str:
    """The option for messages under an unknown key, which may lack an answer."""
    roles = {ROLES.get(str(_role(message)).strip().lower(), "") for message in listed(messages)}
    if roles == {"assistant"}:
        return f"the messages under {key!r} hold no question: add the questions"
    if not roles <= {"system", "developer", "user"}:
        return f"--map messages={key}"
    if answer:
        return f"--map query={key},answer={answer}"
    return f"the messages under {key!r} hold no answer, so nothing of them would be trained: add the answers"


def _role(message: Mapping[str, Any]) -> Any:
    return next((message[key] for key in ROLE_KEYS if key in message), None)


def _taken_out(record: Mapping[str, Any], wrapped: list[str]) -> str:
    """The remedy for a record that holds lists of records. A question, a system text or tools next to a list are copied
    to each of them."""
    path = jq_path(wrapped[0])
    if len(wrapped) > 1:
        names = ", ".join(map(repr, wrapped))
        command = f"jq -c '{path}[]' FILE > records.jsonl"
        return f"the records are in lists under {names}: {command} takes out those of the first"
    program = f"{path}[]"
    beside = [*KNOWN_NAMES["system"], *KNOWN_NAMES["tools"]]
    if _key(QUESTIONS, record) or not all(says_nothing(record.get(key)) for key in beside):
        program = f". as $all | {path}[] | ($all | del({path})) + ."
    return f"the records are in a list under {wrapped[0]!r}: jq -c '{program}' FILE > records.jsonl takes them out"


def _holds_records(value: Any, asked: set[str]) -> bool:
    """Whether a value is a list of objects that hold lists of messages, or a question and its answer. An empty question
    (Self-Instruct's `input`) counts if the record has another one. `asked`: the keys of the record with a question."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) for item in value)
        and not are_messages(value)
        and (
            any(map(_holds_messages, value[0].values()))
            or bool(
                not value[0].keys().isdisjoint(QUESTIONS)
                and (_key(QUESTIONS, value[0]) or asked - value[0].keys())
                and _key(ANSWERS, value[0])
            )
        )
    )


def _inner_records(rows: Any, asked: set[str]) -> str | None:
    """The key under which each object of a list holds a record, as the rows of a viewer of data sets; None without."""
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        return None
    return next((key for key in rows[0] if _holds_records([row.get(key) for row in rows], asked)), None)


def _holds_dialogue(value: Any) -> bool:
    """Whether an object holds a list of messages."""
    return isinstance(value, dict) and any(map(_holds_messages, value.values()))


def _is_answered(value: Any) -> bool:
    """Whether an object holds a question and its answer."""
    return _key(QUESTIONS, value) is not None and _key(ANSWERS, value) is not None


def _holds_messages(value: Any) -> bool:
    try:
        return not says_nothing(value) and are_messages(listed(value))
    except RecordRefusedError:
        return False


def _are_asked(value: Any) -> bool:
    """Whether a value is a list of messages, at least one of them a question."""
    return bool(value) and are_messages(value) and any(ROLES.get(str(_role(each)).lower()) == "user" for each in value)


def _key(names: Iterable[str], record: Any) -> str | None:
    """The first key of the record that is one of the names and has a text."""
    if not isinstance(record, dict):
        return None
    small = {key.lower(): key for key, value in record.items() if isinstance(value, str) and value.strip()}
    return next((small[name] for name in names if name in small), None)
