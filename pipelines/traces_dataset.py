"""The traces pipeline: records in a bucket → a store → a dataset's manifest → three exports, validated.

    ingest_traces ─► build_traces ─► export_traces ×3 ─► validate_traces
                                └──► tokenize_traces ─► validate_alignment      with a tokenizer

The three exports are made side by side. What publishes under the dataset root is not cached.
"""

from kfp import dsl

from components.dataset.validate_alignment.component import validate_alignment
from components.traces.build_traces.component import build_traces
from components.traces.export_traces.component import export_traces
from components.traces.ingest_traces.component import ingest_traces
from components.traces.tokenize_traces.component import tokenize_traces
from components.traces.validate_traces.component import validate_traces
from pipelines.defaults import as_text, defaults_of
from pipelines.placement import Placement

DEFAULTS = defaults_of("traces")
FORMATS = ("trace", "tunix_sft", "training_example")


def traces_dataset_pipeline(placement: Placement) -> dsl.graph_component.GraphComponent:
    """The pipeline from records to exports and a token dataset."""
    place = placement.place

    @dsl.pipeline(name="traces-dataset", description="reasoning traces → a dataset → exports and tokens, validated")
    def traces_dataset(
        traces_uri: str,
        source_name: str,
        dataset_name: str,
        dataset_version: str,
        dataset_root: str = "",
        tokenizer_uri: str = "",
        ids: str = DEFAULTS.IDS,
        strict: str = "0",
        created_at: str = "",
        map: str = "",  # the option's name
        max_step_characters: int = 0,
        filters: str = "{}",
        limit: int = DEFAULTS.LIMIT,
        strategy: str = DEFAULTS.STRATEGY,
        seed: str = "",
        reproducible: str = DEFAULTS.STEP_REPRODUCIBLE,
        control_tokens: str = DEFAULTS.CONTROL_TOKENS,
        protect_metadata: str = as_text(DEFAULTS.PROTECT_METADATA),
        form: str = DEFAULTS.TOKENIZE_FORMAT,
        eod: str = "",
        tokenize_control_tokens: str = DEFAULTS.TOKENIZE_CONTROL_TOKENS,
        valid_fraction: float = DEFAULTS.VALID_FRACTION,
        ingest_memory: str = "4Gi",
        tokenize_cpu: str = "4",
        tokenize_memory: str = "8Gi",
        validate_memory: str = "16Gi",
    ) -> None:
        ingested = place(
            ingest_traces(
                traces_uri=traces_uri,
                source_name=source_name,
                ids=ids,
                strict=strict,
                created_at=created_at,
                map=map,
                max_step_characters=max_step_characters,
            ),
            cpu="2",
            memory=ingest_memory,
            hours=24,
            cache=False,
        ).set_display_name("ingest-traces")

        built = place(
            build_traces(
                store=ingested.outputs["store"],
                dataset_name=dataset_name,
                dataset_version=dataset_version,
                filters=filters,
                limit=limit,
                strategy=strategy,
                seed=seed,
                reproducible=reproducible,
            ),
            cpu="1",
            memory="4Gi",
            hours=24,
            cache=True,
        ).set_display_name("build-traces")

        exported = {
            form_name: place(
                export_traces(
                    store=ingested.outputs["store"],
                    manifest=built.outputs["manifest"],
                    form=form_name,
                    control_tokens=control_tokens,
                    protect_metadata=protect_metadata,
                ),
                cpu="1",
                memory="2Gi",
                hours=24,
                cache=True,
            ).set_display_name(f"export-traces {form_name}")
            for form_name in FORMATS
        }

        place(
            validate_traces(
                **{form_name: task.outputs["export"] for form_name, task in exported.items()},
                manifest=built.outputs["manifest"],
            ),
            cpu="1",
            memory="2Gi",
            hours=24,
            cache=True,
        ).set_display_name("validate-traces")

        with dsl.If(tokenizer_uri != "", name="with-a-tokenizer"):
            tokens = place(
                tokenize_traces(
                    store=ingested.outputs["store"],
                    manifest=built.outputs["manifest"],
                    tokenizer_uri=tokenizer_uri,
                    dataset_root=dataset_root,
                    form=form,
                    eod=eod,
                    control_tokens=tokenize_control_tokens,
                    valid_fraction=valid_fraction,
                ),
                cpu=tokenize_cpu,
                memory=tokenize_memory,
                hours=24,
                cache=False,
            ).set_display_name("tokenize-traces")

            place(
                validate_alignment(
                    dataset=tokens.outputs["dataset"],
                    dataset_root=dataset_root,
                    source_uri="",
                    tokenizer=tokens.outputs["tokenizer"],
                    deep=0,
                ),
                cpu="2",
                memory=validate_memory,
                hours=24,
                cache=False,
            ).set_display_name("validate-alignment")

    return traces_dataset
