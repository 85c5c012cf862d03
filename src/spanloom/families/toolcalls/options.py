"""Options that commands, steps and builds of tool calls share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from spanloom.families.toolcalls import defaults
from spanloom.options.option import listing, option

ToolsDir = Annotated[Path | None, option("Folder of JSON files of further registries of tools.", "--tools-dir")]
BosToken = Annotated[str | None, option("The template's bos_token. Default: the file's, else Llama's.", "--bos-token")]


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """What samples are rendered with: a chat template, and the registries of their tools."""

    template: Annotated[
        Path | None, option("Chat template: a .jinja file, a tokenizer_config.json, or the folder of a tokenizer.")
    ] = None
    hf_tokenizer: Annotated[
        Path | None, option("Folder of a Hugging Face tokenizer: render by its apply_chat_template.")
    ] = None
    bos_token: BosToken = None
    tools_dir: ToolsDir = None


TokenizerFile = Annotated[Path, option("A tokenizer.json, or its folder.")]
Source = Annotated[
    Literal["b4", "agentdojo", "tau2", "ultrachat", "xstest", "messages"], option("Which source.", "--from")
]
Turns = Annotated[Literal["last", "all"], option("Of a dialogue the last assistant turn, or a sample of each.")]
MaxLength = Annotated[
    int | None,
    option("Truncate samples to this many tokens; one cut inside its answer is left out.", "--max-length", min=1),
]
ControlTexts = Annotated[
    Literal["refuse", "as-served", "text"],
    option(
        "Control tokens in texts of users, tools, system and tool definitions. refuse: such samples are left out. "
        "as-served: ids as a server makes them, never the EOD. text: encoded as text.",
        "--control-texts",
    ),
]


@dataclass(frozen=True, kw_only=True)
class TokenizeOptions:
    """What decides the bytes of a token dataset, besides samples, template and tokenizer."""

    eod: Annotated[str, option("The tokenizer's token that ends a document.", metavar="TOKEN")] = defaults.EOD
    valid_fraction: Annotated[
        float,
        option("Share of the samples held out for validation; the id alone decides.", "--valid-fraction", min=0, max=1),
    ] = defaults.VALID_FRACTION
    control_texts: ControlTexts = defaults.CONTROL_TEXTS
    spans: Annotated[
        Literal["answer", "parts"],
        option("One mask for the answer, or also a span for its prose, its calls and their arguments.", "--spans"),
    ] = defaults.SPANS


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How messages are read, as `spanloom convert` reads them."""

    drop: Annotated[
        tuple[str, ...],
        listing(
            "Leave out and count: a key of records, messages, calls or tools, `role:NAME`, `part:TYPE`, `think` "
            "(thoughts in tags). Flags of training cannot be dropped.",
            metavar="NAME,…",
        ),
    ] = ()
    think_tags: Annotated[
        bool | None,
        option(
            "`<think>…</think>` before an answer is left out and counted, or stays text of the answer. Default: left "
            "out of AgentDojo's traces; of other sources such a record is left out.",
            "--think-tags/--no-think-tags",
        ),
    ] = None
    call_tags: Annotated[
        str | None,
        option(
            "Calls that texts write become calls: hermes, glaive, mistral, openhands, toolace. Default: such a record "
            "is left out.",
            metavar="STYLE",
        ),
    ] = None
    text_as_is: Annotated[
        bool,
        option(
            "Markup in answers that no other option reads stays text. Default: such a record is left out.",
            "--text-as-is",
        ),
    ] = False
    maps: Annotated[
        tuple[str, ...],
        listing(
            "Which key of your records or messages means what, as for `spanloom convert`: messages, query, answer, "
            "tools, trained, masked, …",
            "--map",
            metavar="MEANING=KEY,…",
        ),
    ] = ()
    metadata: Annotated[
        tuple[str, ...],
        listing("Keys of records or messages that are no part of the conversation.", metavar="KEY,…"),
    ] = ()
    roles: Annotated[
        tuple[str, ...],
        listing("What a role of your messages is: `visitor=user`.", "--role", metavar="NAME=ROLE,…"),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class MixOptions:
    """Which samples are merged, and in which order."""

    eval_fraction: Annotated[float, option("Share of the samples held out.", min=0, max=1)] = defaults.EVAL_FRACTION
    ratio: Annotated[float, option("Retain samples for each harmful one.", "--dr-ratio", min=0)] = defaults.DR_RATIO
    seed: Annotated[int, option("The same seed gives the same order.")] = defaults.SEED


RequireToolCalls = Annotated[
    bool, option("Leave out harmful samples that call no tool.", "--require-tool-calls-harmful")
]
