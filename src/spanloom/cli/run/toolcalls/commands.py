"""`spanloom toolcalls …`: public sources → samples → validated, merged, paired; a spot check, the service."""

import sys
from pathlib import Path

import typer

from spanloom.cli.app import print_json, say
from spanloom.cli.toolcalls.commands import Convert
from spanloom.conversations.forms import ReadingOptions
from spanloom.errors import SourceError
from spanloom.families.toolcalls.convert import sources
from spanloom.families.toolcalls.convert.drafts import Options
from spanloom.families.toolcalls.convert.goals import read_goals
from spanloom.families.toolcalls.convert.messages import read_labels
from spanloom.options.endless import never_ends
from spanloom.storage.folders.repeated import already_there


def convert(given: Convert) -> None:
    place = given.place
    if place is None:
        if given.source not in sources.INPUTS:
            raise typer.BadParameter(f"{given.source} has no usual place: give --input")
        place = Path(sources.INPUTS[given.source])
    if given.goals is not None and given.source != "agentdojo":
        raise typer.BadParameter("--goals is for --from agentdojo")
    if given.min_reward is not None and given.source != "tau2":
        raise typer.BadParameter("--min-reward is for --from tau2")
    if given.source != "messages" and (given.split is not None or given.labels is not None):
        raise typer.BadParameter("--split and --labels are for --from messages")
    goals_by_task = None if given.goals is None else read_goals(given.goals)
    options = Options(
        system=_text_or_file(given.system),
        turns=given.turns,
        tools=given.tools,
        security_means=given.security_means,
        goals=goals_by_task,
        min_reward=given.min_reward,
        split=given.split,
        labels={} if given.labels is None else read_labels(given.labels),
        reading=ReadingOptions(**vars(given.reading)),
        join_consecutive=given.join_consecutive,
    )
    converted = sources.convert(
        given.source,
        place,
        given.out,
        options,
        given.completions,
        overwrite=given.overwrite,
        on_same=lambda: say(already_there(given.out), file=sys.stderr),
    )
    print_json(converted.as_dict())
    for line in [*sources.outcome_table(converted), *sources.summary(converted)]:
        say(line, file=sys.stderr)


def _text_or_file(value: str | None) -> str | None:
    if value is None:
        return None
    path = Path(value)
    try:
        if not path.exists():
            return value
    except (OSError, ValueError):  # a text that is too long for a name, or has a NUL
        return value
    if path.is_dir() or never_ends(path):
        raise SourceError("not a file", where=value, remedy="give --system a text or a file")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as fault:
        raise SourceError(f"the file is not UTF-8: {fault.reason}", where=value, remedy="fix --system") from None
