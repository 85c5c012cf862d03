"""What a message says of itself about training: flags of OpenAI, Axolotl, ms-swift, LLaMA-Factory and SWE-agent.

In: the keys of a message. Out: whether it is to be trained, where it says so; the flags are taken out of its keys.

    train, training, train_on_turn, loss    true, 1    trained
    weight, loss_weight, loss_scale         1          trained
    train_detail                            spans of the text, trained where all are
    mask, is_demo                           true, 1    not trained
    label_mask                              refused: in some data it marks what is trained, in some what is not
"""

from typing import Any

from spanloom.conversations.turns import RecordRefusedError, Refusal, says_nothing

TRUE_IS_TRAINED = ("train", "training", "train_on_turn", "loss", "weight", "loss_weight", "loss_scale")
TRUE_IS_MASKED = ("mask", "is_demo")
UNCLEAR = ("label_mask",)
DETAILS = ("train_detail",)
FLAGS = (*TRUE_IS_TRAINED, *TRUE_IS_MASKED, *DETAILS, *UNCLEAR)
_ALL = frozenset(FLAGS)

NOT_DROPPED = frozenset({*FLAGS, "label", "kto_tag"})
"""Names that `--drop` does not take: without its flag, what is marked as not to be trained would be trained."""


def trained(keys: dict[str, Any], where: str) -> bool | None:
    """Whether a message is to be trained, None where it does not say so. Takes the flags out of `keys`.

    Raises RecordRefusedError for a value that is neither yes nor no, and for two flags that differ.
    """
    if _ALL.isdisjoint(keys):
        return None
    answers: dict[str, bool] = {}
    for name in FLAGS:  # a mask that is not set says no more than none
        if name in keys and not says_nothing(value := keys.pop(name)):
            is_set = _is_set(name, value, where)
            if is_set or name not in TRUE_IS_MASKED:
                answers[name] = is_set and name not in TRUE_IS_MASKED
    if len(set(answers.values())) > 1:
        names = " and ".join(answers)
        raise RecordRefusedError(Refusal.WEIGHT_ZERO, f"{where}: {names} differ on whether it is trained")
    return next(iter(answers.values()), None)


def _is_set(name: str, value: Any, where: str) -> bool:
    if name in UNCLEAR:
        raise RecordRefusedError(
            Refusal.WEIGHT_ZERO,
            f"{where}: {name} may mean that it is trained, or that it is not: name it train or mask",
        )
    if name in DETAILS:
        details = value if isinstance(value, list) else [value]
        kinds = [detail.get("train") if isinstance(detail, dict) else None for detail in details]
        if all(one is kinds[0] for one in kinds) and isinstance(kinds[0], bool):
            return kinds[0]
        raise RecordRefusedError(
            Refusal.WEIGHT_ZERO, f"{where}: {name} trains parts of the text, and a message is trained whole or not"
        )
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    raise RecordRefusedError(
        Refusal.WEIGHT_ZERO, f"{where} has the {name} {value!r}, and a message is trained (1) or not (0)"
    )


def refuse_untrained(is_trained: bool | None, where: str) -> None:
    """Raises RecordRefusedError for an answer that is not to be trained: each answer is trained alike."""
    if is_trained is False:
        raise RecordRefusedError(
            Refusal.WEIGHT_ZERO,
            f"{where} is marked as not to be trained, and each answer is trained alike",
            "--max-rejects 100% sets such records aside",
        )
