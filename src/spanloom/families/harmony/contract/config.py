"""The options of a build that change the bytes of its files.

In: options. Out: the `config` section of the manifest. It has no paths, no worker counts and no options that only
decide whether a build continues (rejects, duplicates). Two builds with equal config and input must give equal files.
"""

from collections.abc import Mapping
from typing import Any

from spanloom.building.assembly import build_facts
from spanloom.building.shards import ids
from spanloom.families.harmony import tokenizer
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.history import CutRules, rules_of
from spanloom.families.harmony.contract.profile import ARRAY_DTYPES, Profile
from spanloom.split import split_rule
from spanloom.supervision import ALIGNMENT
from spanloom.tokenizers.o200k.asset import ASSET_SHA256


def rule_of_split(profile: Profile) -> str:
    """The split rule, as text for the manifest."""
    return split_rule(profile.source.id_column)


def split_decided(profile: Profile, valid_fraction: float) -> dict[str, Any]:
    """The `split` entries of a manifest. Raises SpanloomError for an invalid fraction."""
    return ids.split_decided(profile.source.id_column, valid_fraction)


def facts_of(profile: Profile, record: Mapping[str, Any], valid_fraction: float) -> dict[str, Any]:
    """What the manifest says of all shards alike. `record`: the record of a rendered shard."""
    rules = rules_of(record["rules"], profile) if profile.cuts else None
    caps = Caps(**record["caps"])
    return build_facts(
        profile.form,
        config=dataset_config(profile, shards=record["shards"], caps=caps, valid_fraction=valid_fraction, rules=rules),
        tokenizer={
            "name": tokenizer.NAME,
            "sha256": record["tokenizer_sha256"],
            "vocab_size": tokenizer.VOCAB_SIZE,
            "eod": tokenizer.EOD,
        },
        source=record["source"],
        split=split_decided(profile, valid_fraction),
        renderer=record["renderer"],
    )


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
