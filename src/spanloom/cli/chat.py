"""Packed chat: `spanloom chat …`, conversations → transcripts → packed blocks, and the steps of its pipeline."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from spanloom.cli import options
from spanloom.cli.app import chat_app, counted, finish_build, finish_step, is_step, make_progress, say, step_app
from spanloom.cli.options import Switch, made_of, names_in, option, place
from spanloom.families.chat import defaults

ChatTokenizerPlaceOption = Annotated[
    str | None,
    place(
        "A `tokenizers` JSON file with the control strings as tokens, or a URI of one. Default: the asset "
        "o200k_base.tiktoken, to which they are added."
    ),
]
RecordsOption = Annotated[
    Literal["line", "eos", "file"],
    option("What a record of a .txt file is: a line, the text between two <|EOS|>, or the file."),
]
BlockSizeOption = Annotated[int, option("Tokens of a block.", min=2)]
ChatShardsOption = Annotated[int, option("Shards of the dataset: record i goes to shard i modulo their number.", min=1)]
OnErrorOption = Annotated[
    Literal["raise", "skip"],
    option(
        "A record that is null or cannot be read or, with post-training, leaves a span open: stop, or skip and "
        "count it."
    ),
]


def _switch(on: bool) -> Switch:
    return "1" if on else "0"


@chat_app.command("sample")
def sample(
    out: Annotated[str, place("File or URI for the conversations: JSONL.")],
    conversations: Annotated[int, option("How many.", min=1)] = defaults.SAMPLE_CONVERSATIONS,
    scratch: options.Scratch = None,
) -> None:
    """Write small conversations of our own: several languages, code, and some of what `generate` leaves out."""
    from spanloom.families.chat.sample import run

    run(out=out, conversations=conversations, scratch=scratch)
    say(out)


@step_app.command("generate-chat")
@chat_app.command("generate")
def generate(
    context: typer.Context,
    source: Annotated[
        str,
        place(
            "Conversations: a .jsonl, .json (.gz, .zst) or .parquet file, or a folder of them; or a URI.",
            "--input",
            "--source",
        ),
    ],
    out: Annotated[
        str, place("File or URI for the transcripts; its ending says which kind: .parquet, .jsonl or .txt.")
    ],
    tokenizer: ChatTokenizerPlaceOption = None,
    context_len: Annotated[
        int, option("Tokens that the first pair may have with its system span, and each later pair.", min=1)
    ] = defaults.CONTEXT_LEN,
    drop: Annotated[
        str,
        option(
            "Keys of messages and records, and roles, to leave out and count, such as reasoning_content,tool_calls,"
            "tool. Any that a transcript has no place for and that is not named here is refused with its line.",
            metavar="NAME,…",
        ),
    ] = "",
    maps: Annotated[
        list[str] | None,
        option(
            "Which key of your records means what, as for `spanloom convert`: messages, query, answer, system, id.",
            "--map",
            metavar="MEANING=KEY,…",
        ),
    ] = None,
    metadata: Annotated[
        list[str] | None, option("Keys of records that are no part of the conversation.", metavar="KEY,…")
    ] = None,
    text_as_is: Annotated[
        bool,
        option("What chat templates write (`<|im_end|>`, `[INST]`) stays text of an answer. Default: refused."),
    ] = False,
    think: Annotated[
        Literal["keep", "drop", "refuse"],
        option("<think>…</think> in an answer: train it as a part of it, leave it out and count it, or refuse."),
    ] = defaults.THINK,
    on_error: Annotated[
        Literal["raise", "skip"] | None,
        option(
            "A record that cannot be read or would lose something; a control string in a text: stop at both, or skip "
            "and count both. Default: stop at the first, skip the second."
        ),
    ] = None,
    report: options.Report = None,
    scratch: options.Scratch = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Turn conversations into transcripts, and leave out what does not fit.

    Records have any form that `spanloom convert` takes, and are read the same way; reasoning, calls and tools are
    refused unless --drop names them. The first pair of user and assistant must fit into the
    context together with the system text, each later pair by itself; a conversation ends before the first that does
    not. An empty answer is never written. What was left out, and why, is reported at the end and in the report.

    Example: `spanloom chat generate --input chats.jsonl --out transcripts.parquet --report left_out.json`
    """
    arguments = locals()
    from spanloom.families.chat.steps import generate_chat
    from spanloom.records.files import passed_over_line

    progress = make_progress(quiet, verbose)
    with progress.stage("generate"), progress.counting("generate", "conversations") as on_progress:
        keys = {"maps": tuple(names_in(*maps or ())), "metadata": frozenset(names_in(*metadata or ()))}
        rules = made_of(generate_chat.GeneratorRules, arguments, drop=frozenset(names_in(drop)), **keys)
        facts = made_of(generate_chat.run, arguments, rules=rules, on_progress=on_progress)
    if as_json or is_step(context):
        finish_step(facts, generate_chat.artifact_metadata)
        return
    skipped = counted(facts["conversations_skipped"])
    say(f"{facts['conversations_written']:,} transcripts in {out} ({facts['conversations_read']:,} conversations read)")
    if facts.get("not_read"):
        say(passed_over_line(facts["not_read"]))
    say(
        f"skipped: {skipped}; shortened: {facts['conversations_shortened']:,} ({facts['pairs_dropped']:,} pairs); "
        f"ended at a user without an answer: {facts['conversations_ended_early']:,}"
    )
    left_out = counted(facts["messages_left_out"])
    say(f"messages: {facts['messages_read']:,} read, {facts['messages_written']:,} written; left out: {left_out}")
    say(
        f"dropped: keys {counted(facts['keys_dropped'])}; roles {counted(facts['roles_dropped'])}; "
        f"think blocks {facts['think_blocks_dropped']:,} ({facts['think_blocks_kept']:,} trained as text)"
    )


@chat_app.command("pack")
def pack(
    source: Annotated[
        str,
        place("Transcripts: a .parquet, .jsonl (.gz, .zst) or .txt file, or a folder of them; or a URI.", "--input"),
    ],
    out: Annotated[Path, option("Root of the dataset, new or empty.")],
    tokenizer: ChatTokenizerPlaceOption = None,
    block_size: BlockSizeOption = defaults.BLOCK_SIZE,
    post_training: Annotated[
        bool,
        option(
            "Loss on the assistant's complete spans alone, with boundary injection and the stop rule.",
            "--post-training/--no-post-training",
            envvar="POST_TRAINING",
        ),
    ] = defaults.POST_TRAINING,
    strict_user: Annotated[
        bool,
        option(
            "No loss on an answer whose user span is not in the block whole; or also where a block's border "
            "cut it and an injected USER opened it again.",
            "--strict-user/--no-strict-user",
        ),
    ] = defaults.STRICT_USER,
    keep_lossless: Annotated[
        bool, option("Keep blocks in which no token carries loss.", "--keep-lossless/--drop-lossless")
    ] = defaults.KEEP_LOSSLESS,
    pad_tail: Annotated[
        bool, option("Pad the last, shorter block of each shard instead of dropping it.", "--pad-tail")
    ] = defaults.PAD_TAIL,
    shards: ChatShardsOption = defaults.SHARDS,
    records: RecordsOption = defaults.RECORDS,
    on_error: OnErrorOption = defaults.ON_ERROR,
    workers: Annotated[
        int | None,
        option(
            "Processes that tokenise. Default: one for each usable CPU, fewer for little text; with o200k, one.", min=1
        ),
    ] = None,
    deep: Annotated[
        int, option("Blocks of each shard that validation packs again, token by token.", min=0)
    ] = defaults.DEEP,
    allow_unknown_sha: options.AllowUnknownSha = False,
    scratch: options.Scratch = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Tokenise transcripts, pack them into blocks, and validate the dataset.

    With --post-training, or POST_TRAINING=1 in the environment, loss is on the assistant's complete spans alone, a
    block that begins inside a user span opens with the system span and USER, and a user span longer than a block gives
    up its conversation. Without it every token counts and the stream is simply cut. The same transcripts and options
    give the same bytes, whatever the workers. Run it again after an interruption.

    The training example (`python -m spanloom.families.chat.training`) reads POST_TRAINING too, and WARMUP_PCT.

    Example: `spanloom chat pack --input transcripts.parquet --out data/chat --tokenizer tokenizer.json --post-training`
    """
    arguments = locals()
    from spanloom.families.chat import dataset
    from spanloom.families.chat.build import PackOptions, build_chat
    from spanloom.families.chat.steps.pack_chat import PackingRules
    from spanloom.families.chat.transcripts.places import local_transcripts

    progress = make_progress(quiet, verbose)
    if post_training:
        progress.say("post-training: loss on the assistant's complete spans alone")
    else:
        progress.say("post-training is off: plain packing, every token counts (--post-training or POST_TRAINING=1)")
    with local_transcripts(source, tokenizer, scratch) as (transcripts, tokenizer_file):
        places = {"transcripts": transcripts, "root": out, "tokenizer": tokenizer_file}
        as_given = {"source_as_given": source, "tokenizer_as_given": tokenizer}
        rules = made_of(PackingRules, arguments)
        result = build_chat(made_of(PackOptions, arguments, rules=rules, **places, **as_given), progress)
    finish_build(dataset, result.root, result.manifest, result.report, as_json=as_json)


@step_app.command("pack-chat")
def step_pack_chat(
    transcripts: Annotated[str, place("Transcripts: a file, a folder of them, or a URI.")],
    root: options.Root,
    tokenizer: ChatTokenizerPlaceOption = None,
    asset: Annotated[str | None, place("File or URI for a copy of the tokenizer, for validation.")] = None,
    block_size: BlockSizeOption = defaults.BLOCK_SIZE,
    post_training: Annotated[
        Switch, option("1: loss on the assistant's complete spans alone; 0: on every token.", envvar="POST_TRAINING")
    ] = _switch(defaults.POST_TRAINING),
    strict_user: Annotated[
        Switch,
        option("1: no loss on an answer whose user span is not in the block whole; 0: also where a border cut it."),
    ] = _switch(defaults.STRICT_USER),
    keep_lossless: Annotated[Switch, option("0: drop blocks without any loss.")] = _switch(defaults.KEEP_LOSSLESS),
    pad_tail: Annotated[
        Switch, option("1: pad the last, shorter block of each shard instead of dropping it.")
    ] = _switch(defaults.PAD_TAIL),
    shards: ChatShardsOption = defaults.SHARDS,
    records: RecordsOption = defaults.RECORDS,
    on_error: OnErrorOption = defaults.ON_ERROR,
    workers: options.Workers = None,
    allow_unknown_sha: options.AllowUnknownSha = False,
    scratch: options.Scratch = None,
    quiet: options.Quiet = False,
) -> None:
    """Packed chat, step 2: transcripts → blocks under the dataset root, and manifest.pending.json.

    It is no dataset before validate-alignment has passed. Switches take a value, as a pipeline's parameters have one.
    Every file is created, never overwritten. A root at a URI is claimed for this dataset first (claim.json).
    """
    arguments = locals()
    from spanloom.families.chat.steps import pack_chat

    switches = ("post_training", "strict_user", "keep_lossless", "pad_tail")
    rules = made_of(pack_chat.PackingRules, arguments, **{name: arguments[name] == "1" for name in switches})
    progress = make_progress(quiet, False)
    with progress.counting("pack", "bytes") as on_progress:
        handed_on = {"on_error": on_error, "allow_unknown_sha": allow_unknown_sha, "on_progress": on_progress}
        result = made_of(pack_chat.run, arguments, rules=rules, warn=progress.say, **handed_on)
    finish_step(result, pack_chat.artifact_metadata)
