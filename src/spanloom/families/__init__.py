"""The dataset families: from the family that a manifest names to its module.

A family is one folder. Families use the same names for the parts that they have: `sample`, `convert`, `render` or
`packing`, `verify`, `dataset` or `root`, `build`, `steps/`, `loader`, and `defaults`. Families never import each other.

    harmony/    SYNTH rows, or conversations of any kind → Harmony conversations → tokens, loss mask, spans
    chat/       conversations → transcripts → packed blocks with a loss mask
    traces/     a store of traces → datasets of them → tokens, loss mask, spans
    toolcalls/  samples of tool calls → checked, merged → tokens with a loss mask
    models/     conversations → the chat template of any Hugging Face model → tokens with a proven loss mask
    chess/      games and engine variations → memory-mapped arrays → fixed-shape batches

    teacher_task_list.toml  the pipeline of a teacher, for datasets of any family
    task_lists         reads the task lists; those with a task for each shard, made of a family's

`family` in a manifest.json names the family: `synth_kd` and `harmony_chat` (harmony), `packed_chat`,
`reasoning_traces`, `tool_calls`, `model_chat` (models). Chess makes no token dataset; its manifest has a
`schema_version` of its own, `spanloom_chess_v1`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanloom.errors import DatasetError

if TYPE_CHECKING:  # the commands read the defaults of families, and their `--help` should not wait for pyarrow
    from spanloom.dataset.family import DatasetFamily
    from spanloom.dataset.folder import DataFolder
    from spanloom.dataset.manifest import Content
    from spanloom.storage.uri import Uri


def _harmony() -> "DatasetFamily":
    from spanloom.families.harmony import dataset

    return dataset


def _harmony_chat() -> "DatasetFamily":
    from spanloom.families.harmony import chat_dataset

    return chat_dataset


def _chat() -> "DatasetFamily":
    from spanloom.families.chat import dataset

    return dataset


def _traces() -> "DatasetFamily":
    from spanloom.families.traces import dataset

    return dataset


def _toolcalls() -> "DatasetFamily":
    from spanloom.families.toolcalls import dataset

    return dataset


def _models() -> "DatasetFamily":
    from spanloom.families.models import dataset

    return dataset


def _chess() -> "DataFolder":
    from spanloom.families.chess import root

    return root


FAMILIES: dict[str, Callable[[], "DatasetFamily"]] = {
    "synth_kd": _harmony,
    "harmony_chat": _harmony_chat,
    "packed_chat": _chat,
    "reasoning_traces": _traces,
    "tool_calls": _toolcalls,
    "model_chat": _models,
}
"""`family` in a manifest → its module, imported on demand: each imports libraries that the others do not need."""


def dataset_family(name: str) -> "DatasetFamily":
    """The functions of the family that a manifest names. Raises ManifestError for an unknown one."""
    if name not in FAMILIES:
        from spanloom.dataset.manifest import ManifestError

        raise ManifestError(f"unknown dataset family {name!r}", remedy=f"known families are {', '.join(FAMILIES)}")
    return FAMILIES[name]()


FOLDERS: dict[str, Callable[[], "DataFolder"]] = {"spanloom_chess_v1": _chess}
"""`schema_version` of a manifest → the module of its data, for data that is not a token dataset."""


def data_folder(place: str) -> "DataFolder | None":
    """The module for the data at a root (path or URI); None if the manifest's schema is not in `FOLDERS`."""
    from spanloom.dataset import manifest

    version = manifest.schema_version_at(place)
    return FOLDERS[version]() if version in FOLDERS else None


def content_of(root: "Path", command: str) -> "Content":
    """What the manifest says. Raises DatasetError for data of another schema: the command is for token datasets."""
    from spanloom.dataset import manifest

    if kind := data_folder(str(root)):
        remedy = kind.INSTEAD[command].replace("ROOT", str(root))
        raise DatasetError(kind.WHAT, where=str(root), remedy=remedy)
    return manifest.read(root).content


def check_manifest(stored: Any, where: "Path | Uri") -> dict[str, Any]:
    """Checks a parsed JSON manifest of any schema and returns it. Raises ManifestError if it violates its schema."""
    from spanloom.dataset import manifest

    version = stored.get("schema_version") if isinstance(stored, dict) else None
    check = (
        FOLDERS[version]().check
        if isinstance(version, str) and version in FOLDERS
        else manifest.as_json(manifest.check)
    )
    return check(stored, where)
