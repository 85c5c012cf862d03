"""The frames of documents, as the model's template writes them, against mask, rows and options.

In: the model's files in a dataset, its config; documents as on disk, with their rows. Out: findings. Frames are learned
from the template: nothing that the build wrote is believed.
"""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np

from spanloom.conversations.source.format import ANY_MODEL
from spanloom.dataset.manifest import Content, manifest_file, read_any
from spanloom.dataset.root.layout import MODEL_FOLDER
from spanloom.dataset.validate.content import check_stated
from spanloom.dataset.validate.disk_documents import SpanDocuments
from spanloom.errors import SpanloomError
from spanloom.families.models.conversation import Conversation
from spanloom.families.models.defaults import KEEP, MODEL_FILES, SPAN_NAMES, SPLIT
from spanloom.families.models.documents.rules import parsed_date
from spanloom.families.models.model import Model, find_eod, load_model
from spanloom.families.models.probe.form import form_of, variable_sets
from spanloom.families.models.probe.frames import ModelFrames, find_frames
from spanloom.families.models.probe.retokenised import ids_of_text
from spanloom.families.models.prove.conversation import Proving
from spanloom.families.models.prove.documents import Document as ProvenDocument
from spanloom.families.models.prove.prefixes import SERVED
from spanloom.families.models.verify.messages import plain_conversation
from spanloom.families.models.verify.reference import ANALYSIS, Reference
from spanloom.families.models.workarounds.declared import DECLARED
from spanloom.findings import EARLIER, Finding
from spanloom.law import classes
from spanloom.law.declared import TRAINED_SPANS, declared_by
from spanloom.law.documents import Bools, Counts, Documents, Ints
from spanloom.law.frames import Frames
from spanloom.law.judging import judge
from spanloom.provenance import sha256_json
from spanloom.storage import sha256_file

T = TypeVar("T")

Carried = tuple[ModelFrames | None, tuple[Finding, ...]]
"""The frames of the model in a dataset, None if they cannot be read off tokens; and what contradicts its config."""

Columns = Mapping[str, Sequence[Any]]
"""Columns of a row table as Python lists, made once: lists of texts take longer than the checks."""

_finding = Lock()
"""Shards are checked side by side, and the cache of a function would let each of them find the frames."""


def frames_of(root: Path, content: Content) -> Carried:
    """The frames of a dataset's model, found once for all its shards."""
    with _finding:
        frames, found = _frames_of(_model_files(root / MODEL_FOLDER, content.config))
        if frames is None or not _OF_MASKS & set(frames.unshown):
            return frames, found
        return _believed(root, _Keyed(content.config_sha256, content))


def frames_ahead(folder: Path, config: Mapping[str, Any]) -> None:
    """Finds the frames of a model before a dataset carries it: `frames_of` a dataset of these files and this config
    then takes them, in this process."""
    with _finding:
        _frames_of(_model_files(folder, config))


@dataclass(frozen=True)
class _Keyed(Generic[T]):
    """A value for the cache of a function, equal if its key is."""

    key: Hashable
    value: T = field(compare=False)


def _model_files(folder: Path, config: Mapping[str, Any]) -> _Keyed[tuple[Path, Mapping[str, Any]]]:
    """A model's folder and the config of a dataset, equal if the bytes of both are."""
    hashes = [(name, sha256_file(path)) for name in MODEL_FILES if (path := folder / name).is_file()]
    return _Keyed((sha256_json(config), *hashes), (folder, config))


@lru_cache(maxsize=2)
def _frames_of(of: _Keyed[tuple[Path, Mapping[str, Any]]]) -> Carried:
    folder, config = of.value
    try:
        date = None if config["date"] is None else parsed_date(config["date"])
        model = load_model(folder, stops=list(config["stops"]), date=date, fast=False)
        found = tuple(_contradictions(model, config))
        form = form_of(model.template, config["variables"], rewrite=config.get("call_ids") != KEEP)
        proving = Proving(
            form=form, variables=tuple(config["variables"]), control_texts=config.get("control_texts", "refuse")
        )
    except (SpanloomError, OSError, ValueError, TypeError, KeyError) as fault:
        what = fault.what if isinstance(fault, SpanloomError) else f"{type(fault).__name__}: {fault}"
        return None, (Finding(check="carried", message=f"the model cannot be read: {what}", file=MODEL_FOLDER),)
    try:
        return find_frames(model, proving), found
    except SpanloomError:  # no token of its own begins the assistant's messages
        return None, found


_OF_MASKS = frozenset(
    {
        classes.CONTEXT_TRAINED,
        classes.TOOL_RESULT_TRAINED,
        classes.PROMPT_TRAINED,
        classes.COMPLETION_UNTRAINED,
        classes.STOP_UNTRAINED,
        classes.BEHIND_STOP_TRAINED,
    }
)
"""Classes that the model's own conversations have only if their frames are misread, or their proofs are wrong."""


@lru_cache(maxsize=2)
def _believed(root: Path, of: _Keyed[Content]) -> Carried:
    """The frames, whose proofs are by the builder's code. Where these contradict the frames, they are made again by the
    code of validation: if both agree, the frames are misread; else the builder is wrong."""
    content = of.value
    frames, found = _frames_of(_model_files(root / MODEL_FOLDER, content.config))
    assert frames is not None
    reference = Reference(root, content)
    wrong = next((each.id for each, document in frames.documents if not _agrees(reference, each, document)), None)
    if wrong is None:
        return frames, found
    message = f"the model's own conversation {wrong!r} is proven otherwise than it is rendered again"
    unshown = tuple(name for name in frames.unshown if name not in _OF_MASKS)
    frames = replace(frames, learned=replace(frames.learned, unshown=unshown))
    return frames, (*found, Finding(check="frames", message=message, file=MODEL_FOLDER))


def _agrees(reference: Reference, conversation: Conversation, document: ProvenDocument) -> bool:
    """Whether a document is the one that the code of validation makes."""
    row = {
        "run": [run.run for run in document.runs],
        "variables": [json.dumps(dict(run.variables), sort_keys=True) for run in document.runs],
        "boundary": [run.boundary for run in document.runs],
        "turn_end": [None if run.truncated else run.turn_end for run in document.runs],
    }
    messages = [
        {**each, "tool_calls": [{**call, "arguments": json.dumps(call["arguments"])} for call in each["tool_calls"]]}
        if each.get("tool_calls")
        else each
        for each in conversation.messages
    ]
    whole = {"messages": messages, "tools": conversation.tools}
    plain = plain_conversation(json.dumps(whole).encode(), ANY_MODEL.schema_version)
    made = reference.document(plain, row, range(len(document.runs)))
    if isinstance(made, str):
        return False
    spans = [int(span > 0) for span in made.spans[0][:-1]]
    return made.tokens[:-1] == document.tokens.tolist() and (
        set(reference.config["train"]) != set(SPAN_NAMES[1:]) or spans == document.mask.tolist()
    )


def _contradictions(model: Model, config: Mapping[str, Any]) -> Iterator[Finding]:
    """What the config says otherwise than the model's own files."""
    sets = config["variables"]
    given = {name: value for name, value in sets[0].items() if all(each.get(name, each) == value for each in sets)}
    wanted = {
        "stops": {text: token for token, text in sorted(model.stops.items())},
        "form": form_of(model.template, sets, rewrite=config.get("call_ids") != KEEP).as_dict(),
        "variables": variable_sets(model.template, config["thinking"], given),
        "eod": find_eod(model),
    }
    yield from check_stated({name: config[name] for name in wanted}, wanted, "config", check="carried")


def is_earlier(root: Path) -> bool:
    """Whether a dataset was built by a version that did not refuse what `_FIXED_SINCE` and `_check_answers` find. Its
    manifest does not say what its shards were made of."""
    return _is_earlier(root, manifest_file(root).stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _is_earlier(root: Path, _written: int) -> bool:
    """Once for all shards: a manifest grows with them."""
    return "shards" not in read_any(root).environment


def check_frames(
    frames: ModelFrames, documents: SpanDocuments, rows: Columns, content: Content, *, earlier: bool
) -> Iterator[Finding]:
    """Checks that what is trained is what the model samples: behind the generation prompt, to the stop token; and that
    the rows say of runs what the tokens say. `earlier`: what earlier versions made otherwise is a notice."""
    of_batch = _token_aligned(documents)
    judged = judge(of_batch, frames.tables)
    left_out = {*frames.unshown, *declared_by(content.config, content.family), *_NOT_CERTAIN}
    ends, boundaries = rows["turn_end"], rows["boundary"]
    known = [json.dumps(each, sort_keys=True) for each in content.config["variables"]]
    own = _have_own(rows["variables"], known)
    for name, (numbers, places) in judged.found.items():
        if name in left_out:
            continue
        for number, place in zip(numbers.tolist(), places.tolist(), strict=True):
            if DECLARED in boundaries[number] or (name in _OF_ENDS and None in ends[number]):
                continue
            if name == classes.BEGINNING_DIFFERS and own[number]:
                continue
            start = int(of_batch.ends[number] - of_batch.lengths[number])
            found = documents.finding("frames", f"{name}: {classes.CLASSES[name].meaning}", number, place - start)
            yield _noticed(found, _FIXED_SINCE[name]) if earlier and name in _FIXED_SINCE else found
    trained = _trained(judged.frames, of_batch)
    if len(content.config["train"]) == TRAINED_SPANS:
        yield from _check_answers(
            documents,
            rows,
            judged.frames,
            of_batch,
            trained,
            earlier=earlier,
            split=content.config.get("text_beside_calls") == SPLIT,
        )
    yield from _check_runs(documents, rows, judged.frames, of_batch, trained, content)
    yield from _check_served(frames.model, documents, rows, of_batch)


_FIXED_SINCE = {
    classes.PROMPT_TRAINED: "the empty thought of the prompt is trained",
    classes.SPECIAL_IN_TEXT: "a text holds a control token",
}


def _noticed(finding: Finding, what: str) -> Finding:
    return replace(finding, check=f"{EARLIER}: {what}", severity="warning")


BEHIND = "reasoning is behind the answer"
FOLLOWS = "an answer follows another"


def _check_answers(
    documents: SpanDocuments,
    rows: Columns,
    frames: Frames,
    of_batch: Documents,
    trained: Ints,
    *,
    earlier: bool,
    split: bool,
) -> Iterator[Finding]:
    """Checks that an answer follows no other, and that reasoning is before the answer and not all of it. `trained`: of
    `_trained`; `split`: texts beside calls are messages of their own."""
    for number, runs in enumerate([] if split else rows["run"]):
        if any(later == run + 1 for run, later in pairwise(runs)):
            finding = documents.finding("frames", FOLLOWS, number)
            yield _noticed(finding, FOLLOWS) if earlier else finding
    document = frames.document[frames.first[trained]]
    wrong: dict[str, Ints] = {}
    # The span of a token is on disk at the place before it. The last trained token is the stop, in a span of its own.
    spans = np.empty_like(documents.span)
    spans[0], spans[1:] = 0, documents.span[:-1]
    speaks = spans > ANALYSIS
    said = Counts(speaks)
    begins, ends = frames.begins[trained], np.maximum(frames.stops[trained] - 1, frames.begins[trained])
    thought = Counts(spans == ANALYSIS)
    silent = (said[ends] == said[begins]) & (thought[ends] > thought[begins])
    wrong["an answer is reasoning alone"] = np.flatnonzero(silent & frames.stopped[trained])
    answered = np.append(np.flatnonzero(speaks), spans.size)
    first_said = np.minimum(answered[np.searchsorted(answered, begins)], ends)
    wrong[BEHIND] = np.flatnonzero(thought[ends] > thought[first_said])
    turn_ends = rows["turn_end"]
    for what, numbers in wrong.items():
        for run in numbers.tolist():
            number = int(document[run])
            if None in turn_ends[number]:
                continue
            place = int(begins[run] - of_batch.ends[number] + of_batch.lengths[number])
            finding = documents.finding("frames", what, number, place)
            yield _noticed(finding, what) if earlier and what != BEHIND else finding


_NOT_CERTAIN = (classes.HISTORY_REWRITTEN,)
"""A text may hold the tokens that begin reasoning; that history is as the model meets it, rendering again shows."""


def _have_own(used: Sequence[Sequence[str]], known: Sequence[str]) -> list[bool]:
    """Whether each document is rendered with other variables than those of the config. `used`: as JSON, by run."""
    own = {
        text: json.dumps(json.loads(text), sort_keys=True) not in known
        for text in {text for each in used for text in each}
    }
    return [any(own[text] for text in each) for each in used]


_OF_ENDS = (classes.STOP_UNTRAINED, classes.TRUNCATED)
"""Classes of a truncated answer, whose end is not trained."""


def _token_aligned(documents: SpanDocuments) -> Documents:
    """Documents whose mask is about tokens. On disk it is about labels: one place earlier."""
    trained = np.zeros(documents.tokens.size, np.bool_)
    trained[1:] = documents.lossmask[:-1] > 0
    count = documents.lengths.size
    return Documents(
        tokens=documents.tokens,
        trained=trained,
        lengths=documents.lengths.astype(np.int64),
        rows=np.arange(count),
        parts=np.zeros(count, np.int64),
        file="",
    )


def _check_runs(
    documents: SpanDocuments, rows: Columns, frames: Frames, of_batch: Documents, trained_runs: Ints, content: Content
) -> Iterator[Finding]:
    """Checks the number of trained runs of each document, and what ends each. `trained_runs`: of `_trained`."""
    document = frames.document[frames.first[trained_runs]]
    stated, ends = rows["runs"], rows["turn_end"]
    counted = np.bincount(document, minlength=len(stated))
    whole = len(content.config["train"]) == TRAINED_SPANS
    texts = {token: text for text, token in content.config["stops"].items()}
    last = frames.stops[trained_runs] - 1
    ending = np.where(of_batch.trained[last], of_batch.tokens[last], -1)  # no token has an id below 0
    stops = list(map(texts.get, ending.tolist()))
    edges = np.searchsorted(document, np.arange(len(stated) + 1))
    for number, ways in enumerate(rows["boundary"]):
        if DECLARED in ways:
            continue
        if whole and counted[number] != stated[number]:
            yield documents.finding("frames", f"{counted[number]} runs are trained, runs is {stated[number]}", number)
        elif whole and (found := stops[edges[number] : edges[number + 1]]) != ends[number]:
            yield documents.finding("frames", f"the runs end in {found}, turn_end is {ends[number]}", number)


def _check_served(model: Model, documents: SpanDocuments, rows: Columns, of_batch: Documents) -> Iterator[Finding]:
    """Checks that prompt and answer are encoded apart where the rows say so: the whole text has other ids then."""
    served = [number for number, ways in enumerate(rows["boundary"]) if SERVED in ways]
    for number in served[:ENCODED]:
        end = int(of_batch.ends[number])
        tokens = of_batch.tokens[end - int(of_batch.lengths[number]) : end]
        whole = ids_of_text(model, tokens)
        if whole is not None and np.array_equal(whole, tokens):
            yield documents.finding("rows", "boundary is served, and the ids are those of the whole text", number)


ENCODED = 256
"""How many documents of a batch are encoded again."""


def _trained(frames: Frames, documents: Documents) -> Ints:
    """The numbers of the runs with a trained token, in order."""
    counted = Counts(documents.trained)
    some: Bools = counted[frames.stops] > counted[frames.begins]
    return np.flatnonzero(some)
