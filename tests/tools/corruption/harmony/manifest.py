"""Forgeries of the manifest and of files."""

from tools.corruption.dataset import DELETED, Dataset, listed, plus
from tools.corruption.harmony.kinds import config, forgery, on_manifest

on_manifest(
    {
        "there_was_a_cap": ("alone", "plain", "config.caps.max_rows", 10),
        "less_is_to_be_trained": ("alone", "plain", "config.train", ["final"]),
        "more_is_to_be_trained": ("alone", "answers", "config.train", ["analysis", "final"]),
        "the_history_is_kept": ("alone", "plain", "config.history", "keep"),
        "the_history_is_served": ("alone", "keep", "config.history", "serve"),
        "the_last_turns_are_trained": ("alone", "plain", "config.turns", "last"),
        "all_turns_are_trained": ("alone", "last", "config.turns", "all"),
        "runs_have_a_document_each": ("alone", "plain", "config.merge", DELETED),
        "calls_are_json": ("alone", "plain", "config.call_format", "json"),
        "calls_are_constrained": ("alone", "as-served", "config.call_format", DELETED),
        "generation_prompts_are_masked": ("alone", "plain", "config.mask_generation_prompt", True),
        "generation_prompts_are_not_masked": ("alone", "prompted", "config.mask_generation_prompt", DELETED),
        "runs_are_counted_that_are_not_there": ("alone", "plain", "shards.0.cutting.runs", plus(1)),
        "messages_are_left_out_that_are_not": ("source", "plain", "shards.0.cutting.left_out_messages", plus(3)),
        "messages_are_untrained_that_are_trained": ("source", "plain", "shards.0.cutting.untrained_messages", plus(3)),
        "fewer_messages_are_untrained": ("source", "flags", "shards.0.cutting.untrained_messages", plus(-1)),
        "fewer_documents_are_divided": ("source", "as-served", "shards.0.cutting.divided_documents", plus(-1)),
        "divided_documents_have_fewer_tokens": ("source", "as-served", "shards.0.cutting.divided_tokens", plus(-1)),
        "more_is_audited_than_there_is": ("alone", "plain", "renderer.audited_rows", 10**6),
        "the_renderer_is_another": ("alone", "plain", "renderer.name", "slow"),
        "the_input_has_more_rows": ("alone", "plain", "input.shards.0.rows", plus(1)),
        "the_tokenizer_is_another": ("alone", "plain", "tokenizer.sha256", "ab" * 32),
        "the_input_is_another": ("source", "plain", "input.manifest_sha256", "ab" * 32),
    }
)


@forgery("alone")
def _the_names_of_spans_are_exchanged(dataset: Dataset) -> None:
    names = dataset.manifest["content"]["span_names"]
    names[1], names[2] = names[2], names[1]
    dataset.span_names = list(names)


@forgery("alone")
def _the_share_of_valid_is_another(dataset: Dataset) -> None:
    fraction = 0.4
    config(dataset)["valid_fraction"] = fraction
    dataset.manifest["content"]["split"].update(valid_fraction=fraction, threshold=str(2 * 2**64 // 5))


@forgery("alone")
def _a_file_is_listed_that_no_such_dataset_has(dataset: Dataset) -> None:
    (dataset.root / "tokenizer.json").write_text("{}")
    dataset.manifest["content"]["files"] = [listed(dataset.root, "tokenizer.json")]
