"""The SYNTH KD pipeline: a `synth_harmony_v1` folder in a bucket → a validated Megatron dataset beside it.

    verify_tokenizer ─► render_shard ×N ─┬─► write_indexed ×N ─┬─► assemble_manifest
                                         └─► assemble_split ───┘
        ─► validate_shard ×N ─► assemble_validation

A shard is written as soon as it is rendered. An id that stands twice fails assemble_split, and there is no manifest.
N is 4, the locked layout, where a pipeline is not compiled with another number.

Each shard has named tasks and there is no ParallelFor, inside which Kubeflow ignores retries. Steps that publish under
`dataset_root` or `work_uri` are never cached: publishing what is there already costs a look, a skipped publish costs a
dataset. No artifact is a folder: what is large passes through `work_uri`, moved by the steps, and the artifact is a
manifest of it.
"""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

from kfp import dsl

from components.dataset.assemble_validation.component import assemble_validation_of
from components.dataset.validate_shard.component import validate_shard
from components.harmony.assemble_manifest.component import assemble_manifest_of
from components.harmony.assemble_source.component import assemble_source_of
from components.harmony.assemble_split.component import assemble_split_of
from components.harmony.convert_shard.component import convert_shard
from components.harmony.render_shard.component import render_shard_of
from components.harmony.verify_tokenizer.component import verify_tokenizer
from components.harmony.write_indexed.component import write_indexed
from components.of_shards import each
from pipelines.defaults import as_text, defaults_of
from pipelines.placement import Placement

DEFAULTS = defaults_of("harmony")
SHARDS: int = DEFAULTS.SHARDS
MOST_SHARDS = 64
"""Named tasks of a stage: each takes some 7 KB of the compiled pipeline, which Kubernetes bounds."""


def synth_kd_pipeline(placement: Placement, shards: int = SHARDS) -> dsl.graph_component.GraphComponent:
    """The pipeline from Harmony shards to the dataset. Raises ValueError for more shards than `MOST_SHARDS`."""
    if not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"a pipeline has 1 to {MOST_SHARDS} shards, not {shards}")
    place = placement.place
    render_shard = render_shard_of(shards)
    assemble_split = assemble_split_of(shards)
    assemble_manifest = assemble_manifest_of(shards)
    assemble_validation = assemble_validation_of(shards)

    @dsl.pipeline(name="synth-kd", description="synth_harmony_v1 shards → a validated SYNTH KD dataset for Megatron")
    def synth_kd(
        source_uri: str,
        dataset_root: str,
        work_uri: str = "",
        tokenizer_uri: str = "",
        valid_fraction: float = DEFAULTS.VALID_FRACTION,
        max_rows: str = as_text(DEFAULTS.MAX_ROWS),
        max_rows_per_shard: str = as_text(DEFAULTS.MAX_ROWS_PER_SHARD),
        max_tokens: str = as_text(DEFAULTS.MAX_TOKENS),
        max_rejects: str = DEFAULTS.MAX_REJECTS,
        on_duplicate: str = DEFAULTS.ON_DUPLICATE,
        renderer: str = DEFAULTS.RENDERER,
        audit_fraction: float = DEFAULTS.AUDIT_FRACTION,
        deep: int = DEFAULTS.DEEP,
        workers: str = "",
        render_cpu: str = "8",
        render_memory: str = "16Gi",
        write_cpu: str = "2",
        write_memory: str = "8Gi",
        split_memory: str = "8Gi",
        validate_memory: str = "16Gi",
    ) -> None:
        verified = place(
            verify_tokenizer(tokenizer_uri=tokenizer_uri), cpu="1", memory="1Gi", hours=1, cache=True
        ).set_display_name("verify-tokenizer")
        tokenizer = verified.outputs["tokenizer"]

        rendered = [
            place(
                render_shard(
                    shard=shard,
                    source_uri=source_uri,
                    tokenizer=tokenizer,
                    renderer=renderer,
                    audit_fraction=audit_fraction,
                    max_rows=max_rows,
                    max_rows_per_shard=max_rows_per_shard,
                    max_tokens=max_tokens,
                    max_rejects=max_rejects,
                    workers=workers,
                    work_uri=work_uri,
                    dataset_root=dataset_root,
                ),
                cpu=render_cpu,
                memory=render_memory,
                hours=24,
                cache=False,
            ).set_display_name(f"render-shard {shard:02d}")
            for shard in range(shards)
        ]

        split = place(
            assemble_split(
                **{
                    name: task.outputs["rendered"]
                    for name, task in zip(each("rendered", shards), rendered, strict=True)
                },
                valid_fraction=valid_fraction,
                on_duplicate=on_duplicate,
            ),
            cpu="1",
            memory=split_memory,
            hours=4,
            cache=False,
        ).set_display_name("assemble-split")

        written = [
            place(
                write_indexed(
                    rendered=task.outputs["rendered"],
                    valid_fraction=valid_fraction,
                    dataset_root=dataset_root,
                ),
                cpu=write_cpu,
                memory=write_memory,
                hours=24,
                cache=False,
            ).set_display_name(f"write-indexed {shard:02d}")
            for shard, task in enumerate(rendered)
        ]

        manifest = place(
            assemble_manifest(
                **{
                    name: task.outputs["inventory"]
                    for name, task in zip(each("inventory", shards), written, strict=True)
                },
                split=split.outputs["split"],
                dataset_root=dataset_root,
            ),
            cpu="1",
            memory="1Gi",
            hours=1,
            cache=False,
        ).set_display_name("assemble-manifest")

        validated = [
            place(
                validate_shard(
                    shard=shard,
                    dataset=manifest.outputs["dataset"],
                    dataset_root=dataset_root,
                    source_uri=source_uri,
                    tokenizer=tokenizer,
                    deep=deep,
                ),
                cpu="2",
                memory=validate_memory,
                hours=24,
                cache=False,
            ).set_display_name(f"validate-shard {shard:02d}")
            for shard in range(shards)
        ]

        place(
            assemble_validation(
                **{
                    name: task.outputs[output]
                    for output in ("report", "digests")
                    for name, task in zip(each(output, shards), validated, strict=True)
                },
                dataset_root=dataset_root,
                source_uri=source_uri,
            ),
            cpu="1",
            memory=split_memory,
            hours=4,
            cache=False,
        ).set_display_name("assemble-validation")

    return synth_kd


def synth_raw_to_kd_pipeline(placement: Placement, shards: int = SHARDS) -> dsl.graph_component.GraphComponent:
    """The same with the conversion in front: raw SYNTH Parquet in a bucket → the dataset. It has all its parameters."""
    synth_kd = synth_kd_pipeline(placement, shards)
    assemble_source = assemble_source_of(shards)

    def synth_raw_to_kd(
        raw_uri: str,
        dataset_name: str = DEFAULTS.DATASET_NAME,
        convert_cpu: str = "2",
        convert_memory: str = "8Gi",
        **of_synth_kd: Any,
    ) -> None:
        source_uri = of_synth_kd["source_uri"]
        converted = [
            placement.place(
                convert_shard(
                    shard=shard, shards=shards, raw_uri=raw_uri, source_uri=source_uri, dataset_name=dataset_name
                ),
                cpu=convert_cpu,
                memory=convert_memory,
                hours=24,
                cache=False,
            ).set_display_name(f"convert-shard {shard:02d}")
            for shard in range(shards)
        ]
        source = placement.place(
            assemble_source(
                **{
                    name: task.outputs["inventory"]
                    for name, task in zip(each("inventory", shards), converted, strict=True)
                },
                source_uri=source_uri,
            ),
            cpu="1",
            memory="1Gi",
            hours=1,
            cache=False,
        ).set_display_name("assemble-source")
        synth_kd(**of_synth_kd).after(source)

    declared = dsl.pipeline(name="synth-raw-to-kd", description="Raw SYNTH Parquet → a validated SYNTH KD dataset")
    return declared(_with_parameters_of(synth_kd.pipeline_func, synth_raw_to_kd))


def _with_parameters_of(inner: Callable[..., None], outer: Callable[..., None]) -> Callable[..., None]:
    """`outer` with the parameters of `inner` in the place of its `**`; those without a default first, as kfp wants."""
    named = [one for one in signature(outer).parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    parameters = [*named, *signature(inner).parameters.values()]
    parameters.sort(key=lambda parameter: parameter.default is not Parameter.empty)

    @wraps(outer)
    def joined(*given: Any) -> None:
        outer(**{parameter.name: value for parameter, value in zip(parameters, given, strict=True)})

    joined.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return joined
