"""The examples of forms in docs/examples/forms become the conversations that a person reads in them.

The expected lines are written by hand from the files. `system` and tools are looked at where a form brings them.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from spanloom.conversations.forms.registry import FORMS
from spanloom.conversations.outcomes import LeftAway
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.messages import SystemFields, harmony_messages
from spanloom.families.harmony.contract.profile import CHAT_OF_ANY_MODEL
from spanloom.families.harmony.convert.chat import conversations
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion, Converted
from spanloom.families.harmony.convert.preview import preview_documents

FOLDER = REPOSITORY / "docs/examples/forms"
BRIEF = "developer: Be brief."
HUSUM = 'call tide_table: {"harbour": "Husum"}'
SAIL = ["user: Name a sail.", "final: The jib."]
MORE = [*SAIL, "user: Another?", "final: The spinnaker."]
THREADS = [
    "user: How many threads in 20 inches at 24 an inch?",
    "analysis: 20 times 24 is 480.",
    "final: 480 threads.",
]
ASKED = [BRIEF, "user: High water at Husum?"]
LOOKED = ["analysis: Look it up.", "commentary: I will look.", HUSUM, "tool tide_table: 13:05", "final: At 13:05."]

EXAMPLES: dict[str, tuple[str, dict[str, Any], list[list[str]]]] = {
    "harmony.jsonl": ("harmony", {}, [[*ASKED, "analysis: The table says it.", *LOOKED[1:]]]),
    "harmony_text.jsonl": (
        "harmony_text",
        {},
        [
            [
                BRIEF,
                "user: What is a bight?",
                "analysis: A bay, or a loop of rope.",
                "final: A wide bay, or a loop in a rope.",
            ]
        ],
    ),
    "responses.jsonl": ("responses", {}, [[*ASKED, *LOOKED]]),
    "anthropic.jsonl": ("openai_messages", {}, [[*ASKED, *LOOKED]]),
    "bedrock.jsonl": (
        "openai_messages",
        {},
        [[*ASKED, *LOOKED[:3], 'tool tide_table: {"high": "13:05"}', "final: At 13:05."]],
    ),
    "opentelemetry.jsonl": ("openai_messages", {}, [[*ASKED, *LOOKED]]),
    "ai_sdk.jsonl": ("openai_messages", {}, [[*ASKED, *LOOKED], [*ASKED, *LOOKED]]),
    "gemini.jsonl": (
        "gemini",
        {},
        [[*ASKED, "analysis: Look it up.", HUSUM, 'tool tide_table: {"high": "13:05"}', "final: At 13:05."]],
    ),
    "preference.jsonl": (
        "preference",
        {},
        [
            ["user: Is a knot slower than a kilometre an hour?", "final: No, it is 1.852 of them."],
            ["user: And a mile an hour?", "final: A knot is 1.15 of them."],
        ],
    ),
    "vertex_preference.jsonl": ("gemini", {}, [SAIL]),
    "preference_openai.jsonl": ("preference", {}, [SAIL]),
    "preference_turns.jsonl": ("preference", {}, [SAIL]),
    "ultrafeedback.jsonl": ("preference", {}, [SAIL]),
    "hh_rlhf.jsonl": ("preference", {}, [SAIL]),
    "kto.jsonl": ("columns", {}, [["user: Name a mast.", "final: The mizzen."]]),
    "hermes.jsonl": (
        "sharegpt",
        {"call_tags": "hermes", "drop": ("role:system",)},
        [
            [
                "user: High water at Husum?",
                "commentary: I will look.",
                HUSUM,
                'tool tide_table: {"name": "tide_table", "content": "13:05"}',
                "final: At 13:05.",
            ]
        ],
    ),
    "toolace.jsonl": (
        "sharegpt",
        {"call_tags": "toolace", "drop": ("system",)},
        [
            [
                "user: High water at Husum?",
                'call Tide_Table: {"harbour": "Husum"}',
                'tool Tide_Table: [{"name": "Tide Table", "results": {"high": "13:05"}}]',
                "final: At 13:05.",
            ]
        ],
    ),
    "xlam.jsonl": ("xlam", {}, [["user: High water at Husum?", HUSUM]]),
    "glaive.jsonl": (
        "glaive",
        {},
        [
            [
                "developer: You are a helpful assistant with access to the following functions. Use them if required -",
                "user: High water at Husum?",
                HUSUM,
                'tool tide_table: {"high": "13:05"}',
                "final: At 13:05.",
            ]
        ],
    ),
    "s1k.jsonl": ("s1k", {}, [THREADS]),
    "open_thoughts.jsonl": ("open_thoughts", {}, [THREADS]),
    "stratos.jsonl": ("sharegpt", {"think_tags": True}, [["developer: Think first.", *THREADS]]),
    "verifiers.jsonl": (
        "verifiers",
        {},
        [
            [
                "developer: Answer with the number alone.",
                "user: A hank of rope has 40 m. How many hanks make 200 m?",
                "final: 5",
            ]
        ],
    ),
    "nemotron.jsonl": ("nemotron", {"think_tags": True}, [["developer: detailed thinking on", *THREADS]]),
    "wildchat.jsonl": ("openai_messages", {}, [SAIL]),
    "ultrachat.jsonl": ("alternating", {}, [MORE]),
    "lima.jsonl": ("alternating", {}, [MORE]),
    "swe_agent.jsonl": (
        "trajectories",
        {},
        [
            [
                "developer: You repair boats.",
                "user: The pump fails.",
                "final: I look at its fuse.\n```\nls fuses\n```",
                "user: blown",
                "final: I put in a new one.\n```\nsubmit\n```",
            ]
        ],
    ),
    "openhands.jsonl": (
        "openai_messages",
        {"call_tags": "openhands"},
        [
            [
                "developer: You repair boats.",
                "user: The pump fails.",
                "commentary: I look at its fuse.",
                'call bash: {"command": "ls fuses"}',
                "tool bash: blown",
                "final: It is blown.",
            ]
        ],
    ),
    "llama_factory_v1.jsonl": ("openai_messages", {}, [[*ASKED, LOOKED[0], *LOOKED[2:]]]),
    "dolly.jsonl": (
        "dolly",
        {},
        [
            [
                "user: Which sail is in front?\n\nA sloop has a jib before the mast and a main sail behind it.",
                "final: The jib.",
            ],
            ["user: Name a knot.", "final: The bowline."],
        ],
    ),
    "alpaca_history.jsonl": (
        "columns",
        {},
        [[BRIEF, *SAIL, "user: Another?\n\nNot the jib.", "final: The spinnaker."]],
    ),
    "pairs.jsonl": ("pairs", {}, [[BRIEF, *MORE]]),
    "columns.csv": (
        "columns",
        {},
        [
            ["user: Name a sail, please.", "final: The jib."],
            ["user: A knot?", "final: The bowline.\nIt holds."],
        ],
    ),
}
EXAMPLES["columns.tsv"] = EXAMPLES["columns.csv"]
LEFT_OUT = {"kto.jsonl": 1}
REJECTED = {
    "preference.jsonl": 2,
    **dict.fromkeys(
        (
            "preference_openai.jsonl",
            "preference_turns.jsonl",
            "ultrafeedback.jsonl",
            "hh_rlhf.jsonl",
            "vertex_preference.jsonl",
        ),
        1,
    ),
}


def lines(converted: Converted) -> list[str]:
    """The messages of a conversation as a person writes them down, those without a text left away."""
    written: list[str] = []
    for message in harmony_messages(converted.conversation):
        for part in message["content"]:
            text = part.get("text", part.get("instructions"))
            if message["role"] == "tool":
                name = f"tool {message['name'].removeprefix('functions.')}"
            elif message.get("recipient"):
                name = f"call {message['recipient'].removeprefix('functions.')}"
            else:
                name = message.get("channel") or message["role"]
            written += [] if text is None else [f"{name}: {text}"]
    return written


def read(path: Path, **options: Any) -> tuple[str, list[Any]]:
    conversion = ChatConversion(**options)
    chat = open_chat([path], conversion)
    return chat.form.name, list(conversations(chat, conversion))


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_is_read_as_a_person_reads_it(name: str) -> None:
    form, options, expected = EXAMPLES[name]
    found, done = read(FOLDER / name, **options)
    assert found == form
    assert [lines(one) for one in done if isinstance(one, Converted)] == expected, done
    assert sum(isinstance(one, LeftAway) for one in done) == LEFT_OUT.get(name, 0) == len(done) - len(expected)
    for one in done:
        if isinstance(one, Converted):
            assert parse_conversation(one.row["messages_json"], profile=CHAT_OF_ANY_MODEL).labels.any()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_preview_of_an_example_trains_the_lines_of_the_assistant(name: str, asset: Path) -> None:
    """The documents of a preview are those of a build: through them a form is seen as a model learns it."""
    _, options, expected = EXAMPLES[name]
    done = [one for one in read(FOLDER / name, **options)[1] if isinstance(one, Converted)]
    for one, conversation in zip(done, expected, strict=True):
        ours = [line for line in conversation if line.startswith(("analysis:", "commentary:", "final:", "call "))]
        documents, total = preview_documents(one, asset)
        assert preview_documents(one, asset, 1) == (documents[:1], total == len(documents) and total)
        # Each run is counted once: a document trains one, or its notes say how many.
        runs = sum(int(document.notes[0].split()[0]) if document.notes else 1 for document in documents)
        roles = [message["role"] for message in json.loads(one.row["messages_json"])["messages"]]
        assert runs == sum(pair[1] == "assistant" != pair[0] for pair in pairwise([None, *roles]))
        trained = "".join(token.text for document in documents for token in document.tokens if token.trained)
        shown = "".join(token.text for token in documents[-1].tokens)
        for line in conversation:
            text = line.partition(": ")[2]
            assert (text in trained) or line not in ours, line
            assert text in shown or line in ours, line


def test_every_form_has_an_example_and_every_example_is_read() -> None:
    assert set(EXAMPLES) == {path.name for path in FOLDER.iterdir()}
    assert {form.name for form in FORMS} == {form for form, _, _ in EXAMPLES.values()}


@pytest.mark.parametrize(
    "name", ["responses", "anthropic", "bedrock", "gemini", "harmony", "hermes", "toolace", "glaive", "xlam"]
)
def test_definitions_of_functions_come_along(name: str) -> None:
    _, options, _ = EXAMPLES[f"{name}.jsonl"]
    _, (done,) = read(FOLDER / f"{name}.jsonl", **options)
    developer = harmony_messages(done.conversation)[1]["content"][0]
    (tool,) = developer["tools"]["functions"]["tools"]
    assert tool["name"].lower() == "tide_table"
    assert tool["parameters"]["type"] == "object"
    assert tool["parameters"]["properties"]["harbour"]["type"] == "string"
    assert tool["parameters"]["required"] == ["harbour"]


def test_a_system_message_of_harmonys_own_is_kept_and_options_fill_the_rest() -> None:
    fields = SystemFields(model_identity="not this", start_date="2026-01-31")
    for name, effort in (("harmony.jsonl", "Low"), ("harmony_text.jsonl", "High")):
        _, (done,) = read(FOLDER / name, system_fields=fields)
        system = harmony_messages(done.conversation)[0]["content"][0]
        assert (system["model_identity"], system["reasoning_effort"]) == ("You are Pilot.", effort)
        # A rendered text says all of its system message; JSON leaves open what it does not name.
        assert system["conversation_start_date"] == (None if name == "harmony_text.jsonl" else "2026-01-31")


def test_rendered_text_renders_to_the_same_text_again(encoding: Any) -> None:
    from openai_harmony import Conversation, RenderConversationConfig

    _, (done,) = read(FOLDER / "harmony_text.jsonl")
    text = json.loads((FOLDER / "harmony_text.jsonl").read_text())["text"]
    conversation = Conversation.from_json(json.dumps({"messages": harmony_messages(done.conversation)}))
    config = RenderConversationConfig(auto_drop_analysis=False)
    assert encoding.decode_utf8(encoding.render_conversation_for_training(conversation, config)) == text


@pytest.mark.parametrize("name", sorted(REJECTED))
def test_a_rejected_answer_is_counted_and_nowhere_in_the_row(name: str) -> None:
    from spanloom.families.harmony.convert.chat import count_chat

    conversion = ChatConversion()
    chat = open_chat([FOLDER / name], conversion)
    counts, examples = count_chat(chat, conversion)
    assert (counts.dropped["rejected"], examples.refused) == (REJECTED[name], {})
    assert counts.dropped_characters["rejected"] >= 4 * REJECTED[name]
    for one in conversations(chat, conversion):
        assert isinstance(one, Converted)
        assert "keel" not in str(one.row)
