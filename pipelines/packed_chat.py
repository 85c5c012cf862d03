"""The packed chat pipeline: conversations in a bucket → a validated Megatron dataset of packed blocks.

    generate_chat ─► pack_chat ─► validate_alignment

What validates is the first family's component: what differs between families it reads off the manifest. All three
publish, so none is cached.
"""

from kfp import dsl

from components.generate_chat.component import generate_chat
from components.pack_chat.component import pack_chat
from components.validate_alignment.component import validate_alignment
from pipelines.placement import Placement


def packed_chat_pipeline(placement: Placement) -> dsl.graph_component.GraphComponent:
    """The pipeline from conversations to the dataset."""
    place = placement.place

    @dsl.pipeline(name="packed-chat", description="conversations → transcripts → a validated dataset of packed blocks")
    def packed_chat(
        conversations_uri: str,
        transcripts_uri: str,
        dataset_root: str,
        tokenizer_uri: str = "",
        context_len: int = 1024,
        on_error: str = "",
        block_size: int = 1024,
        post_training: str = "1",
        strict_user: str = "0",
        keep_lossless: str = "1",
        pad_tail: str = "0",
        shards: int = 1,
        deep: int = 64,
        workers: str = "",
        generate_cpu: str = "2",
        generate_memory: str = "4Gi",
        pack_cpu: str = "8",
        pack_memory: str = "16Gi",
        validate_memory: str = "16Gi",
    ) -> None:
        generated = place(
            generate_chat(
                conversations_uri=conversations_uri,
                transcripts_uri=transcripts_uri,
                tokenizer_uri=tokenizer_uri,
                context_len=context_len,
                on_error=on_error,
            ),
            cpu=generate_cpu,
            memory=generate_memory,
            hours=24,
            cache=False,
        ).set_display_name("generate-chat")

        packed = place(
            pack_chat(
                transcripts_uri=transcripts_uri,
                dataset_root=dataset_root,
                tokenizer_uri=tokenizer_uri,
                block_size=block_size,
                post_training=post_training,
                strict_user=strict_user,
                keep_lossless=keep_lossless,
                pad_tail=pad_tail,
                shards=shards,
                workers=workers,
            ).after(generated),
            cpu=pack_cpu,
            memory=pack_memory,
            hours=24,
            cache=False,
        ).set_display_name("pack-chat")

        place(
            validate_alignment(
                dataset=packed.outputs["dataset"],
                dataset_root=dataset_root,
                source_uri=transcripts_uri,
                tokenizer=packed.outputs["tokenizer"],
                deep=deep,
            ),
            cpu="2",
            memory=validate_memory,
            hours=24,
            cache=False,
        ).set_display_name("validate-alignment")

    return packed_chat
