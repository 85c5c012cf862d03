"""`spanloom audit`: checks any token dataset against the model that it trains."""

import typer
from rich.console import Console

from spanloom.api.building import day_of
from spanloom.auditing.auditor import ModelOptions
from spanloom.auditing.page import audit_page
from spanloom.auditing.readers.unit import Reading
from spanloom.auditing.result import Result, as_lines
from spanloom.auditing.result import as_json as json_of
from spanloom.auditing.run import AuditOptions
from spanloom.auditing.run import audit as run_audit
from spanloom.auditing.shown import cut
from spanloom.cli.app import make_progress, print_json, say
from spanloom.cli.models.audit import Audit
from spanloom.cli.outputs import write_page
from spanloom.families.models import defaults
from spanloom.law.classes import NAMES
from spanloom.report.terminal import Shown, print_documents
from spanloom.storage import write_atomically

AROUND = 30
"""Tokens that a terminal shows before and after a finding."""


def audit(given: Audit) -> None:
    unknown = [name for name in given.declare or () if name not in NAMES]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]} is not a class: {', '.join(NAMES)}", param_hint="--declare")
    progress = make_progress(given.printed.quiet or given.printed.as_json, given.printed.verbose)
    request = AuditOptions(
        data=given.data,
        model=ModelOptions(
            folder=given.model,
            template=given.rendering.template,
            stops=tuple(given.rendering.stop),
            date=day_of(given.rendering.date or defaults.PROBE_DATE),
            thinking=given.rendering.thinking,
            variables=given.rendering.variables,
        ),
        messages=given.messages,
        reading=Reading(mask=given.mask, aligned=given.aligned),
        sample=given.sample,
        seed=given.seed,
        workers=given.workers,
        declare=tuple(given.declare or ()),
        rows=given.rows,
        tolerated=dict(map(_tolerated, given.fail_on or ())),
    )
    with progress.stage("audit"), progress.counting("audit", "rows") as on_progress:
        result = run_audit(request, on_progress)
    if given.printed.as_json:
        print_json(json_of(result))
    else:
        say("\n".join(as_lines(result)))
        _show_examples(result)
    if given.html is not None:
        if given.printed.as_json:
            write_atomically(given.html, audit_page(result).encode())
        else:
            write_page(given.html, audit_page(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _tolerated(text: str) -> tuple[str, float]:
    """`duplicate=1%` → the class and its share."""
    name, _, value = text.partition("=")
    try:
        share = float(value.removesuffix("%")) / (100 if value.endswith("%") else 0)
    except (ValueError, ZeroDivisionError):
        share = -1.0
    if name not in NAMES or not 0 <= share <= 1:
        message = f"{text!r} is not CLASS=SHARE, such as duplicate=1%; the classes are {', '.join(NAMES)}"
        raise typer.BadParameter(message, param_hint="--fail-on")
    return name, share


def _show_examples(result: Result) -> None:
    """Prints the first document of each class, coloured."""
    first = [cut(result.examples[name][0].document, AROUND) for name in result.findings if result.examples.get(name)]
    if first:
        say("")
        print_documents(Console(), first, Shown(most=0, tokens=True))
