"""What a message says of itself about training: flags of OpenAI, Axolotl, ms-swift, LLaMA-Factory and SWE-agent.

In: the keys of a message. Out: whether it is to be trained, where it says so; the flags are taken out of its keys.

    train, training, train_on_turn, loss    true, 1    trained
    weight, loss_weight, loss_scale         1          trained
    train_detail                            spans of the text, trained where all are
    mask, is_demo                           true, 1    not trained
    label_mask                              refused: in some data it marks what is trained, in some what is not;
                                            `--map trained=label_mask` and `--map masked=label_mask` say which
"""

from collections.abc import Sequence
from typing import Any

from spanloom.conversations.turns import RecordRefusedError, Refusal, says_nothing
from spanloom.records.scalars import truth

TRUE_IS_TRAINED = ("train", "training", "train_on_turn", "loss", "weight", "loss_weight", "loss_scale")
TRUE_IS_MASKED = ("mask", "is_demo")
UNCLEAR = ("label_mask",)
DETAILS = ("train_detail",)
_FLAGS = (*TRUE_IS_TRAINED, *TRUE_IS_MASKED, *DETAILS, *UNCLEAR)
FLAGS = frozenset(_FLAGS)

NOT_DROPPED = frozenset({*FLAGS, "label", "kto_tag"})
"""Names that `--drop` does not take: without its flag, what is marked as not to be trained would be trained."""


SET_ASIDE = "--max-rejects 100% sets such records aside"


def is_trained(
    keys: dict[str, Any], where: str, trained_if: Sequence[str] = (), masked_if: Sequence[str] = ()
) -> bool | None:
    """Whether a message is to be trained, None where it does not say so. Takes the flags out of `keys`.

    `trained_if`, `masked_if`: names of further flags, true where the message is trained, or where it is not. Raises
    RecordRefusedError for a value that is neither yes nor no, and for two flags that differ.
    """
    answers: dict[str, bool] = {}
    for name in dict.fromkeys((*_FLAGS, *trained_if, *masked_if)):
        if name in keys and not says_nothing(value := keys.pop(name)):
            masks = name in masked_if or (name in TRUE_IS_MASKED and name not in trained_if)
            is_set = _is_set(name, value, where, name in trained_if or name in masked_if)
            if is_set or not masks:  # a mask that is not set says no more than none
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
