"""Flags that say whether a message is trained, of OpenAI, Axolotl, ms-swift, LLaMA-Factory, slime and SWE-agent; and
whether its end is the model's.

In: the keys of a message. Out: whether the message is trained, if a flag says so; flags are removed from the keys.

    train, training, train_on_turn, trainable, loss    true, 1    trained
    weight, loss_weight, loss_scale                    1          trained
    loss_mask, step_loss_mask                          1          trained
    train_detail                            spans of the text: trained if all of them are
    mask, masked, is_demo, ignore_loss      true, 1    not trained
    label_mask                              refused: in some data sets it marks trained messages, in some untrained;
                                            `--map trained=label_mask` and `--map masked=label_mask` say which
    finish_reason, stop_reason, …           `length`, `content_filter`, `error`, …: not the model ended the answer
    truncated, is_truncated                 true: the same
    prefix; eot, end_turn                   true; false: the text is the beginning of an answer
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spanloom.conversations.turns import RecordRefusedError, Refusal, says_nothing
from spanloom.records.scalars import truth

TRUE_IS_TRAINED = (
    "train", "training", "train_on_turn", "trainable", "is_trainable", "trained", "loss", "weight", "loss_weight",
    "loss_scale", "loss_mask", "step_loss_mask", "train_mask",
)  # fmt: skip
SAMPLE = "mask_sample"
"""NeMo Gym's flag of a record, or within an object of it, that is true if the record is not to be trained."""
TRUE_IS_MASKED = ("mask", "masked", "is_masked", "is_demo", "ignore_loss", "no_loss", SAMPLE)
UNCLEAR = ("label_mask",)
DETAILS = ("train_detail",)
_FLAGS = (*TRUE_IS_TRAINED, *TRUE_IS_MASKED, *DETAILS, *UNCLEAR)
FLAGS = frozenset(_FLAGS)

NOT_DROPPED = frozenset({*FLAGS, "label", "kto_tag"})
"""Names that `--drop` refuses: without its flag, a message that is marked as untrained would be trained."""

_LIKE_FLAG = re.compile(
    r"train|loss|mask|weight|learn|supervis|ignore|exclud|includ|skip|omit|keep|target|grad|backprop|^use"
)
"""Parts of names of flags that are not known: their true may mean either."""

ENDS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason", "finish_reasons", "stop_type")
"""Keys of a message, or of a record, that say why its answer ended."""
TRUE_IS_CUT_OFF = ("truncated", "is_truncated", "isTruncated", "stopped_limit", "prefix")
FALSE_IS_CUT_OFF = ("eot", "end_turn", "is_complete")
"""Keys that say whether the text is a whole answer. `prefix`: of Mistral and DeepSeek; `eot`: of torchtune."""
STATUS, DETAILS_OF_END = "status", "incomplete_details"
"""Keys of OpenAI's Responses: `"status": "incomplete"`, `"incomplete_details": {"reason": "max_output_tokens"}`."""
_UNFINISHED = frozenset({"incomplete", "in_progress", "failed", "error", "cancelled", "finished_partial_completion"})
_WITHIN = ("metadata", "response_metadata", "generation_info", "meta", "info", "response", "details")
"""Keys of objects that may hold one of these."""
OF_ENDS = frozenset((*ENDS, *TRUE_IS_CUT_OFF, *FALSE_IS_CUT_OFF, STATUS, DETAILS_OF_END))
_ENDS = OF_ENDS | frozenset(_WITHIN)
_CUT_OFF = frozenset(
    {
        "length", "max_tokens", "max_output_tokens", "max_new_tokens", "max_completion_tokens", "max_length",
        "model_length", "context_length", "context_length_exceeded", "context_window_exceeded",
        "model_context_window_exceeded", "incomplete", "abort", "aborted", "cancelled", "canceled", "timeout", "error",
        "content_filter", "content-filter", "content_filtered", "guardrail_intervened", "refusal", "pause_turn",
        "safety", "recitation", "blocklist", "prohibited_content", "spii", "language", "malformed_function_call",
        "error_limit", "error_toxic", "truncated", "interrupted", "limit", "max_turns_reached",
    }
)  # fmt: skip
"""Values of these keys for an answer that something else than the model ended, in lower case: a limit of tokens, a
filter or a fault of a server. Anthropic's `refusal` is a filter that stops the text."""


def is_truncated(keys: Mapping[str, Any], metadata: frozenset[str] = frozenset()) -> bool:
    """Whether a key, or one within its metadata, says that the text is no whole answer: a limit of tokens cut it off,
    or it is a beginning.

    `metadata`: keys that an option makes metadata.
    """
    if _ENDS.isdisjoint(keys):
        return False
    held = {name: keys[name] for name in _ENDS.intersection(keys) - metadata}
    ends = [end[0] if isinstance(end, list) and len(end) == 1 else end for end in map(held.get, ENDS)]
    return (
        any(isinstance(end, str) and end.strip().lower().rpartition(".")[2] in _CUT_OFF for end in ends)
        or (isinstance(status := held.get(STATUS), str) and status in _UNFINISHED)
        or not says_nothing(held.get(DETAILS_OF_END))
        or any(truth(held.get(name)) is True for name in TRUE_IS_CUT_OFF)
        or any(truth(held.get(name)) is False for name in FALSE_IS_CUT_OFF)
        or any(isinstance(inner := held.get(name), dict) and is_truncated(inner, metadata) for name in _WITHIN)
    )


def like_flag(names: Iterable[str], keys: Mapping[str, Any]) -> str | None:
    """The first of these keys that looks like a flag of training, by its name and value; None if there is none."""
    for name in names:
        value = keys[name]
        if _like_answers(value) and _LIKE_FLAG.search(name.lower()):
            return name
    return None


def _like_answers(value: Any) -> bool:
    """Whether a value, or each of a list, may be the answer to a question of yes or no."""
    if isinstance(value, list):
        return bool(value) and all(not isinstance(item, list) and _like_answers(item) for item in value)
    if isinstance(value, str):
        return value.strip().lower() in _ANSWERS
    return isinstance(value, bool) or value in (0, 1)


_ANSWERS = frozenset({"true", "false", "yes", "no", "y", "n", "on", "off", "0", "1", "none", "all"})


SET_ASIDE = "--max-rejects 100% sets such records aside"


def is_trained(
    keys: dict[str, Any], where: str, trained_if: Sequence[str] = (), masked_if: Sequence[str] = ()
) -> bool | None:
    """Whether a message is trained; None if no flag says so. Removes the flags from `keys`.

    `trained_if`, `masked_if`: names of further flags; true means trained, or untrained. Raises RecordRefusedError for
    a value that is neither yes nor no, and for two flags that contradict each other.
    """
    answers: dict[str, bool] = {}
    for name in dict.fromkeys((*_FLAGS, *trained_if, *masked_if)):
        if name in keys and not says_nothing(value := keys.pop(name)):
            masks = name in masked_if or (name in TRUE_IS_MASKED and name not in trained_if)
            is_set = _is_set(name, value, where, name in trained_if or name in masked_if)
            if is_set or not masks:  # an unset mask means the same as no mask
                answers[name] = is_set and not masks
    if len(set(answers.values())) > 1:
        names = " and ".join(answers)
        raise RecordRefusedError(
            Refusal.WEIGHT_ZERO,
            f"{where}: {names} differ on whether it is trained",
            SET_ASIDE,
        )
    return next(iter(answers.values()), None)


def _is_set(name: str, value: Any, where: str, is_named: bool) -> bool:
    if name in UNCLEAR and not is_named:
        raise RecordRefusedError(
            Refusal.WEIGHT_ZERO,
            f"{where}: {name} is true where a message is trained in some data, and where it is not in other data",
            f"--map trained={name} or --map masked={name} says which it is",
        )
    if name in DETAILS:
        details = value if isinstance(value, list) else [value]
        kinds = [detail.get("train") if isinstance(detail, dict) else None for detail in details]
        if all(kind is kinds[0] for kind in kinds) and isinstance(kinds[0], bool):
            return kinds[0]
        raise RecordRefusedError(
            Refusal.WEIGHT_ZERO,
            f"{where}: {name} trains parts of the text, and a message is trained whole or not",
            SET_ASIDE,
        )
    if (stated := truth(value)) is not None:
        return stated
    number = int(value) if isinstance(value, str) and value.strip() in ("0", "1") else value
    if isinstance(number, int | float) and number in (0, 1):
        return bool(number)
    raise RecordRefusedError(
        Refusal.WEIGHT_ZERO,
        f"{where} has the {name} {value!r}, and a message is trained (1) or not (0)",
        f"{SET_ASIDE}; a loss weighs whole conversations: give each record a number under `weight`, or under a key "
        "that --map weight=KEY names",
    )
