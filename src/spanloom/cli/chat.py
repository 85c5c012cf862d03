"""Packed chat: `spanloom chat …`, conversations → transcripts → packed blocks, and the steps of its pipeline."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from spanloom.cli import options
from spanloom.cli.app import (
    Printed,
    chat_app,
    counted,
    finish_build,
    finish_step,
    is_step,
    make_progress,
    say,
    step_app,
)
from spanloom.families.chat import defaults
from spanloom.families.chat.options.generate import GeneratorRules
from spanloom.families.chat.options.pack import PackingRules
from spanloom.families.chat.transcripts.sample import run
from spanloom.options.option import option, place
from spanloom.options.shared import MaxRejects, OverwriteFile, RunningOptions
from spanloom.storage.folders.repeated import already_there

ChatTokenizerPlaceOption = Annotated[
    str | None,
    place(
        "A `tokenizers` JSON file with the control strings as tokens, or a URI of one. Default: the asset "
        "o200k_base.tiktoken, to which they are added."
    ),
]
OnErrorOption = Annotated[
    Literal["raise", "skip"],
    option(
        "A record that is null or cannot be read or, with post-training, leaves a span open: stop, or skip and "
        "count it."
    ),
]


@chat_app.command("sample")
def sample(
    out: Annotated[str, place("File or URI for the conversations: JSONL.")],
    conversations: Annotated[int, option("How many.", min=1)] = defaults.SAMPLE_CONVERSATIONS,
    scratch: options.Scratch = None,
) -> None:
    """Write small conversations of our own: several languages, code, and some of what `generate` leaves out."""
    run(out=out, conversations=conversations, scratch=scratch)
    say(out)


@step_app.command("generate-chat")
@chat_app.command("generate")
def generate(
    context: typer.Context,
    *,
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
    rules: GeneratorRules,
    report: options.Report = None,
    overwrite: OverwriteFile = False,
    scratch: options.Scratch = None,
    printed: Printed,
) -> None:
    """Turn conversations into transcripts, and leave out what does not fit.

    Records have any form that `spanloom convert` takes, and are read the same way; reasoning, calls and tools are
    refused unless --drop names them. The first pair of user and assistant must fit into the
    context together with the system text, each later pair by itself; a conversation ends before the first that does
    not. An empty answer is never written. What was left out, and why, is reported at the end and in the report.

    Example: `spanloom chat generate --input chats.jsonl --out transcripts.parquet --report left_out.json`
    """
    from spanloom.families.chat.steps import generate_chat
    from spanloom.records.files import passed_over_line
    from spanloom.records.record_files import unread_line

    progress = printed.progress()
    with progress.stage("generate"), progress.counting("generate", "conversations") as on_progress:
        facts = generate_chat.run(
            source=source,
            out=out,
            rules=rules,
            tokenizer=tokenizer,
            report=report,
            overwrite=overwrite,
            on_progress=on_progress,
            on_same=lambda: progress.say(already_there(out)),
            scratch=scratch,
        )
    if printed.as_json or is_step(context):
        finish_step(facts, generate_chat.artifact_metadata)
        return
    skipped = counted(facts["conversations_skipped"])
    say(f"{facts['conversations_written']:,} transcripts in {out} ({facts['conversations_read']:,} conversations read)")
    if facts.get("not_read"):
        say(passed_over_line(facts["not_read"]))
    if facts.get("columns_not_read"):
        say(unread_line(facts["columns_not_read"]))
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
    *,
    source: Annotated[
        str,
        place("Transcripts: a .parquet, .jsonl (.gz, .zst) or .txt file, or a folder of them; or a URI.", "--input"),
    ],
    out: Annotated[Path, option("Root of the dataset, new or empty.")],
    tokenizer: ChatTokenizerPlaceOption = None,
    rules: PackingRules,
    on_error: OnErrorOption = defaults.ON_ERROR,
    deep: Annotated[
        int, option("Blocks of each shard that validation packs again, token by token.", min=0)
    ] = defaults.DEEP,
    max_rejects: MaxRejects = None,
    running: RunningOptions,
    scratch: options.Scratch = None,
    printed: Printed,
) -> None:
    """Tokenise transcripts, pack them into blocks, and validate the dataset.

    With --post-training, or POST_TRAINING=1 in the environment, loss is on the assistant's complete spans alone, a
    block that begins inside a user span opens with the system span and USER, and a user span longer than a block gives
    up its conversation. Without it every token counts and the stream is simply cut. The same transcripts and options
    give the same bytes, whatever the workers. Run it again after an interruption.

    The training example (docs/examples/training/chat.py) reads POST_TRAINING too, and WARMUP_PCT.

    Example: `spanloom chat pack --input transcripts.parquet --out data/chat --tokenizer tokenizer.json --post-training`
    """
    from spanloom.families.chat import dataset
    from spanloom.families.chat.build import PackOptions, build_chat
    from spanloom.families.chat.transcripts.places import local_transcripts

    progress = printed.progress()
    if rules.post_training:
        progress.say("post-training: loss on the assistant's complete spans alone")
    else:
        progress.say("post-training is off: plain packing, every token counts (--post-training or POST_TRAINING=1)")
    with local_transcripts(source, tokenizer, scratch) as (transcripts, tokenizer_file):
        packed = PackOptions(
            transcripts=transcripts,
            root=out,
            tokenizer=tokenizer_file,
            rules=rules,
            source_as_given=source,
            tokenizer_as_given=tokenizer,
            deep=deep,
            on_error=on_error,
            max_rejects=max_rejects,
            **vars(running),
        )
        result = build_chat(packed, progress)
    finish_build(dataset, result.root, result.manifest, result.report, as_json=printed.as_json)


@step_app.command("pack-chat", switches=True)
def step_pack_chat(
    *,
    transcripts: Annotated[str, place("Transcripts: a file, a folder of them, or a URI.")],
    root: options.Root,
    tokenizer: ChatTokenizerPlaceOption = None,
    asset: Annotated[str | None, place("File or URI for a copy of the tokenizer, for validation.")] = None,
    rules: PackingRules,
    on_error: OnErrorOption = defaults.ON_ERROR,
    shard: options.OneShard = None,
    inventory: options.OneInventory = None,
    max_rejects: MaxRejects = None,
    workers: options.Workers = None,
    allow_unknown_sha: options.AllowUnknownSha = False,
    scratch: options.Scratch = None,
    quiet: options.Quiet = False,
) -> None:
    """Packed chat, step 2: transcripts → blocks under the dataset root, and manifest.pending.json.

    It is no dataset before validate-alignment has passed. Switches take a value, as a pipeline's parameters have one.
    Every file is created, never overwritten. A root at a URI is claimed for this dataset first (claim.json).
    """
    from spanloom.building.steps import StepTask
    from spanloom.families.chat.steps import pack_chat

    task = StepTask(
        shard=shard,
        inventory=inventory,
        max_rejects=max_rejects,
        workers=workers,
        allow_unknown_sha=allow_unknown_sha,
    )
    progress = make_progress(quiet, False)
    with progress.counting("pack", "bytes") as on_progress:
        result = pack_chat.run(
            transcripts=transcripts,
            root=root,
            rules=rules,
            tokenizer=tokenizer,
            asset=asset,
            on_error=on_error,
            task=task,
            scratch=scratch,
            on_progress=on_progress,
            warn=progress.say,
        )
    finish_step(result, pack_chat.artifact_metadata)
