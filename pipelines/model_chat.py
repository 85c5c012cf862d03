"""The pipeline for any model: conversations and a model's folder in a bucket → a dataset in its chat template.

    tokenize_conversations ─► validate_alignment

Validation is the shared component: it reads the family off the manifest, and proves drawn conversations again. Both
publish, so none is cached.
"""

from kfp import dsl

from components.dataset.validate_alignment.component import validate_alignment
from components.models.tokenize_conversations.component import tokenize_conversations
from pipelines.defaults import as_text, defaults_of
from pipelines.placement import Placement

DEFAULTS = defaults_of("models")


def model_chat_pipeline(placement: Placement) -> dsl.graph_component.GraphComponent:
    """The pipeline from conversations to the dataset."""
    place = placement.place

    @dsl.pipeline(name="model-chat", description="conversations, a model's folder → a dataset in its chat template")
    def model_chat(
        source_uri: str,
        model_uri: str,
        dataset_root: str,
        thinking: str = DEFAULTS.THINKING[0],
        inline_think: str = "0",
        boundary: str = DEFAULTS.BOUNDARY[0],
        stops: str = "",
        date: str = "",
        variables: str = "{}",
        train: str = DEFAULTS.TRAIN,
        emission: str = "",
        valid_fraction: float = DEFAULTS.VALID_FRACTION,
        max_rows: str = as_text(DEFAULTS.MAX_ROWS),
        max_rows_per_shard: str = as_text(DEFAULTS.MAX_ROWS_PER_SHARD),
        max_rejects: str = DEFAULTS.MAX_REJECTS,
        on_duplicate: str = DEFAULTS.ON_DUPLICATE,
        workers: str = "",
        deep: int = DEFAULTS.DEEP,
        tokenize_cpu: str = "8",
        tokenize_memory: str = "16Gi",
        validate_memory: str = "16Gi",
    ) -> None:
        tokenized = place(
            tokenize_conversations(
                source_uri=source_uri,
                model_uri=model_uri,
                dataset_root=dataset_root,
                thinking=thinking,
                inline_think=inline_think,
                boundary=boundary,
                stops=stops,
                date=date,
                variables=variables,
                train=train,
                emission=emission,
                valid_fraction=valid_fraction,
                max_rows=max_rows,
                max_rows_per_shard=max_rows_per_shard,
                max_rejects=max_rejects,
                on_duplicate=on_duplicate,
                workers=workers,
            ),
            cpu=tokenize_cpu,
            memory=tokenize_memory,
            hours=24,
            cache=False,
        ).set_display_name("tokenize-conversations")

        place(
            validate_alignment(
                dataset=tokenized.outputs["dataset"],
                dataset_root=dataset_root,
                source_uri=source_uri,
                tokenizer=tokenized.outputs["tokenizer"],
                deep=deep,
            ),
            cpu="2",
            memory=validate_memory,
            hours=24,
            cache=False,
        ).set_display_name("validate-alignment")

    return model_chat
