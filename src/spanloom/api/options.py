"""The options of `build` and `convert`, each declared once: keywords of the Python API, options of the commands, and of
the steps that share them.

Steps share the bases of `BuildOptions`, whose last base is the first heading of its help.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from spanloom.families.harmony import defaults
from spanloom.families.models import defaults as model_defaults
from spanloom.options.option import as_json, names_in, option, place, values_in
from spanloom.options.shared import (
    MAX_REJECTS,
    MAX_WORKERS,
    SCRATCH,
    Longest,
    OnStage,
    Overwrite,
    Reader,
    ReusingOptions,
    of_amount,
)
from spanloom.options.shared import OnDuplicate as OnDuplicate

Place = str | os.PathLike[str]


def local(place: Place | None) -> Path | None:
    return None if place is None else Path(place)


of_conversations = partial(option, rich_help_panel="Conversations (not SYNTH)")
FOR_MODEL = "For a model (--model)"
of_model = partial(option, rich_help_panel=FOR_MODEL)
of_adapting = partial(option, rich_help_panel="What a model's template cannot take")

STOPS = partial(
    option,
    "A token that ends the assistant's turn, by its text or id; repeatable. Default: eos_token_id of "
    "generation_config.json.",
    "--stop",
    metavar="TOKEN",
    takes=list[str] | None,
    in_steps=as_json("Stop tokens as a JSON list; empty: those of generation_config.json.", "--stops", list),
)
DATE = partial(option, "The current date given to the template, such as 2025-01-31.", metavar="YYYY-MM-DD")
VARIABLES = partial(
    option,
    "A variable of the template; the value is JSON or plain text. Repeatable.",
    "--set",
    metavar="KEY=VALUE",
    takes=list[str] | None,
    read=values_in,
    in_steps=as_json("Variables of the template, a JSON object.", "--variables", dict),
)
SERVED = "If a token would span the end of the prompt. served: prompt and answer are encoded apart, as servers do."
CONTROL_TEXTS = (
    "Control tokens in texts that are not trained, of users, tools, system and tool definitions. as-served: ids as a "
    "server makes them, never the EOD. text: encoded as text."
)
CALL_IDS = (
    "Where the template takes no ids of calls but its own (Kimi K2: functions.NAME:N; Mistral: nine letters and "
    "digits): rewrite others, of results alike, or keep them."
)
INLINE_CALLS = (
    "If the template cannot call tools: write tools, calls and results as text in this format. Default: such "
    "conversations are refused."
)
TEXT_BESIDE_CALLS = "If the template drops the text beside calls: refuse, or split it off as a message before them."


@dataclass(frozen=True, kw_only=True)
class CutOptions:
    """How conversations are cut into documents for gpt-oss."""

    history: Annotated[
        Literal["serve", "openai-harmony", "keep"] | None,
        of_conversations(
            "Which earlier reasoning a document shows. serve: none before the last "
            "final answer, as on servers; openai-harmony: as its render for completion does; keep: one document a "
            f"conversation, with all of it. Default: {defaults.HISTORY}."
        ),
    ] = None
    train: Annotated[
        str | None,
        of_conversations(
            f"The spans that are trained, with commas; the others are context. Default: {defaults.TRAIN}.",
            metavar="SPANS",
        ),
    ] = None
    turns: Annotated[
        Literal["all", "last"] | None,
        of_conversations(
            f"Train every turn, or what follows the last question that is answered. Default: {defaults.TURNS}."
        ),
    ] = None
    call_format: Annotated[
        Literal["constrain", "json", "as-served"] | None,
        of_conversations(
            "The header of a call. constrain: as the model emits it, <|constrain|>json; json: as servers "
            "show it, commentary json; as-served: trained as emitted, shown before later runs as served, which takes a "
            f"document for each call. Default: {defaults.CALL_FORMAT}."
        ),
    ] = None
    mask_generation_prompt: Annotated[
        bool,
        of_conversations(
            "Do not train <|start|>assistant at the start of an answer: a server writes it, not the model.",
            "--mask-generation-prompt",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which model, if it is not gpt-oss."""

    model: Annotated[
        Place | None,
        of_model(
            "A model's folder, or hub snapshot, or its URI: build for its chat template and tokenizer instead of "
            "gpt-oss.",
            metavar="PLACE",
            takes=str | None,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AdaptingOptions:
    """What is done for a template that cannot take a conversation as it is."""

    inline_think: Annotated[
        bool,
        of_adapting(
            "If the template has no place for reasoning, write it into the content in <think> tags. Default: refuse "
            "it.",
            "--inline-think",
        ),
    ] = False
    call_ids: Annotated[
        Literal["rewrite", "keep"] | None,
        of_adapting(f"{CALL_IDS} Default: {model_defaults.CALL_IDS[0]}."),
    ] = None
    inline_calls: Annotated[Literal["hermes", "json"] | None, of_adapting(INLINE_CALLS)] = None
    text_beside_calls: Annotated[
        Literal["refuse", "split"] | None,
        of_adapting(f"{TEXT_BESIDE_CALLS} Default: {model_defaults.TEXT_BESIDE_CALLS[0]}."),
    ] = None
    emission: Annotated[
        str | None,
        of_adapting(
            r"What the model writes after a prompt that the template does not continue: "
            r"'{reasoning}\n</think>\n\n{content}{calls}{eos}'. Declared, not proven.",
            metavar="TEXT",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ModelOptions(AdaptingOptions):
    """How a model's chat template is rendered."""

    thinking: Annotated[
        Literal["auto", "on", "off"] | None,
        of_model("Whether thinking is switched on in the template. Default: auto, as each run is proven."),
    ] = None
    boundary: Annotated[
        Literal["served", "refuse"] | None, of_model(f"{SERVED} Default: {model_defaults.BOUNDARY[0]}.")
    ] = None
    stop: Annotated[Sequence[str | int], STOPS(rich_help_panel=FOR_MODEL)] = ()
    date: Annotated[str | None, DATE(rich_help_panel=FOR_MODEL)] = None
    variables: Annotated[Mapping[str, Any] | None, VARIABLES(rich_help_panel=FOR_MODEL)] = None
    control_texts: Annotated[
        Literal["refuse", "as-served", "text"] | None,
        of_model(f"{CONTROL_TEXTS} Default: {model_defaults.CONTROL_TEXTS[0]}."),
    ] = None
    proof: Annotated[
        Literal["paths", "full"] | None,
        of_model(
            "paths: a conversation like earlier ones is proven by what they have shown of the template, and a share of "
            f"these is checked; full: each by itself. The bytes are the same. Default: {model_defaults.PATHS}."
        ),
    ] = None


ValidFraction = Annotated[
    float, of_amount("Share of the ids held out for validation; the id alone decides.", min=0, max=1)
]
Renderer = Annotated[
    Literal["fast", "harmony"],
    option("fast: wrappers from a table, content through fastokens, audited; harmony: openai-harmony alone."),
]
AuditFraction = Annotated[
    float, option("Share of fast rows that openai-harmony renders again (at least 64 a shard; 0: none).", min=0, max=1)
]
Shards = Annotated[
    int | None,
    option(
        f"How many shards the source must have. Default: {defaults.SHARDS} of `synth_harmony_v1`, "
        "of conversations as many as its manifest lists.",
        min=1,
    ),
]
Source = Annotated[
    Place,
    place(
        "Folder of `conversations_v1`, `harmony_conversations_v1` or `synth_harmony_v1` shards with their "
        "manifest.json, or its URI. The manifest says which of them it is.",
        takes=str,
        given=defaults.SOURCE,
    ),
]


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """How many rows are read, and how many may be bad."""

    max_rows: Annotated[
        int | None, of_amount("Read at most this many rows, divided evenly over the shards.", min=0)
    ] = defaults.MAX_ROWS
    max_rows_per_shard: Annotated[int | None, of_amount("Read at most this many rows of each shard.", min=0)] = (
        defaults.MAX_ROWS_PER_SHARD
    )
    longest: Longest = None
    max_rejects: Annotated[
        int | str,
        of_amount(MAX_REJECTS, metavar="N|P%", takes=str, given=defaults.MAX_REJECTS),
    ] = defaults.MAX_REJECTS


@dataclass(frozen=True, kw_only=True)
class CapOptions(RowOptions):
    """The same for gpt-oss, and how many tokens are written."""

    max_tokens: Annotated[
        int | None,
        of_amount("Write at most this many tokens, divided evenly over the shards; no document is cut.", min=0),
    ] = defaults.MAX_TOKENS


@dataclass(frozen=True)
class BuildOptions(ReusingOptions, CapOptions, ModelOptions, ModelChoice, CutOptions):
    """The options of a build."""

    source: Source
    out: Annotated[
        Place | None,
        option(
            "Root of the dataset. Default: in data/megatron, synth_kd_v1 of SYNTH, harmony_chat_v1 of conversations, "
            "model_chat_v1 with --model; with the suffix _smoke if the run is capped.",
            takes=Path | None,
        ),
    ] = None
    _: KW_ONLY
    valid_fraction: ValidFraction = defaults.VALID_FRACTION
    on_duplicate: OnDuplicate = defaults.ON_DUPLICATE
    renderer: Renderer = defaults.RENDERER
    audit_fraction: AuditFraction = defaults.AUDIT_FRACTION
    tokenizer: Annotated[
        Place | None,
        option(
            "The asset o200k_base.tiktoken, or its folder. Default: $O200K_HARMONY_VOCAB_PATH, "
            "$TIKTOKEN_ENCODINGS_BASE, ~/.cache/spanloom, then data/tokenizer.",
            takes=Path | None,
        ),
    ] = None
    shards: Shards = None
    deep: Annotated[
        int, option("Rows that validation renders again, by openai-harmony or the model's template.", min=0)
    ] = defaults.DEEP
    reader: Reader = "auto"
    scratch: Annotated[Place | None, SCRATCH] = None


of_form = partial(option, rich_help_panel="What the records mean")
said_around = partial(option, rich_help_panel="Texts around every conversation")
of_loss = partial(option, rich_help_panel="What is left out, and how much may be refused")
NAMES: dict[str, Any] = {"takes": list[str] | None, "read": lambda texts: names_in(*texts)}


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """The options of a conversion of chat data. `map` and `role`: also as `MEANING=KEY` and `NAME=ROLE`."""

    map: Annotated[
        Mapping[str, str] | Sequence[str] | None,
        of_form(
            "Which key of your records means what: id, messages, system, tools, query, reasoning, answer, effort, "
            "identity, date, cutoff, weight, preferred (false: left out); of your messages: trained, masked. "
            "`query=a+b` joins two texts; `id=` makes ids of file and line.",
            "--map",
            metavar="MEANING=KEY,…",
            **NAMES,
        ),
    ] = None
    metadata: Annotated[
        Sequence[str],
        of_form(
            "Keys of records or messages that are metadata, and no part of the conversation.",
            metavar="KEY,…",
            **NAMES,
        ),
    ] = ()
    think_tags: Annotated[
        bool | None,
        of_form(
            "`<think>…</think>` (thinking, reasoning, begin_of_thought) before an answer becomes analysis, or "
            "stays text of the answer. Default: such a record is refused.",
            "--think-tags/--no-think-tags",
        ),
    ] = None
    call_tags: Annotated[
        str | None,
        of_form(
            "Calls that texts write become calls: hermes (`<tool_call>`), glaive (`<functioncall>`), mistral "
            "(`[TOOL_CALLS]`), openhands (`<function=…>`), toolace (`[f(a=1)]`). Default: such a record is refused.",
            metavar="STYLE",
        ),
    ] = None
    text_as_is: Annotated[
        bool,
        of_form(
            "Tags, and tokens of templates, that no other option reads stay text. Default: such a record is refused.",
            "--text-as-is",
        ),
    ] = False
    role: Annotated[
        Mapping[str, str] | Sequence[str] | None,
        of_form(
            "What a role of your messages is: `visitor=user`, one of system, developer, user, assistant, tool.",
            "--role",
            metavar="NAME=ROLE,…",
            **NAMES,
        ),
    ] = None
    join_consecutive: Annotated[
        bool,
        of_form(
            "Two messages of the assistant in a row become one, a blank line between. Default: refused.",
            "--join-consecutive",
        ),
    ] = False
    keep_unprompted: Annotated[
        bool,
        of_form(
            "Messages of the assistant before the first user's stay, and are trained. Default: refused.",
            "--keep-unprompted",
        ),
    ] = False
    calls_in_turn: Annotated[
        bool,
        of_form(
            "Several tool calls at once: put them one after the other, each with its result. Default: kept as they "
            "are; a build of a Harmony dataset refuses them, since Harmony has one call at a time.",
            "--calls-in-turn",
        ),
    ] = False
    identity: Annotated[
        str | None,
        said_around(
            "Who the model is, in the system message. Servers of gpt-oss say 'You are ChatGPT, a large language "
            "model trained by OpenAI.' Default: the line is left out."
        ),
    ] = None
    effort: Annotated[
        Literal["low", "medium", "high"] | None,
        said_around("Reasoning effort. Default: left out.", metavar="low|medium|high", takes=str | None),
    ] = None
    date: Annotated[str | None, said_around("Current date, such as 2026-01-31. Default: left out.")] = None
    cutoff: Annotated[str | None, said_around("Knowledge cutoff, such as 2024-06. Default: left out.")] = None
    developer: Annotated[
        str | None, said_around("Instructions for conversations that bring no system text of their own. Default: none.")
    ] = None
    drop: Annotated[
        Sequence[str],
        of_loss(
            "Leave out and count: a key of records, messages, calls or tools (`refusal`, `tool_calls`), "
            "`role:NAME`, `part:TYPE` (`part:image_url`), `think` (reasoning in tags), `unprompted` (before the first "
            "user), `unanswered` (after the last answer).",
            metavar="NAME,…",
            **NAMES,
        ),
    ] = ()
    on_duplicate_content: Annotated[
        Literal["keep", "leave-out"],
        of_loss(
            "leave-out: records whose messages, tools, settings and weight are those of an earlier one are left out, "
            "counted, and listed under rejects/. --max-rejects does not count them.",
            metavar="keep|leave-out",
            takes=str,
            given="keep",
        ),
    ] = "keep"
    max_rejects: Annotated[
        int | str,
        of_loss(
            "Records that may be refused and set aside (under rejects/): a number, or a share such as 0.1%. "
            "0 stops at the first.",
            metavar="N|P%",
            takes=str,
            given=defaults.MAX_REJECTS,
        ),
    ] = defaults.MAX_REJECTS
    format: Annotated[
        Literal["conversations", "harmony"],
        option(
            "conversations: for any model (`conversations_v1`). harmony: as messages of Harmony "
            "(`harmony_conversations_v1`), which refuses what Harmony cannot hold.",
            metavar="conversations|harmony",
            takes=str,
            given="conversations",
        ),
    ] = "conversations"
    rows_per_shard: Annotated[
        int, option("Conversations per shard; an interrupted run keeps its finished shards.", min=1)
    ] = defaults.ROWS_PER_SHARD
    workers: Annotated[
        int,
        option(
            "Processes that convert; the bytes are the same for any number. 1: this process alone.",
            min=1,
            max=MAX_WORKERS,
        ),
    ] = 1
    dataset: Annotated[str | None, option("Name of the data, for manifest, card and report. Default: not stated.")] = (
        None
    )
    license: Annotated[str | None, option("Its licence, for manifest and card.")] = None
    overwrite: Overwrite = False
    scratch: Annotated[Place | None, SCRATCH] = None


@dataclass(frozen=True)
class ConvertPlaces(ConvertOptions):
    """The same with the inputs and the folder of the source."""

    inputs: Place | Sequence[Place]
    out: Place
    _: KW_ONLY
    progress: bool | OnStage = False


@dataclass(frozen=True)
class BuildKeywords(BuildOptions):
    """The options of a build, and who gets its progress."""

    _: KW_ONLY
    progress: bool | OnStage = False
