"""Every leaf of a manifest, edited: one value after another replaced by another that could stand there as well.

In: a manifest. Out: an `Edit` for each leaf; and where other parts of the manifest follow from it, another `Edit` in
which they were made to fit.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tools.corruption.dataset import sha256_json
from tools.corruption.trial import ROOT, Edit

_SOURCES = Path(__file__).parents[3] / "src/spanloom"


def not_checkable(folder: str) -> dict[str, str]:
    """Fields that validation cannot check, and why: the table in a folder below src/spanloom."""
    return tomllib.loads((_SOURCES / folder / "not_checkable.toml").read_text("utf-8"))


NOT_CHECKABLE = not_checkable("dataset/validate")

Place = tuple[str | int, ...]


def leaf_edits(manifest: dict[str, Any]) -> Iterator[Edit]:
    """An edit for each leaf, and consistent ones for config and counts."""
    for place, value in leaves(manifest):
        new = other_value(place, value)
        yield Edit(
            kind=pattern(place),
            name=f"{dotted(place)}: {json.dumps(value)[:40]} → {json.dumps(new)[:40]}",
            apply=_edit(place, new),
            why=_why(place),
        )
        if fit := _fitting(place):
            yield Edit(
                kind=f"{pattern(place)}, the rest made to fit",
                name=f"{dotted(place)}: {json.dumps(value)[:40]} → {json.dumps(new)[:40]}",
                apply=_edit(place, new, fit),
                consistent=True,
                why=_why(place),
            )


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value that is no object and no list, with its place. Empty objects and lists count as values."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, (*place, index))
    else:
        yield place, value


def dotted(place: Place) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def pattern(place: Place) -> str:
    """The place with what is repeated as `*`: shards, splits, files, sizes, reasons."""
    text = re.sub(r"\[\d+\]", "[*]", dotted(place))
    text = re.sub(r"\b(train|valid)\b", "*", text)
    text = re.sub(r"(?<=fitting\.)\d+", "*", text)
    text = re.sub(r"(?<=rejected\.)\w+", "*", text)
    text = re.sub(r"(?<=span_tokens\.)\w+", "*", text)
    text = re.sub(r"(?<=libraries\.)[\w-]+", "*", text)
    return re.sub(r"(?<=timings\.)\w+", "*", text)


def other_value(place: Place, value: Any) -> Any:
    """Another value of the same kind, one that the schema allows wherever it allows more than one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2
    if value is None:
        return {"path": "rejects/shard_01.jsonl", "bytes": 1, "sha256": "0" * 64} if place[-1] == "rejects_file" else 7
    if isinstance(value, dict):
        return {"role_unknown": 1}
    assert isinstance(value, str), (place, value)
    known = {"int32": "uint8", "uint8": "int32", "synth_kd": "harmony_chat", "context": "system"}
    if value in known:
        return known[value]
    if re.fullmatch(r"[0-9a-f]{40,64}", value):
        return ("1" if value[0] == "0" else "0") + value[1:]
    if re.fullmatch(r"\d+", value):
        return str(int(value) + 1)
    if "/shard_" in value:
        others = {"0": "2", "1": "0", "2": "1"}
        return re.sub(r"(?<=/shard_0)[012]", lambda number: others[number[0]], value)
    return (
        re.sub(r"\d+(?=\D*$)", lambda found: str(int(found[0]) + 1), value) if re.search(r"\d", value) else f"{value}x"
    )


def _edit(place: Place, new: Any, fit: Callable[[dict[str, Any], int], None] | None = None) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / ROOT / "manifest.json"
        manifest = json.loads(path.read_bytes())
        inner: Any = manifest
        for part in place[:-1]:
            inner = inner[part]
        before = inner[place[-1]]
        inner[place[-1]] = new
        if fit is not None:
            fit(manifest["content"], new - before if isinstance(new, int) and isinstance(before, int) else 0)
        path.write_text(json.dumps(manifest, indent=2))

    return apply


def _fitting(place: Place) -> Callable[[dict[str, Any], int], None] | None:
    """How the rest of `content` is made to agree with the edited leaf, where something follows from it."""
    match place:
        case ("content", "config", *_):

            def rehash(content: dict[str, Any], _: int) -> None:
                content["config_sha256"] = sha256_json(content["config"])

            return rehash
        case ("content", "shards", _, "splits", split, name, *rest) if name != "files":

            def add_to_total(content: dict[str, Any], more: int) -> None:
                counts = content["totals"]["splits"][split]
                if name == "longest":
                    counts[name] = max(shard["splits"][split][name] for shard in content["shards"])
                elif rest:
                    counts[name][rest[0]] += more
                else:
                    counts[name] += more

            return add_to_total
        case ("content", "shards", _, "rows_read"):

            def add_rows(content: dict[str, Any], more: int) -> None:
                content["totals"]["rows_read"] += more

            return add_rows
        case ("content", "shards", number, "rejected", *reason):

            def add_rejected(content: dict[str, Any], more: int) -> None:
                rejected = content["totals"]["rejected"]
                name = reason[0] if reason else "role_unknown"
                rejected[name] = rejected.get(name, 0) + (more if reason else 1)
                content["shards"][number]["rows_read"] += more if reason else 1
                content["totals"]["rows_read"] += more if reason else 1

            return add_rejected
    return None


def _why(place: Place) -> str | None:
    """Why an edit of this leaf cannot be found, where it cannot."""
    return next((why for pattern, why in NOT_CHECKABLE.items() if fnmatchcase(dotted(place), pattern)), None)
