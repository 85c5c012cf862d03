"""A dataset → files or a plan for a trainer: `spanloom.export` and `plan`, and the commands of the same names.

In: the root of a dataset and options. Out: the content of `export.json`, or the plan.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.api.export_options import ExportOptions, ExportPlaces, PlanningOptions, PlanPlaces
from spanloom.api.messages import export_messages
from spanloom.dataset.export.form import export_form
from spanloom.dataset.export.parquet import export_dataset
from spanloom.dataset.plan.format import Plan, PlanOptions
from spanloom.dataset.plan.writer import make_plan
from spanloom.errors import OptionError
from spanloom.families import content_of, dataset_family
from spanloom.options.keywords import by_keywords
from spanloom.report.export_views import export_views
from spanloom.report.progress import Progress
from spanloom.storage.folders.repeated import already_there
from spanloom.storage.hub import pushed
from spanloom.supervision import Lengths
from spanloom.teacher.reader import TeacherSignals, open_teacher


@by_keywords(ExportPlaces)
def export(options: ExportPlaces) -> dict[str, Any]:
    """Writes the dataset at `root` to the folder `out` in the form of a trainer. Prints nothing.

    out       None: beside the dataset, `ROOT_parquet`
    to        parquet, trl, axolotl, llama-factory, megatron-bridge; or messages, with `trainer`, of a source folder
    progress  True prints to stderr; a function is called with the name of the work, the amount done and the total

    The other keywords are the options of `spanloom export`. The same export that is there already is kept. Returns the
    content of `export.json`: `files`, `splits`. Raises ConflictError if `out` has anything else.
    """
    out = None if options.out is None else Path(options.out)
    return exported(Path(options.root), out, options, Progress.given(options.progress))[1]


def exported(root: Path, out: Path | None, options: ExportOptions, progress: Progress) -> tuple[Path, dict[str, Any]]:
    """The folder of the export, and the content of `export.json`; with `push`, the address of the commit too."""
    out, written = _written(root, out, options, progress)
    if options.push is not None:
        with progress.stage("push"):
            written = {**written, "pushed": pushed(out, options.push, f"Spanloom export ({options.to})")}
        progress.say(f"pushed: {written['pushed']}")
    return out, written


def _written(root: Path, out: Path | None, options: ExportOptions, progress: Progress) -> tuple[Path, dict[str, Any]]:
    to = options.to
    if (to == "messages") != (options.trainer is not None):
        raise OptionError("--to messages and --for TRAINER go together", remedy="give both, or neither")
    if to == "messages" and options.trainer is not None:
        out = out or root.resolve().with_name(f"{root.resolve().name}_{options.trainer.replace('-', '_')}")
        made, there = out, already_there(out)
        return out, export_messages(
            root, made, options.trainer, overwrite=options.overwrite, on_same=lambda: progress.say(there)
        )
    assert to != "messages"
    content = content_of(root, "export")
    if to != "megatron-bridge" and (options.sequence_length is not None or options.too_long is not None):
        raise OptionError(f"rows are packed by --to megatron-bridge, not by --to {to}: leave out their options")
    family = dataset_family(content.family)
    out = out or root.resolve().with_name(f"{root.resolve().name}_{to.replace('-', '_')}")
    signals = None if options.teacher is None else open_teacher(Path(options.teacher), root, dataset=content)
    if signals is not None and to != "axolotl":
        raise OptionError(f"a teacher's values are exported by --to axolotl, not by --to {to}", remedy="--to axolotl")
    form = export_form(
        to,
        content,
        family.export_columns(content),
        sequence_length=options.sequence_length,
        drop_too_long=options.too_long == "drop",
        teacher=None if signals is None else signals.content.sha256,
    )
    with progress.counting("export", "documents") as on_progress:
        written = export_dataset(
            root,
            content,
            form,
            out,
            beside=export_views(root, content, family, form, croissant=options.croissant),
            tokens_per_file=options.tokens_per_file,
            overwrite=options.overwrite,
            targets=None if signals is None else partial(_targets, signals),
            on_progress=on_progress,
            on_same=lambda: progress.say(already_there(out)),
        )
    return out, written


def _targets(
    signals: TeacherSignals, first: tuple[str, int, int], lengths: Lengths, arrays: Mapping[str, npt.NDArray[Any]]
) -> dict[str, pa.Array]:
    """A teacher's columns for Axolotl: see `form`. Documents without signals have a mask of 0."""
    total, k = int(lengths.sum()), signals.content.k
    ids, logprobs = np.zeros((total, k), np.int32), np.zeros((total, k), np.float32)
    mask = np.zeros((total, k), np.uint8)
    ends = np.cumsum(lengths, dtype=np.int64)
    spans = arrays.get("span")
    for number, (begin, end) in enumerate(zip((ends - lengths).tolist(), ends.tolist(), strict=True)):
        at = signals.scored(arrays["lossmask"][begin:end], None if spans is None else spans[begin:end])
        stored = signals.entries((*first[:2], first[2] + number), at.size) if at.size else None
        if stored is not None:
            ids[begin + at], mask[begin + at] = stored.ids, 1
            whole = np.log(np.exp(stored.logprobs.astype(np.float64)).sum(axis=1, keepdims=True))
            logprobs[begin + at] = stored.logprobs - whole
    inner, outer = np.arange(total + 1, dtype=np.int32) * k, np.concatenate([[0], ends]).astype(np.int32)
    return {
        f"target_{name}": pa.ListArray.from_arrays(outer, pa.ListArray.from_arrays(inner, values.reshape(-1)))
        for name, values in (("token_ids", ids), ("logprobs", logprobs), ("mask", mask))
    }


@by_keywords(PlanPlaces)
def plan(options: PlanPlaces) -> Plan:
    """Decides which documents of the dataset at `root` share a sample of `sequence_length` positions. Prints nothing.

    out       None: beside the dataset, `ROOT_plan_LENGTH`
    progress  True prints to stderr; a function is called with the name of the work, the amount done and the total

    The other keywords are the options of `spanloom plan`. Returns the plan, whose `folder` trainers open.
    """
    out = None if options.out is None else Path(options.out)
    progress = Progress.given(options.progress)
    return planned(Path(options.root), options.sequence_length, out, options, progress)


def planned(root: Path, sequence_length: int, out: Path | None, options: PlanningOptions, progress: Progress) -> Plan:
    """The plan, made or there already."""
    content = content_of(root, "plan")
    rules = PlanOptions(
        sequence_length=sequence_length,
        strategy=options.strategy,
        seed=options.seed,
        long=options.long,
        question_tokens=options.question_tokens or sequence_length // 2,
        multiple_of=options.multiple_of,
    )
    out = out or root.resolve().with_name(f"{root.resolve().name}_plan_{sequence_length}")
    with progress.counting("plan", "documents") as on_progress:
        return make_plan(
            root,
            content,
            out,
            rules,
            overwrite=options.overwrite,
            on_progress=on_progress,
            on_same=lambda: progress.say(already_there(out)),
        )
