"""Refuses keys next to the conversation that must not become metadata: answers would be trained without media or tools
that they need, or although a flag of the record rejects them. What must not come beside messages: `beside_messages`.

In: the keys of a record that its form does not use. Out: a refusal that names the options that decide, or nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.reading.call_tags import is_json_of_call
from spanloom.conversations.reading.flags import FLAGS, SAMPLE, SET_ASIDE, TRUE_IS_MASKED, TRUE_IS_TRAINED
from spanloom.conversations.reading.markup import has_react
from spanloom.conversations.reading.tools import parsed_json
from spanloom.conversations.reading.verdicts import is_doubtful, is_preference, is_verdict, says
from spanloom.conversations.turns import Reading, RecordRefusedError, Refusal, Turn, says_nothing
from spanloom.records.scalars import truth

MEDIA = ("images", "image", "videos", "video", "audio", "audios")
"""Columns of media. As metadata, the text would be trained without them."""
_MEDIA = re.compile(r"(^|_)(images?|imgs?|pictures?|photos?|videos?|audios?)(_(paths?|urls?|files?|bytes|ids?))?$")
"""Names of such columns, in lower case: `image_path`, `img`, `input_audio`."""
ATTACHED = ("media", "attachments", "multimodal", "mm_files")
"""Columns whose lists are media, and whose texts say what kind of medium."""
_IN_TEXT = re.compile(r"<(img|audio|video)>[^<>\s]+</\1>")
"""A file embedded in a text: `<img>cat.png</img>`, as in data of Qwen-VL and ms-swift."""
_REASONING = re.compile(
    r"(^|_)(think|thinking|thoughts?|thought_process|reasoning|cot|chain_of_thoughts?|rationales?|scratch_?pad"
    r"|deliberations?|explanations?|analysis|monologues?|reflections?)(_|$)"
)
_ABOUT_REASONING = re.compile(
    r"_(model|effort|type|mode|lang|language|ids?|level|tokens?|budget|len|length|count|score|quality|source|difficulty"
    r"|name|format|style|prompt|label|category|status|flag|enabled|required|url|path|hash)$"
)
"""Names of columns that hold reasoning, in lower case, and ends of names of facts about it."""


def looks_like_reasoning(key: str, value: Any) -> bool:
    """Whether a column holds reasoning, by its name and value: a text of several words, a list of texts, or
    objects that hold one."""
    if not _is_reasoning(key):
        return False
    if isinstance(value, str):
        bare = value.strip()
        return bool(re.search(r"\s", bare)) or not bare.isascii()
    if isinstance(value, list) and any(isinstance(item, str) and item.strip() for item in value):
        return True
    return any(re.search(r"\s", text.strip()) for text in held_texts(value))


_HOLD_TEXT = ("text", "content", "value", "thinking", "reasoning", "summary")


def held_texts(value: Any) -> Iterator[str]:
    """The texts of objects such as `{"type": "thinking", "text": …}`, one or a list."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            for key in _HOLD_TEXT:
                inner = item.get(key)
                yield from [inner] if isinstance(inner, str) else held_texts(inner)


@lru_cache(maxsize=1024)
def _is_reasoning(key: str) -> bool:
    # chainOfThought, modelCoT, reasoning-trace → chain_of_thought, model_cot, reasoning_trace
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key.replace("CoT", "Cot"))
    name = words.lower().replace("-", "_")
    return _REASONING.search(name) is not None and _ABOUT_REASONING.search(name) is None


LABELS = ("label", "kto_tag")
"""Columns of KTO data that say whether the answer is a good one."""
_SAID = {"desirable": True, "chosen": True, "undesirable": False, "rejected": False}
"""Labels in words."""
_LABELS = frozenset(LABELS)


def labels(record: Mapping[str, Any], names: KeyMap) -> dict[str, bool]:
    """The values of the keys that say whether the answer is a good one. Other labels, such as a name, are ignored.

    Raises RecordRefusedError for 0, 1 and -1 under `label`, which may be classes, and for a value that is neither yes
    nor no under a key of `--map preferred=KEY`.
    """
    mapped = names.names.get("preferred", ())
    if not mapped and _LABELS.isdisjoint(record):
        return {}
    stated: dict[str, bool] = {}
    for key in dict.fromkeys((*LABELS, *mapped)):
        value = record.get(key)
        if says_nothing(value) or key in names.metadata:
            continue
        said = truth(value)
        if said is None and isinstance(value, str):
            said = says(value) if key in mapped else _SAID.get(value.strip().lower())
        if said is None and (value in ("0", "1", "-1") or (isinstance(value, int | float) and value in (0, 1, -1))):
            if key == "label" and key not in mapped:
                raise RecordRefusedError(
                    Refusal.LABEL_UNCLEAR,
                    f"{key!r} is {value}: it may say whether the answer is a good one, or be a class",
                    f"--map preferred={key} leaves out records of 0 and -1, --metadata {key} trains all",
                )
            said = float(value) == 1
        if said is not None:
            stated[key] = said
        elif key in mapped:
            raise RecordRefusedError(
                Refusal.LABEL_UNCLEAR, f"{key!r} is {value!r}, neither true nor false", f"--metadata {key} trains all"
            )
    return stated


_FLAGS_OF_TURNS = re.compile(r"(^|_)(masks?|train(ed|able)?_?(turns?|messages?|ind(ex|ic)es|steps)|loss_weights?)$")
_MASKS_OF_TOKENS = ("attention_mask", "input_mask", "special_tokens_mask", "position_mask")
"""Names of flags of each message in one list, in lower case; and masks of tokens, which say nothing of training."""


def _flags_messages(key: str, value: Any) -> bool:
    """Whether a list says of each message whether it is trained, or which messages are."""
    if not isinstance(value, list) or key in _MASKS_OF_TOKENS:
        return False
    if key in FLAGS:
        return True
    return _matches(_FLAGS_OF_TURNS, key) and all(isinstance(item, int | float) for item in value)


@lru_cache(maxsize=1024)
def _matches(pattern: re.Pattern[str], key: str) -> bool:
    return pattern.search(key.lower()) is not None


def _attaches(key: str, value: Any) -> bool:
    return key in ATTACHED and isinstance(value, list | dict)


@lru_cache(maxsize=1024)
def _is_watched(key: str) -> bool:
    return flags_record(key) or is_verdict(key) or key in (*MEDIA, *ATTACHED) or _matches(_MEDIA, key)


def flags_record(key: str) -> bool:
    """Whether a key of a record says what of it is trained, beside verdicts."""
    return key in LAST_ALONE or key in ALL_TEXTS or key in FLAGS or _matches(_FLAGS_OF_TURNS, key)


def refuse_beside(keys: Mapping[str, Any], reading: Reading, names: KeyMap) -> None:
    """Raises RecordRefusedError for media, and for a flag of the whole record that is false."""
    within = [(SAMPLE, held[SAMPLE]) for held in keys.values() if isinstance(held, dict) and SAMPLE in held]
    for key, value in (*keys.items(), *within):
        if not _is_watched(key) or key in reading.metadata or says_nothing(value):
            continue
        if key in MEDIA or (_matches(_MEDIA, key) and isinstance(value, str | list | dict)) or _attaches(key, value):
            raise RecordRefusedError(
                Refusal.MEDIA,
                f"{key!r} holds what is no text: text alone becomes tokens",
                f"--drop {key} leaves it out, and its place in the text stays",
            )
        if key in LAST_ALONE and truth(value):
            raise RecordRefusedError(
                Refusal.LABEL_UNCLEAR,
                f"{key!r} of the record is true: only its last answer is to be trained",
                f"give the answers before it the key train, false; {SET_ASIDE}",
            )
        if key in ALL_TEXTS and truth(value):
            raise RecordRefusedError(
                Refusal.LABEL_UNCLEAR,
                f"{key!r} of the record is true: questions are to be trained too, and answers alone can be",
                f"--metadata {key} trains the answers",
            )
        if key in (*names.names["weight"], *names.names.get("preferred", ())):
            continue
        if _flags_messages(key, value):
            raise RecordRefusedError(
                Refusal.LABEL_UNCLEAR,
                f"{key!r} of the record is a list, which says what is trained: a flag belongs to its message",
                f"write each value as the key {key!r} of its message; {SET_ASIDE}",
            )
        said = says(value)
        if (said is False and key in TRUE_IS_TRAINED) or (said is True and key in TRUE_IS_MASKED):
            raise RecordRefusedError(
                Refusal.LABEL_UNCLEAR,
                f"{key!r} of the record is {value!r}: it may say that nothing of it is to be trained",
                f"--map preferred={key} leaves such records out" if key in TRUE_IS_TRAINED else SET_ASIDE,
            )
        if is_doubtful(key, value):
            aside = f"--map preferred={key} leaves such records out" if is_preference(key, value) else SET_ASIDE
            shown = repr(value)
            raise RecordRefusedError(
                Refusal.LABEL_UNCLEAR,
                f"{key!r} of the record is {shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + '…'}: it may say "
                "that nothing of it is to be trained",
                f"{aside}, --metadata {key} trains them",
            )


_SHOWN = 80
"""Characters of a value in a message."""
LAST_ALONE = ("train_on_last_turn_only", "last_turn_only", "mask_history")
"""Flags of a record that are true if only its last answer is trained."""
ALL_TEXTS = ("unmask", "train_on_inputs", "train_on_input", "train_on_prompt")
"""Flags of a record that are true if its questions are trained too (InstructLab, Axolotl)."""

TOOLS = re.compile(r"tool|function|api")
"""Names of columns that may define tools, in lower case."""


def refuse_tools_beside(keys: Mapping[str, Any], names: KeyMap) -> None:
    """Raises RecordRefusedError for definitions of tools under a key that is not known: calls would be trained without
    them."""
    for key, value in keys.items():
        if key in names.metadata:
            continue
        if _matches(TOOLS, key) and _defines_tools(value):
            raise RecordRefusedError(
                Refusal.TOOLS_INVALID,
                f"{key!r} beside the conversation looks like definitions of its tools",
                f"--map tools={key} reads them, --metadata {key} leaves them out",
            )
        is_text = isinstance(value, str) and value.startswith("{") and TOOLS.search(value) is not None
        whole = parsed_or_none(value) if is_text else value  # Nemotron's metadata is JSON
        for inner, held in whole.items() if isinstance(whole, dict) else ():
            if _matches(TOOLS, inner) and _defines_tools(held):
                place = f'(.["{key}"] | fromjson)' if is_text else f'.["{key}"]'
                program = f'.tools = {place}["{inner}"]'
                raise RecordRefusedError(
                    Refusal.TOOLS_INVALID,
                    f"{inner!r} within {key!r} looks like definitions of the conversation's tools",
                    f"jq -c '{program}' FILE > records.jsonl makes them its tools, --metadata {key} leaves them out",
                )


def parsed_or_none(text: str) -> Any:
    """The value of a JSON text; None for any other text."""
    try:
        return parsed_json(text, Refusal.TOOLS_INVALID, "")
    except RecordRefusedError:
        return None


def _defines_tools(value: Any) -> bool:
    """Whether a value is a list of definitions, or the JSON text of one."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        value = parsed_or_none(value)
    items = value if isinstance(value, list) else [value]
    return bool(items) and all(
        isinstance(item, dict) and ("function" in item or ("name" in item and not _OF_TOOLS.isdisjoint(item)))
        for item in items
    )


_OF_TOOLS = frozenset({"description", "parameters", "input_schema", "inputSchema", "schema"})


def refuse_media_in(turns: Sequence[Turn]) -> None:
    """Raises RecordRefusedError for a question that embeds a file by its name."""
    for turn in turns:
        for text in turn.texts if turn.role == "user" else ():
            if "</" in text and (shown := _IN_TEXT.search(text)):
                raise RecordRefusedError(
                    Refusal.MEDIA,
                    f"message {turn.number} holds {shown[0]}, which is no text: text alone becomes tokens",
                    "--text-as-is keeps it as text",
                )


def refuse_calls_in(turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]]) -> None:
    """Raises RecordRefusedError for an answer with a call written as ReAct text, or that is the JSON of a call of one
    of the record's tools."""
    names = frozenset(tool["name"] for tool in tools)
    for turn in turns:
        for text in turn.texts if names and turn.role == "assistant" else ():
            if (react := has_react(text)) or is_json_of_call(text, names):
                how = "Action: … Action Input: …" if react else "its JSON"
                raise RecordRefusedError(
                    Refusal.MARKUP,
                    f"message {turn.number} writes a call as text ({how}), and the record has tools",
                    "--text-as-is keeps it as text",
                )
