"""The pipelines of SYNTH KD as lists of stages: the same tasks as `pipelines/synth_kd.py` compiles for Kubeflow.

In: the number of shards, the pipeline's parameters, a place for the small files that pass between steps. Out: stages
in an order in which each comes after those that it waits for. A test compiles both pipelines and compares every
command.

Below the place, a file or folder is at `STAGE/INDEX/OUTPUT`, or `STAGE/OUTPUT` where a stage is one task.
"""

from importlib.metadata import version

from spanloom.errors import SpanloomError
from spanloom.families.harmony import defaults
from spanloom.tasks.stage import INDEX, Stage, given

REGISTRY = "ghcr.io/spanloom"
SCRATCH = "200Gi"
MOST_SHARDS = 1024
"""Tasks of a job array, as many as the docs tell how to allow."""


def _text(value: object) -> str:
    return "" if value is None else str(value)


SYNTH_KD: dict[str, str | None] = {
    "source_uri": None,
    "dataset_root": None,
    "work_uri": "",
    "tokenizer_uri": "",
    "valid_fraction": _text(defaults.VALID_FRACTION),
    "max_rows": _text(defaults.MAX_ROWS),
    "max_rows_per_shard": _text(defaults.MAX_ROWS_PER_SHARD),
    "max_tokens": _text(defaults.MAX_TOKENS),
    "max_rejects": defaults.MAX_REJECTS,
    "on_duplicate": defaults.ON_DUPLICATE,
    "renderer": defaults.RENDERER,
    "audit_fraction": _text(defaults.AUDIT_FRACTION),
    "deep": _text(defaults.DEEP),
    "workers": "",
    "render_cpu": "8",
    "render_memory": "16Gi",
    "write_cpu": "2",
    "write_memory": "8Gi",
    "split_memory": "8Gi",
    "validate_memory": "16Gi",
}
"""Parameters of the pipeline and their defaults; None where a value must be given."""

SYNTH_RAW_TO_KD: dict[str, str | None] = {
    "raw_uri": None,
    "dataset_name": defaults.DATASET_NAME,
    "convert_cpu": "2",
    "convert_memory": "8Gi",
    **SYNTH_KD,
}

PIPELINES = {"synth_kd": SYNTH_KD, "synth_raw_to_kd": SYNTH_RAW_TO_KD}


def stages_of(
    pipeline: str,
    values: dict[str, str],
    *,
    shards: int,
    work: str,
    registry: str = REGISTRY,
    scratch: str = SCRATCH,
) -> list[Stage]:
    """The stages of a pipeline. `values`: of all its parameters. Raises SpanloomError for a number of shards that there
    cannot be."""
    if not 1 <= shards <= MOST_SHARDS:
        raise SpanloomError(f"a pipeline has 1 to {MOST_SHARDS} shards, not {shards}")
    made = _Stages(shards=shards, work=work.rstrip("/"), registry=registry, scratch=scratch)
    before: tuple[str, ...] = ()
    if pipeline == "synth_raw_to_kd":
        _add_conversion(made, values)
        before = ("assemble-source",)
    _add_synth_kd(made, values, before)
    return made.stages


class _Stages:
    """Stages as they are added."""

    def __init__(self, *, shards: int, work: str, registry: str, scratch: str) -> None:
        self.shards, self._work = shards, work
        self._registry, self._scratch = registry, scratch
        self.stages: list[Stage] = []

    def one(self, stage: str, output: str) -> str:
        """Where an output of a stage of one task goes."""
        return f"{self._work}/{stage}/{output}"

    def each(self, stage: str, output: str) -> str:
        """Where an output of the task at hand goes, in a stage with a task for each shard."""
        return f"{self._work}/{stage}/{INDEX}/{output}"

    def all(self, option: str, stage: str, output: str) -> tuple[str, ...]:
        """The option once for the output of each shard, in order."""
        place = self.each(stage, output)
        return tuple(word for shard in range(self.shards) for word in (option, place.replace(INDEX, str(shard))))

    def add(
        self,
        name: str,
        *words: str,
        cpu: str = "1",
        memory: str = "1Gi",
        hours: int = 1,
        each: bool = False,
        after: tuple[str, ...] = (),
    ) -> None:
        self.stages.append(
            Stage(
                name=name,
                count=self.shards if each else 1,
                image=f"{self._registry}/spanloom-{name}:{version('spanloom')}",
                argv=("spanloom", "step", name, *words),
                cpu=cpu,
                memory=memory,
                scratch=self._scratch,
                hours=hours,
                after=after,
            )
        )


def _add_conversion(made: _Stages, values: dict[str, str]) -> None:
    made.add(
        "convert-shard",
        *given(
            ("--shard", INDEX),
            ("--shards", str(made.shards)),
            ("--raw", values["raw_uri"]),
            ("--out", values["source_uri"]),
            ("--dataset", values["dataset_name"]),
            ("--inventory", made.each("convert-shard", "inventory")),
        ),
        cpu=values["convert_cpu"],
        memory=values["convert_memory"],
        hours=24,
        each=True,
    )
    made.add(
        "assemble-source",
        *made.all("--inventory", "convert-shard", "inventory"),
        *given(("--out", values["source_uri"])),
        after=("convert-shard",),
    )


def _add_synth_kd(made: _Stages, values: dict[str, str], before: tuple[str, ...]) -> None:
    tokenizer = made.one("verify-tokenizer", "tokenizer")
    made.add(
        "verify-tokenizer",
        *given(
            ("--tokenizer", values["tokenizer_uri"]),
            ("--asset", tokenizer),
            ("--report", made.one("verify-tokenizer", "report")),
        ),
        after=before,
    )
    made.add(
        "render-shard",
        *given(
            ("--shard", INDEX),
            ("--shards", "" if made.shards == defaults.SHARDS else str(made.shards)),
            ("--source", values["source_uri"]),
            ("--tokenizer", tokenizer),
            ("--renderer", values["renderer"]),
            ("--audit-fraction", values["audit_fraction"]),
            ("--max-rows", values["max_rows"]),
            ("--max-rows-per-shard", values["max_rows_per_shard"]),
            ("--max-tokens", values["max_tokens"]),
            ("--max-rejects", values["max_rejects"]),
            ("--workers", values["workers"]),
            ("--work", values["work_uri"]),
            ("--root", values["dataset_root"]),
            ("--rendered", made.each("render-shard", "rendered")),
        ),
        cpu=values["render_cpu"],
        memory=values["render_memory"],
        hours=24,
        each=True,
        after=("verify-tokenizer",),
    )
    made.add(
        "assemble-split",
        *made.all("--rendered", "render-shard", "rendered"),
        *given(
            ("--split", made.one("assemble-split", "split")),
            ("--valid-fraction", values["valid_fraction"]),
            ("--on-duplicate", values["on_duplicate"]),
        ),
        memory=values["split_memory"],
        hours=4,
        after=("render-shard",),
    )
    made.add(
        "write-indexed",
        *given(
            ("--rendered", made.each("render-shard", "rendered")),
            ("--valid-fraction", values["valid_fraction"]),
            ("--root", values["dataset_root"]),
            ("--inventory", made.each("write-indexed", "inventory")),
        ),
        cpu=values["write_cpu"],
        memory=values["write_memory"],
        hours=24,
        each=True,
        after=("render-shard",),
    )
    made.add(
        "assemble-manifest",
        *made.all("--inventory", "write-indexed", "inventory"),
        *given(("--split", made.one("assemble-split", "split")), ("--root", values["dataset_root"])),
        after=("assemble-split", "write-indexed"),
    )
    made.add(
        "validate-shard",
        *given(
            ("--shard", INDEX),
            ("--root", values["dataset_root"]),
            ("--source", values["source_uri"]),
            ("--tokenizer", tokenizer),
            ("--deep", values["deep"]),
            ("--report", made.each("validate-shard", "report")),
            ("--digests", made.each("validate-shard", "digests")),
        ),
        cpu="2",
        memory=values["validate_memory"],
        hours=24,
        each=True,
        after=("assemble-manifest", "verify-tokenizer"),
    )
    made.add(
        "assemble-validation",
        *made.all("--shard-report", "validate-shard", "report"),
        *made.all("--shard-digests", "validate-shard", "digests"),
        *given(
            ("--root", values["dataset_root"]),
            ("--source", values["source_uri"]),
            ("--report", made.one("assemble-validation", "report")),
            ("--html", made.one("assemble-validation", "html")),
        ),
        memory=values["split_memory"],
        hours=4,
        after=("validate-shard",),
    )
