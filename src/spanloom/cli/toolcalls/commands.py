"""`spanloom toolcalls …`: public sources → samples → validated, merged, paired; a spot check, the service."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from spanloom.cli import options
from spanloom.cli.app import say, toolcalls_app
from spanloom.cli.outputs import folder_option
from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls import options as toolcalls_options
from spanloom.families.toolcalls.samples.sample import run
from spanloom.options.option import option, place
from spanloom.options.shared import OverwriteFile


@toolcalls_app.command("convert")
@dataclass(frozen=True, kw_only=True)
class Convert:
    """Turn a public source into samples. Prints what was written and what was left out, by reason, as JSON.

    Messages are read as `spanloom convert` reads them, in all its forms. Thoughts are left out and counted; a message
    that is marked as untrained is only context; an answer that a limit of tokens cut off is left out.

    Everything that is written passes `validate --strict`; what could not is in rejects/ with its place and reason. For
    AgentDojo a table of labels (`told as`) and outcomes is printed to stderr, for all sources the first record left
    out for a reason with a remedy, what was left out of messages, and the files that were not read.
    """

    source: toolcalls_options.Source
    place: Annotated[
        Path | None,
        option(
            "File or folder of the source (.jsonl, .json, .csv, .tsv, .parquet, .arrow, also .gz or .zst), or a folder "
            "of `save_to_disk`. Default: data/fujitsu, data/agent_dojo, data/tau2_repo.",
            "--input",
        ),
    ] = None
    out: Annotated[Path, folder_option("Folder for harmful/, retain/ and rejects/.")] = Path(defaults.SAMPLES_DIR)
    completions: Annotated[
        Path | None, option("File of assistant turns for sources without (JSON Lines: id, text, model, …).")
    ] = None
    system: Annotated[
        str | None,
        option(
            "System message of records without one; else they are left out (M3). τ²-bench: the policy of a run is one.",
            metavar="TEXT|FILE",
        ),
    ] = None
    turns: toolcalls_options.Turns = "last"
    tools: Annotated[str | None, option(f"Registry of messages without tools, and of B4 ({defaults.B4_TOOLS}).")] = None
    security_means: Annotated[
        Literal["by-shape", "resisted", "attack-succeeded"],
        option(
            "What security: true means in AgentDojo's traces. by-shape: in files of AgentDojo's own runs and "
            "its published traces that the attack succeeded, elsewhere that it was resisted."
        ),
    ] = "by-shape"
    goals: Annotated[
        Path | None,
        option(
            "JSON file of what AgentDojo's injection tasks ask for: suite → injection_task_id → goal. "
            "Default: those of an installed agentdojo, else the marks of its attacks alone."
        ),
    ] = None
    min_reward: Annotated[
        float | None, option("TAU2: leave out simulations with a smaller reward, or without one. 1 takes successes.")
    ] = None
    split: Annotated[Literal["harmful", "retain"] | None, option("messages: the split of records that name none.")] = (
        None
    )
    labels: Annotated[
        Path | None,
        option(
            'messages: a JSON Lines file of split and labels by id, such as {"id": …, "split": "harmful", '
            '"expected_tool": …}. Default: keys of the records themselves.'
        ),
    ] = None
    join_consecutive: Annotated[
        bool,
        option(
            "Messages of the assistant in a row become one, a blank line between. Default: such an answer is left out.",
            "--join-consecutive",
        ),
    ] = False
    reading: toolcalls_options.ReadOptions
    overwrite: OverwriteFile = False


@toolcalls_app.command("serve")
def serve(
    *,
    serving: options.Serving,
    max_bytes: Annotated[int, option("The largest body that is accepted.", min=1024)] = defaults.BODY_MAX_BYTES,
    tools_dir: toolcalls_options.ToolsDir = None,
) -> None:
    """Serve the validator, the schema and the registries over HTTP; /docs lists all requests.

    Needs `pip install 'spanloom[serve]'`. `spanloom traces serve` has these routes beside its own.
    """
    from spanloom.families.toolcalls.service.application import toolcalls_application

    token, guards = serving.token(), serving.guards()
    serving.run(
        toolcalls_application(tools_dir=tools_dir, token=token, max_bytes=max_bytes, guards=guards), "tool calls"
    )


@toolcalls_app.command("demo")
def demo(
    out: Annotated[str, place("Folder or URI for the files.")],
    scratch: options.Scratch = None,
) -> None:
    """Write small data of our own in the shapes of the five sources, with a chat template and a tokenizer."""
    say(f"{out}: {', '.join(run(out=out, scratch=scratch))}")
