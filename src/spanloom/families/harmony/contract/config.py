"""The options of a build that change the bytes of its files.

In: options. Out: the `config` section of the manifest. It has no paths, no worker counts and no options that only
decide whether a build continues (rejects, duplicates). Two builds with equal config and input must give equal files.
"""

from typing import Any

from spanloom.errors import SpanloomError
from spanloom.families.harmony import tokenizer
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.history import CutRules
from spanloom.families.harmony.contract.profile import Profile
from spanloom.split import split_rule, valid_threshold
from spanloom.supervision import ALIGNMENT
from spanloom.tokenizers.o200k.asset import ASSET_SHA256

ARRAY_DTYPES = {"tokens": "int32", "lossmask": "uint8", "span": "uint8"}
"""File name part → dtype of its `.bin`."""


def rule_of_split(profile: Profile) -> str:
    """The split rule, as text for the manifest."""
    return split_rule(profile.source.id_column)


def split_decided(profile: Profile, valid_fraction: float) -> dict[str, Any]:
    """The `split` entries of a manifest. Raises SpanloomError for an invalid fraction."""
    try:
        threshold = valid_threshold(valid_fraction)
    except ValueError as fault:
        raise SpanloomError(str(fault), remedy="give --valid-fraction a number from 0 to 1") from None
    return {"rule": rule_of_split(profile), "valid_fraction": valid_fraction, "threshold": str(threshold)}


def dataset_config(
    profile: Profile, *, shards: int, caps: Caps, valid_fraction: float, rules: CutRules | None
) -> dict[str, Any]:
    """The config of a dataset, as its manifest records and hashes it. `rules`: None if the profile cuts no rows."""
    return {
        "input_schema": profile.source.schema_version,
        "shards": shards,
        "caps": caps.as_dict(),
        "split_rule": rule_of_split(profile),
        "valid_fraction": valid_fraction,
        "tokenizer_sha256": ASSET_SHA256,
        "eod": tokenizer.EOD,
        "alignment": ALIGNMENT,
        "arrays": ARRAY_DTYPES,
        **(rules.as_dict() if rules else {}),
    }
