"""All checks of a pipeline at once, and what they found together.

In: the places that the pipeline reads and writes, checks of its own. Out: a result for JSON, or a PreflightError with
every fault and its remedy.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import gettempdir
from typing import Any

from spanloom.building.preflight.places import Kept, as_error, check_reads, check_writes
from spanloom.building.preflight.source import check_source
from spanloom.errors import EXIT_FAILURE, EXIT_TEMPORARY, SpanloomError, StorageError, StoreGivenUpError
from spanloom.provenance import EXPECTED_SHA_VARIABLE, check_code
from spanloom.storage import free_bytes
from spanloom.storage.scratch import chosen_scratch
from spanloom.storage.stores.retry import DEADLINE_VARIABLE, deadline_seconds
from spanloom.tasks.stage import scratch_bytes

SECONDS = 25.0
"""After which a place that has not answered is a fault, unless more are given to all stores by
$SPANLOOM_STORAGE_DEADLINE. With the start of the process, 30 s in all.

A check that computes, such as of the tokenizer, has none: a machine under load makes it slow, not wrong."""

SCRATCH_SIZE_VARIABLE = "SPANLOOM_SCRATCH_SIZE"
"""The size of the scratch volume of each task, such as `200Gi`, set where a pipeline is compiled: a pod sees its node's
disk, not the bound of its volume."""

Check = Callable[[], Any]


class PreflightError(SpanloomError):
    """Every fault that the checks found. The command may succeed later only if all faults are of that kind."""

    def __init__(self, faults: Sequence[SpanloomError]) -> None:
        several = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__(f"{several}, before any work was done")
        self.faults = tuple(faults)
        listed = (f"{number}. {fault}".replace("\n", "\n   ") for number, fault in enumerate(faults, start=1))
        self.args = ("\n".join([f"{self.what}:", *listed]),)
        passing = all(isinstance(fault, StoreGivenUpError) for fault in faults)
        self.exit_code = EXIT_TEMPORARY if passing else EXIT_FAILURE

    def renamed(self, named: Callable[[str], str]) -> SpanloomError:
        return PreflightError([fault.renamed(named) for fault in self.faults])

    def __reduce__(self) -> tuple[object, ...]:
        return (PreflightError, (self.faults,))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a pipeline needs.

    reads, writes  its places by the names of their parameters or options; empty ones are left out
    source         the name of the input that is a source folder with a manifest, if one is
    shards         tasks of each stage of one task a shard; None: one task makes the dataset
    scratch        bytes of scratch space of a task; None: what this process has
    own            checks that compute, by name, such as of the tokenizer
    """

    reads: Mapping[str, str | None]
    writes: Mapping[str, str | None]
    source: str | None = None
    shards: int | None = None
    scratch: int | None = None
    own: Mapping[str, Check] = field(default_factory=dict)

    def checks(self) -> dict[str, tuple[str, Check]]:
        """Name → the place that the check is about, and the check."""
        named: dict[str, tuple[str, Check]] = {}
        for name, place in self.reads.items():
            if place:
                named[f"reads {name}"] = (place, partial(check_reads, place))
        for name, place in self.writes.items():
            if place:
                named[f"writes {name}"] = (place, partial(check_writes, place))
        if self.source and (place := self.reads[self.source]):
            named["scratch"] = (place, partial(self._check_scratch, place))
        named["code"] = (EXPECTED_SHA_VARIABLE, check_code)
        named |= {name: (name, check) for name, check in self.own.items()}
        return named

    def _check_scratch(self, source: str) -> dict[str, int]:
        needed = check_source(source, self.shards, by_shard=self.shards is not None)
        folder = chosen_scratch(None) or Path(gettempdir())
        room = free_bytes(folder) if self.scratch is None else self.scratch
        if needed > room:
            where = str(folder) if self.scratch is None else "the scratch volume of each task"
            raise StorageError(
                f"a task needs about {needed / 1e9:,.1f} GB of scratch space, there are {room / 1e9:,.1f} GB",
                where=where,
                remedy="compile the pipeline with a larger --scratch, set SPANLOOM_SCRATCH to a larger disk, or "
                "convert the source into more shards",
            )
        return {"needed": needed, "room": room}


def preflight(plan: Plan) -> dict[str, Any]:
    """Runs all checks at once. Returns their results by name; `warnings` are faults that stop nothing.

    Raises PreflightError with all faults; soon after `SECONDS` if a place does not answer.
    """
    checks = plan.checks()
    asked = checks.keys() - plan.own.keys()
    seconds = max(SECONDS, deadline_seconds(SECONDS))
    ended = _run_at_once({name: check for name, (_, check) in checks.items()}, asked, seconds)
    results: dict[str, Any] = {}
    faults: dict[str, SpanloomError] = {}
    warnings = []
    for name, (place, _) in checks.items():
        if name not in ended and name not in asked:
            continue  # a place did not answer; what computes is not waited for then
        result = ended.get(name, _Late())
        if isinstance(result, Kept):
            warnings.append(f"{result.where} could be created and not removed ({result.why}); remove it by hand")
        elif isinstance(result, _Late):
            fault: SpanloomError = StoreGivenUpError(
                f"{name}: no answer in {seconds:g} s",
                where=place,
                remedy="look at the network, the address and the credentials of the store, then run it again; "
                f"give it longer with {DEADLINE_VARIABLE}=seconds",
            )
            faults.setdefault(str(fault), fault)
        elif isinstance(result, Exception):
            if (known := as_error(result, place)) is None:
                raise result
            faults.setdefault(str(known), known)  # one cause may fail several checks
        elif result is not None:
            results[name] = result
    if faults:
        raise PreflightError([*faults.values()])
    return {**results, "warnings": warnings}


class _Late:
    """Stands for the result of a check that has not ended."""


def _run_at_once(checks: Mapping[str, Check], asked: Set[str], seconds: float) -> dict[str, Any]:
    """Name → what a check returned, or the exception that it raised. Missing are checks that have not ended when one of
    `asked` has not after some seconds; their threads do not keep the process alive."""
    queue: SimpleQueue[tuple[str, Any]] = SimpleQueue()

    def run(name: str, check: Check) -> None:
        try:
            queue.put((name, check()))
        except Exception as fault:
            queue.put((name, fault))

    for name, check in checks.items():
        threading.Thread(target=run, args=(name, check), daemon=True, name=f"preflight {name}").start()
    until, ended = time.monotonic() + seconds, dict[str, Any]()
    while len(ended) < len(checks):
        waits = not asked <= ended.keys()
        try:
            name, result = queue.get(timeout=max(0.0, until - time.monotonic()) if waits else None)
        except Empty:
            break
        ended[name] = result
    return ended


def scratch_here() -> int | None:
    """Bytes of the scratch volume of each task, if the pipeline was compiled with its size."""
    quantity = os.environ.get(SCRATCH_SIZE_VARIABLE)
    return scratch_bytes(quantity) if quantity else None
