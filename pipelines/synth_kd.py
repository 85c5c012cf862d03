"""The SYNTH KD pipeline: a `synth_harmony_v1` folder in a bucket → a validated Megatron dataset beside it.

    verify_tokenizer ─► render_shard ×4 ─► assemble_split ─► write_indexed ×4 ─► assemble_manifest ─► validate_alignment

The four shards are four named tasks and no ParallelFor, inside which Kubeflow ignores retries. Steps that publish under
`dataset_root` are never cached: publishing what stands there already costs a look, a skipped publish costs a dataset.
"""

from kfp import dsl

from components.dataset.validate_alignment.component import validate_alignment
from components.harmony.assemble_manifest.component import assemble_manifest
from components.harmony.assemble_split.component import assemble_split
from components.harmony.convert_synth.component import convert_synth
from components.harmony.render_shard.component import render_shard
from components.harmony.verify_tokenizer.component import verify_tokenizer
from components.harmony.write_indexed.component import write_indexed
from pipelines.defaults import as_text, defaults_of
from pipelines.placement import Placement

DEFAULTS = defaults_of("harmony")
SHARDS: int = DEFAULTS.SHARDS


def synth_kd_pipeline(placement: Placement) -> dsl.graph_component.GraphComponent:
    """The pipeline from Harmony shards to the dataset."""
    place = placement.place

    @dsl.pipeline(name="synth-kd", description="synth_harmony_v1 shards → a validated SYNTH KD dataset for Megatron")
    def synth_kd(
        source_uri: str,
        dataset_root: str,
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
                ),
                cpu=render_cpu,
                memory=render_memory,
                hours=24,
                cache=True,
            ).set_display_name(f"render-shard {shard:02d}")
            for shard in range(SHARDS)
        ]

        split = place(
            assemble_split(
                **{f"ids_{shard:02d}": task.outputs["ids"] for shard, task in enumerate(rendered)},
                valid_fraction=valid_fraction,
                on_duplicate=on_duplicate,
            ),
            cpu="1",
            memory=split_memory,
            hours=4,
            cache=True,
        ).set_display_name("assemble-split")

        written = [
            place(
                write_indexed(
                    rendered=task.outputs["rendered"],
                    ids=task.outputs["ids"],
                    split=split.outputs["split"],
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
                **{f"inventory_{shard:02d}": task.outputs["inventory"] for shard, task in enumerate(written)},
                dataset_root=dataset_root,
            ),
            cpu="1",
            memory="1Gi",
            hours=1,
            cache=False,
        ).set_display_name("assemble-manifest")

        place(
            validate_alignment(
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
        ).set_display_name("validate-alignment")

    return synth_kd


def synth_raw_to_kd_pipeline(placement: Placement) -> dsl.graph_component.GraphComponent:
    """The same with `convert-synth` in front: raw SYNTH Parquet in a bucket → the dataset."""
    synth_kd = synth_kd_pipeline(placement)

    @dsl.pipeline(name="synth-raw-to-kd", description="Raw SYNTH Parquet → a validated SYNTH KD dataset")
    def synth_raw_to_kd(
        raw_uri: str,
        source_uri: str,
        dataset_root: str,
        dataset_name: str = DEFAULTS.DATASET_NAME,
        valid_fraction: float = DEFAULTS.VALID_FRACTION,
        max_rejects: str = DEFAULTS.MAX_REJECTS,
        on_duplicate: str = DEFAULTS.ON_DUPLICATE,
    ) -> None:
        converted = placement.place(
            convert_synth(raw_uri=raw_uri, source_uri=source_uri, dataset_name=dataset_name),
            cpu="2",
            memory="8Gi",
            hours=24,
            cache=False,
        ).set_display_name("convert-synth")
        synth_kd(
            source_uri=source_uri,
            dataset_root=dataset_root,
            valid_fraction=valid_fraction,
            max_rejects=max_rejects,
            on_duplicate=on_duplicate,
        ).after(converted)

    return synth_raw_to_kd
