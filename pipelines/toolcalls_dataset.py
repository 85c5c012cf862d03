"""The tool-call pipeline: public sources in a bucket → samples → two validated token datasets.

    convert b4 ───────┐
    convert agentdojo ┤                                               ┌► tokenize harmful ─► validate-alignment
    convert tau2 ─────┼─► validate_toolcalls ─► merge ─► audit ──────┤
    convert ultrachat ┤                                               └► tokenize retain ──► validate-alignment
    convert xstest ───┘

The converters are five named tasks and no ParallelFor, inside which Kubeflow ignores retries; one whose source is empty
makes nothing. All publish, so none is cached.
"""

from kfp import dsl

from components.dataset.validate_alignment.component import validate_alignment
from components.toolcalls.audit_toolcalls.component import audit_toolcalls
from components.toolcalls.convert_toolcalls.component import convert_toolcalls
from components.toolcalls.merge_toolcalls.component import merge_toolcalls
from components.toolcalls.tokenize_toolcalls.component import tokenize_toolcalls
from components.toolcalls.validate_toolcalls.component import validate_toolcalls
from pipelines.defaults import defaults_of
from pipelines.placement import Placement

DEFAULTS = defaults_of("toolcalls")


def toolcalls_dataset_pipeline(placement: Placement) -> dsl.graph_component.GraphComponent:
    """The pipeline from the sources to both datasets."""
    place = placement.place

    @dsl.pipeline(name="toolcalls-dataset", description="tool-call samples of public sources → two token datasets")
    def toolcalls_dataset(
        samples_uri: str,
        merged_uri: str,
        template_uri: str,
        tokenizer_uri: str,
        harmful_root: str,
        retain_root: str,
        b4_uri: str = "",
        b4_completions_uri: str = "",
        agentdojo_uri: str = "",
        tau2_uri: str = "",
        ultrachat_uri: str = "",
        xstest_uri: str = "",
        xstest_completions_uri: str = "",
        system: str = "",
        turns: str = "last",
        dr_ratio: float = DEFAULTS.DR_RATIO,
        seed: int = DEFAULTS.SEED,
        min_ratio: float = DEFAULTS.MIN_RATIO,
        min_adversarial_safe: int = DEFAULTS.MIN_ADVERSARIAL_SAFE,
        audit_limit: int = DEFAULTS.AUDIT_LIMIT,
        eod: str = DEFAULTS.EOD,
        max_length: int = 0,
        valid_fraction: float = DEFAULTS.VALID_FRACTION,
        spans: str = DEFAULTS.SPANS,
        deep: int = DEFAULTS.DEEP,
        convert_memory: str = "4Gi",
        merge_memory: str = "16Gi",
        tokenize_cpu: str = "2",
        tokenize_memory: str = "8Gi",
        validate_memory: str = "8Gi",
    ) -> None:
        sources = {
            "b4": (b4_uri, b4_completions_uri),
            "agentdojo": (agentdojo_uri, ""),
            "tau2": (tau2_uri, ""),
            "ultrachat": (ultrachat_uri, ""),
            "xstest": (xstest_uri, xstest_completions_uri),
        }
        converted = [
            place(
                convert_toolcalls(
                    source=source,
                    source_uri=source_uri,
                    completions_uri=completions_uri,
                    samples_uri=samples_uri,
                    system=system,
                    turns=turns,
                ),
                cpu="1",
                memory=convert_memory,
                hours=12,
                cache=False,
            ).set_display_name(f"convert-toolcalls {source}")
            for source, (source_uri, completions_uri) in sources.items()
        ]

        validated = place(
            validate_toolcalls(samples_uri=samples_uri).after(*converted),
            cpu="1",
            memory="4Gi",
            hours=12,
            cache=False,
        ).set_display_name("validate-toolcalls")

        merged = place(
            merge_toolcalls(
                harmful_uri=f"{samples_uri}/harmful",
                retain_uri=f"{samples_uri}/retain",
                merged_uri=merged_uri,
                dr_ratio=dr_ratio,
                seed=seed,
                min_ratio=min_ratio,
                min_adversarial_safe=min_adversarial_safe,
            ).after(validated),
            cpu="1",
            memory=merge_memory,
            hours=12,
            cache=False,
        ).set_display_name("merge-toolcalls")

        audited = place(
            audit_toolcalls(merged_uri=merged_uri, template_uri=template_uri, limit=audit_limit).after(merged),
            cpu="1",
            memory="4Gi",
            hours=12,
            cache=False,
        ).set_display_name("audit-toolcalls")

        for split, root in (("harmful", harmful_root), ("retain", retain_root)):
            tokenized = place(
                tokenize_toolcalls(
                    split=split,
                    merged_uri=merged_uri,
                    template_uri=template_uri,
                    tokenizer_uri=tokenizer_uri,
                    dataset_root=root,
                    eod=eod,
                    max_length=max_length,
                    valid_fraction=valid_fraction,
                    spans=spans,
                ).after(audited),
                cpu=tokenize_cpu,
                memory=tokenize_memory,
                hours=24,
                cache=False,
            ).set_display_name(f"tokenize-toolcalls {split}")

            place(
                validate_alignment(
                    dataset=tokenized.outputs["dataset"],
                    dataset_root=root,
                    source_uri=merged_uri,
                    tokenizer=tokenized.outputs["tokenizer"],
                    deep=deep,
                ),
                cpu="2",
                memory=validate_memory,
                hours=12,
                cache=False,
            ).set_display_name(f"validate-alignment {split}")

    return toolcalls_dataset
