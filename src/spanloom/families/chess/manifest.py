"""The manifest of prepared games, `spanloom_chess_v1`. It marks a folder as prepared games.

In: `content` (the values that determine the bytes, and the inventory) and `environment`. Out: `manifest.pending.json`.
A validation without findings turns it into `manifest.json`. Reading, writing and promoting are in
`spanloom.dataset.manifest`.
"""

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from spanloom.dataset import manifest as dataset
from spanloom.families.chess.encoding.vocabulary import TOKENS, VOCABULARY_SIZE
from spanloom.split import split_rule
from spanloom.storage.uri import Uri

SCHEMA_VERSION = "spanloom_chess_v1"
FAMILY = "chess"
SPLIT_RULE = split_rule("game_id; of a thinking row its fen")


def recorded_vocabulary() -> dict[str, Any]:
    """The manifest's entry for the vocabulary: its size and the sha256 of the tokens in the order of their ids."""
    digest = hashlib.sha256("\n".join(TOKENS).encode()).hexdigest()
    return {"name": "chess_1968", "size": VOCABULARY_SIZE, "sha256": digest}


def schema() -> dict[str, Any]:
    """The JSON Schema of `SCHEMA_VERSION`."""
    return dict(json.loads(files(__package__).joinpath(f"{SCHEMA_VERSION}.schema.json").read_bytes()))


def check(manifest: Any, where: Path | Uri) -> dict[str, Any]:
    """Returns the manifest if it is valid. Raises ManifestError naming the first violation of the schema."""
    dataset.check_schema(manifest, SCHEMA_VERSION, schema(), where)
    return dict(manifest)


def is_prepared(place: Path | str) -> bool:
    """Whether a place is a root of prepared games, finished or pending, and not a folder of Parquet files."""
    return dataset.schema_version_at(str(place)) == SCHEMA_VERSION


def read(root: Path, *, pending: bool = False) -> dict[str, Any]:
    """The checked manifest of the prepared games at `root`; with `pending`, the pending one if none is promoted."""
    return dataset.read_any_as(root, check) if pending else dataset.read_as(root, check)
