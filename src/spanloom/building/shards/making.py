"""Rows of a source → parts on disk, made by worker processes.

In: a recipe, its shards, a pool. Out: for each shard, the summaries of its parts, in order. A part that an earlier run
finished is kept, if everything that decides its bytes is the same.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from spanloom import workers
from spanloom.building.ordered import in_order
from spanloom.building.parts.stored import IDS_JSON, RENDERED_JSON, PartWriter, files_stand, part_name, read_sidecar
from spanloom.building.recipe import Part, Recipe
from spanloom.conversations.source.rejects import NO_FAULTS, Reject, faults_in
from spanloom.provenance import part_key, readable_json, sha256_json
from spanloom.storage import write_atomically
from spanloom.supervision import tokens_per_span
from spanloom.workers import Pool

RENDERED_ARTIFACT, IDS_ARTIFACT = "rendered_shard_v1", "ids_v1"

HASHED_AT_ONCE = 4
"""Shards of a source that are hashed ahead, in threads; hashing does not hold the GIL."""


@dataclass(frozen=True, kw_only=True)
class ShardJob:
    """One shard to be made: its first `rows` rows, into the folders `rendered` and `ids`.

    `reject_limit`: how many rows may be refused; `token_budget`: how many tokens it may have, None for any number.
    """

    shard: Any
    rows: int
    rendered: Path
    ids: Path
    reject_limit: int
    token_budget: int | None = None


@dataclass(frozen=True, kw_only=True)
class PartJob:
    """All that a worker needs to make one part. `build_key`: the hash of all that decides its bytes but the rows."""

    recipe: Recipe
    build_key: str
    shard: Any
    part: Part
    rendered: Path
    ids: Path
    reject_limit: int
    token_budget: int | None
    resume: bool

    @property
    def key(self) -> str:
        """Hash of everything that decides the part's bytes: an existing part with the same key can be reused."""
        part = {"index": self.part.index, "first_row": self.part.first_row, "rows": self.part.rows}
        decides = {"build": self.build_key, "shard": self.shard.index, "part": {**part, "key": self.part.key}}
        return sha256_json({**decides, "token_budget": self.token_budget})

    def named(self) -> str:
        """For messages."""
        last = self.part.first_row + self.part.rows - 1
        return f"shard {self.shard.index:02d}, rows {self.part.first_row} to {last}"


def build_key(recipe: Recipe) -> str:
    """The hash of all that decides the bytes of the parts, besides the rows."""
    return part_key(recipe.code, *recipe.libraries, recipe=recipe.identity())


def make_shards(
    recipe: Recipe,
    jobs: Sequence[ShardJob],
    pool: Pool | None,
    *,
    resume: bool,
    before: Callable[[int], None] | None = None,
    after: Callable[[dict[str, Any]], None] | None = None,
) -> Iterator[tuple[ShardJob, list[dict[str, Any]]]]:
    """Makes all parts of the shards. Yields each shard, in order, with the summaries of its parts.

    `resume`: keep finished parts. `before` is called with the number of each part before it goes to a worker; `after`
    with the summary of each finished part, in order; it may remove the part's files.

    With a cap on tokens a part depends on the parts before it: then one part is made at a time, with the rest of the
    budget. Raises RejectedRowError if more rows of a shard are refused than its limit, SourceError, WorkerError.
    """
    key = build_key(recipe)
    begun: dict[int, _Shard] = {}

    def parts() -> Iterator[PartJob]:
        with ThreadPoolExecutor(HASHED_AT_ONCE) as threads:
            for job, shard in zip(jobs, threads.map(recipe.verified, [job.shard for job in jobs]), strict=True):
                this = begun[shard.index] = _Shard(job=replace(job, shard=shard), budget=job.token_budget)
                for part in recipe.parts(shard, job.rows):
                    if this.ended:
                        break
                    if before is not None:
                        before(part.index)
                    yield PartJob(
                        recipe=recipe,
                        build_key=key,
                        shard=shard,
                        part=part,
                        rendered=job.rendered,
                        ids=job.ids,
                        reject_limit=job.reject_limit,
                        token_budget=this.budget,
                        resume=resume,
                    )

    def finished() -> tuple[ShardJob, list[dict[str, Any]]]:
        this = begun.pop(waiting.popleft().shard.index)
        recipe.check_unchanged(this.job.shard)
        return this.job, this.summaries

    waiting = deque(jobs)
    at_once = None if all(job.token_budget is None for job in jobs) else 1
    for part, summary in in_order(parts(), make_part, pool, what=PartJob.named, at_once=at_once):
        while waiting[0].shard.index != part.shard.index:
            yield finished()
        begun[part.shard.index].take(summary)
        if after is not None:
            after(summary)
    while waiting:
        yield finished()


@dataclass(kw_only=True)
class _Shard:
    """A shard whose parts are being made. `budget`: the tokens that are left for it."""

    job: ShardJob
    budget: int | None
    ended: bool = False
    summaries: list[dict[str, Any]] = field(default_factory=list)
    rejected: int = 0

    def take(self, summary: dict[str, Any]) -> None:
        """Adds the next part. Raises RejectedRowError if too many rows of the shard are refused."""
        self.rejected += faults_in(summary["rejected"])
        if self.rejected > self.job.reject_limit:
            raise Reject(**summary["last_reject"]).as_error(allowed=self.job.reject_limit, shard=self.job.shard.where)
        self.summaries.append(summary)
        self.ended = not summary["whole"]
        if self.budget is not None:
            self.budget -= summary["tokens"]


def make_part(job: PartJob) -> dict[str, Any]:
    """Makes one part, unless it is complete already. Returns its summary.

    `whole` is false if the caps or the reject limit ended the part early: then later parts are not used. Raises
    SourceError if the shard was changed since it was hashed.
    """
    summary = _standing(job) if job.resume else None
    if summary is not None:
        _count(job, summary["rows_read"], summary["tokens"], sum(summary["rejected"].values()))
        return summary

    form = job.recipe.form
    spans = len(form.layout.span_names)
    rejected: Counter[str] = Counter()
    counts: dict[str, Counter[str]] = {}
    last_reject: Reject | None = None
    span_tokens = np.zeros(spans, dtype=np.int64)
    rows_read = documents = tokens = 0
    whole = True
    with PartWriter(job.rendered, job.ids, job.part.index, form.about) as writer:
        for made in job.recipe.made(job.shard, job.part, job.token_budget):
            for reject in made.refused:
                writer.write_reject(reject)
                rejected[reject.reason] += 1
                if reject.reason not in NO_FAULTS:
                    last_reject = reject
                if faults_in(rejected) > job.reject_limit:
                    break
            writer.write(made.about, made.documents)
            rows_read += made.rows_read
            documents += len(made.documents)
            tokens += made.documents.tokens.size
            for group, numbers in made.counts.items():
                counts.setdefault(group, Counter()).update(numbers)
            span_tokens += tokens_per_span(made.documents.span_id, made.documents.lengths, spans).sum(axis=0)
            _count(job, made.rows_read, made.documents.tokens.size, len(made.refused))
            if not made.whole or faults_in(rejected) > job.reject_limit:
                whole = False
                break
        job.recipe.check_unchanged(job.shard)  # the next run keeps a complete part and does not read its rows again
        summary = {
            "part": job.part.index,
            "key": job.key,
            "first_row": job.part.first_row,
            "rows_read": rows_read,
            "rows": documents,
            "tokens": tokens,
            "span_tokens": span_tokens.tolist(),
            "rejected": dict(sorted(rejected.items())),
            "last_reject": last_reject and asdict(last_reject),
            "whole": whole,
            "counts": {group: dict(numbers) for group, numbers in counts.items()},
        }
        return writer.commit(summary) if faults_in(rejected) <= job.reject_limit else summary


def _standing(job: PartJob) -> dict[str, Any] | None:
    sidecar = job.rendered / f"{part_name(job.part.index)}.json"
    if not sidecar.is_file():
        return None
    summary = read_sidecar(sidecar)
    stands = (
        summary.get("key") == job.key
        and faults_in(summary["rejected"]) <= job.reject_limit
        and files_stand(job.rendered, summary["rendered_files"])
        and files_stand(job.ids, summary["ids_files"])
    )
    return summary if stands else None


def _count(job: PartJob, rows: int, tokens: int, rejects: int) -> None:
    if workers.counters_here:
        workers.counters_here.add(job.shard.index, rows=rows, tokens=tokens, rejects=rejects)


def add_counts(counts: dict[str, Counter[str]], summaries: Iterable[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Adds the counts of parts to `counts`, which is returned."""
    for part in summaries:
        for group, numbers in part["counts"].items():
            counts.setdefault(group, Counter()).update(numbers)
    return counts


def write_record(recipe: Recipe, shards: int, job: ShardJob, summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Writes the records of a finished shard, `rendered.json` and `ids.json`. Returns the content of the first.

    `shards`: how many the source has.
    """
    form = recipe.form
    read = {
        "rows_read": sum(part["rows_read"] for part in summaries),
        "rows": sum(part["rows"] for part in summaries),
    }
    rejected: Counter[str] = Counter()
    for part in summaries:
        rejected.update(part["rejected"])
    whole = {
        "artifact": RENDERED_ARTIFACT,
        "family": form.family,
        "shard": job.shard.index,
        "shards": shards,
        "input": dict(recipe.input_of(job.shard)),
        "environment": dict(recipe.environment()),
        **recipe.counted(add_counts({}, summaries)),
        **read,
        "tokens": sum(part["tokens"] for part in summaries),
        "span_tokens": {
            name: sum(part["span_tokens"][span] for part in summaries)
            for span, name in enumerate(form.layout.span_names)
        },
        "rejected": dict(sorted(rejected.items())),
        "parts": [
            {key: part[key] for key in ("part", "first_row", "rows_read", "rows", "tokens", "rejected")}
            | {"files": part["rendered_files"]}
            for part in summaries
        ],
    }
    ids = {
        "artifact": IDS_ARTIFACT,
        "family": form.family,
        "shard": job.shard.index,
        **read,
        "parts": [{"part": part["part"], "rows": part["rows"], "files": part["ids_files"]} for part in summaries],
    }
    write_atomically(job.ids / IDS_JSON, readable_json(ids))
    write_atomically(job.rendered / RENDERED_JSON, readable_json(whole))
    return whole
