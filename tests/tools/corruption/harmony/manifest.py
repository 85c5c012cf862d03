"""Forgeries of the manifest and of files."""

from tools.corruption.dataset import Dataset, listed
from tools.corruption.harmony.kinds import config, cutting, forgery


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
def _there_was_a_cap(dataset: Dataset) -> None:
    config(dataset)["caps"]["max_rows"] = 10


@forgery("alone")
def _less_is_to_be_trained(dataset: Dataset) -> None:
    config(dataset)["train"] = ["final"]


@forgery("alone", "answers")
def _more_is_to_be_trained(dataset: Dataset) -> None:
    config(dataset)["train"] = ["analysis", "final"]


@forgery("alone")
def _the_history_is_kept(dataset: Dataset) -> None:
    config(dataset)["history"] = "keep"


@forgery("alone", "keep")
def _the_history_is_served(dataset: Dataset) -> None:
    config(dataset)["history"] = "serve"


@forgery("alone")
def _the_last_turns_are_trained(dataset: Dataset) -> None:
    config(dataset)["turns"] = "last"


@forgery("alone", "last")
def _all_turns_are_trained(dataset: Dataset) -> None:
    config(dataset)["turns"] = "all"


@forgery("alone")
def _runs_have_a_document_each(dataset: Dataset) -> None:
    del config(dataset)["merge"]


@forgery("alone")
def _calls_are_json(dataset: Dataset) -> None:
    config(dataset)["call_format"] = "json"


@forgery("alone", "as-served")
def _calls_are_constrained(dataset: Dataset) -> None:
    del config(dataset)["call_format"]


@forgery("alone")
def _generation_prompts_are_masked(dataset: Dataset) -> None:
    config(dataset)["mask_generation_prompt"] = True


@forgery("alone", "prompted")
def _generation_prompts_are_not_masked(dataset: Dataset) -> None:
    del config(dataset)["mask_generation_prompt"]


@forgery("alone")
def _runs_are_counted_that_are_not_there(dataset: Dataset) -> None:
    cutting(dataset)["runs"] += 1


@forgery("source")
def _messages_are_left_out_that_are_not(dataset: Dataset) -> None:
    cutting(dataset)["left_out_messages"] += 3


@forgery("source")
def _messages_are_untrained_that_are_trained(dataset: Dataset) -> None:
    cutting(dataset)["untrained_messages"] += 3


@forgery("source", "flags")
def _fewer_messages_are_untrained(dataset: Dataset) -> None:
    cutting(dataset)["untrained_messages"] -= 1


@forgery("source", "as-served")
def _fewer_documents_are_divided(dataset: Dataset) -> None:
    cutting(dataset)["divided_documents"] -= 1


@forgery("source", "as-served")
def _divided_documents_have_fewer_tokens(dataset: Dataset) -> None:
    cutting(dataset)["divided_tokens"] -= 1


@forgery("alone")
def _more_is_audited_than_there_is(dataset: Dataset) -> None:
    dataset.manifest["content"]["renderer"]["audited_rows"] = 10**6


@forgery("alone")
def _the_renderer_is_another(dataset: Dataset) -> None:
    dataset.manifest["content"]["renderer"]["name"] = "slow"


@forgery("alone")
def _the_input_has_more_rows(dataset: Dataset) -> None:
    dataset.manifest["content"]["input"]["shards"][0]["rows"] += 1


@forgery("alone")
def _the_tokenizer_is_another(dataset: Dataset) -> None:
    dataset.manifest["content"]["tokenizer"]["sha256"] = "ab" * 32


@forgery("alone")
def _a_file_is_listed_that_no_such_dataset_has(dataset: Dataset) -> None:
    (dataset.root / "tokenizer.json").write_text("{}")
    dataset.manifest["content"]["files"] = [listed(dataset.root, "tokenizer.json")]


@forgery("source")
def _the_input_is_another(dataset: Dataset) -> None:
    dataset.manifest["content"]["input"]["manifest_sha256"] = "ab" * 32
