"""The export, loaded by the libraries it is made for and compared with the files it was made from."""

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest

from conftest import Cli
from spanloom.dataset import manifest
from spanloom.dataset.export.form import export_form
from spanloom.dataset.export.parquet import export_dataset
from spanloom.errors import ArtifactError, ConflictError, DatasetError
from spanloom.families.harmony import dataset as harmony
from spanloom.report.export_views import export_views
from support import warm
from support.exported_documents import on_disk
from support.folders import files_of
from support.nightly import nightly

COLUMNS = ["input_ids", "labels", "loss_mask", "assistant_masks", "span_id", "synth_id"]


def export_parquet(root: Path, content: manifest.Content, out: Path, **options: Any) -> dict[str, Any]:
    form = export_form("parquet", content, harmony.export_columns(content))
    beside = export_views(root, content, harmony, form, croissant=False)
    return export_dataset(root, content, form, out, beside=beside, **options)


@pytest.fixture(scope="module")
def exported(demo: Path, tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Path:
    out = tmp_path_factory.mktemp("export") / "out"
    done = cli("export", demo, "--to", "parquet", "--out", out, "--tokens-per-file", 3000, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((out / "export.json").read_bytes())
    return out


@pytest.mark.parametrize("streaming", [False, True])
def test_datasets_loads_what_lies_on_disk(demo: Path, exported: Path, tmp_path: Path, streaming: bool) -> None:
    loaded = datasets.load_dataset(str(exported), streaming=streaming, cache_dir=str(tmp_path))
    assert set(loaded) == {"train", "validation"}
    for ours, theirs in (("train", "train"), ("valid", "validation")):
        assert loaded[theirs].column_names == COLUMNS
        assert list(loaded[theirs]) == list(on_disk(demo, ours))


def test_datasets_reads_an_export_again_that_another_replaced(demo: Path, tmp_path: Path, cli: Cli) -> None:
    """Its cache has the same folder and the same patterns of files for both. A dataset's own card is no other."""
    frozen = Path(__file__).parents[2] / "frozen/synth_kd"
    out, root, cache = tmp_path / "out", tmp_path / "root", str(tmp_path / "cache")
    loaded = []
    for dataset in (frozen, demo, demo):
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(dataset, root)
        (root / "README.md").unlink()
        assert cli("export", dataset, "--to", "parquet", "--out", out).returncode == 0
        (root / "manifest.json").rename(root / "manifest.pending.json")
        assert cli("step", "validate-alignment", "--root", root, "-q").returncode == 0
        loaded.append([datasets.load_dataset(str(place), cache_dir=cache) for place in (out, root)])
    for (rows, table), dataset in zip(loaded, (frozen, demo, demo), strict=True):
        ids = [each["synth_id"] for each in on_disk(dataset, "train")]
        assert rows["train"]["synth_id"] == table["train"]["synth_id"] == ids
    first, second, third = ({file["filename"] for file in rows["train"].cache_files} for rows, _ in loaded)
    assert first.isdisjoint(second)
    assert third == second  # the same content is not read twice


def test_files_are_cut_by_tokens_and_listed_with_their_hashes(demo: Path, exported: Path, tmp_path: Path) -> None:
    said = json.loads((exported / "export.json").read_bytes())
    splits = manifest.read(demo).content.totals.splits
    assert said["splits"] == {
        name: {key: getattr(one, key) for key in ("sequences", "tokens")} for name, one in splits.items()
    }
    assert [file["path"] for file in said["files"]] == sorted(
        path.relative_to(exported).as_posix() for path in exported.rglob("*.parquet")
    )
    sizes = [file["tokens"] for file in said["files"] if file["path"].startswith("train/shard_01-")]
    assert len(sizes) > 1
    assert all(3000 <= size < 3000 + 3000 + 393 for size in sizes[:-1]), "one batch more than asked, at most"
    for file in said["files"]:
        table = pq.read_table(exported / file["path"])
        assert (table.num_rows, len(table["input_ids"].combine_chunks().values)) == (file["documents"], file["tokens"])
        assert (exported / file["path"]).stat().st_size == file["bytes"]
    again = export_parquet(demo, manifest.read(demo).content, tmp_path / "again", tokens_per_file=3000)
    assert again == said, "the same bytes"


@pytest.fixture(scope="module")
def for_trl(demo: Path, tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Path:
    out = tmp_path_factory.mktemp("export") / "trl"
    done = cli("export", demo, "--to", "trl", "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_the_form_of_trl_has_what_it_trains_on_and_nothing_else(demo: Path, for_trl: Path, tmp_path: Path) -> None:
    loaded = datasets.load_dataset(str(for_trl), cache_dir=str(tmp_path))
    for ours, theirs in (("train", "train"), ("valid", "validation")):
        wanted = [
            {"input_ids": one["input_ids"], "labels": one["labels"], "completion_mask": one["loss_mask"]}
            for one in on_disk(demo, ours)
        ]
        assert list(loaded[theirs]) == wanted
    assert json.loads((for_trl / "export.json").read_bytes())["export"] == "spanloom_trl_v1"


@pytest.mark.parametrize("form", [nightly("exported"), "for_trl"])
def test_trl_trains_on_it_as_it_is(
    form: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tiny model of random weights learns from the labels; what its batches hold are our labels, not all tokens."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import torch
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    from tokenizers import Tokenizer

    exported = request.getfixturevalue(form)
    dataset = datasets.load_dataset(str(exported), split="validation", cache_dir=str(tmp_path / "cache"))
    dataset = dataset.filter(lambda row: len(row["input_ids"]) < 512)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=201_088, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=1024,
        )
    )  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>")),
        pad_token="<pad>",
        eos_token="<eos>",
    )
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=2, max_length=None,
            report_to=[], use_cpu=True, save_strategy="no", logging_steps=1, bf16=False, disable_tqdm=True,
        ),
        train_dataset=dataset,
        processing_class=tokenizer,
    )  # fmt: skip
    batch = next(iter(trainer.get_train_dataloader()))
    wanted = {tuple(row["input_ids"]): row["labels"] for row in dataset}
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        match = next(key for key in wanted if tuple(ids[: len(key)]) == key)
        assert labels[: len(match)] == wanted[match]
        assert set(labels[len(match) :]) <= {-100}
    before = model.model.embed_tokens.weight.detach().clone()
    result = trainer.train()
    assert result.global_step == 2
    assert np.isfinite(result.training_loss)
    assert not torch.equal(before, model.model.embed_tokens.weight)


def test_the_card_says_what_the_dataset_is_and_the_hub_reads_it(exported: Path, for_trl: Path) -> None:
    from huggingface_hub import DatasetCard

    for folder, columns in ((exported, COLUMNS), (for_trl, ["input_ids", "labels", "completion_mask"])):
        card = DatasetCard.load(folder / "README.md")
        assert card.data.license == "cc0-1.0"
        assert {"de", "en", "zh"} <= set(card.data.language)
        assert {"spanloom", "harmony"} <= set(card.data.tags)
        files = [
            {"split": name, "path": f"{ours}/*.parquet"} for name, ours in (("train", "train"), ("validation", "valid"))
        ]
        (config,) = card.data.configs
        assert re.fullmatch("sha256 [0-9a-f]{64}", config.pop("description"))
        assert config == {"config_name": "default", "data_files": files}
        assert [line.split("`")[1] for line in card.text.splitlines() if line.startswith("| `")][
            : len(columns)
        ] == columns
        assert "config sha256" in card.text


def test_something_that_stands_there_is_a_conflict_and_stays(demo: Path, tmp_path: Path) -> None:
    content = manifest.read(demo).content
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ConflictError, match="the output directory is not empty: it holds"):
        export_parquet(demo, content, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    with pytest.raises(ConflictError, match="the export would be in the dataset"):
        export_parquet(demo, content, demo / "parquet")


@pytest.mark.parametrize("file", ["valid/shard_02_lossmask.bin", "train/shard_00_rows.parquet"])
def test_a_dataset_with_one_wrong_bit_is_not_exported(demo: Path, tmp_path: Path, file: str) -> None:
    root = Path(shutil.copytree(demo, tmp_path / "root"))
    data = bytearray((root / file).read_bytes())
    data[len(data) // 2] ^= 1
    (root / file).write_bytes(data)
    out = tmp_path / "new" / "out"
    with pytest.raises(DatasetError, match=f"the dataset is damaged: sha256 .*\n.*{file}"):
        export_parquet(root, manifest.read(root).content, out)
    assert not out.exists()


def test_an_export_that_fails_half_way_leaves_nothing(demo: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    parts: list[int] = []

    def stop_half_way(done: int, total: int) -> None:
        parts.append(sum(1 for path in out.rglob("*.parquet")))
        if done > total // 2:
            raise ArtifactError("the disk is full")

    with pytest.raises(ArtifactError, match="the disk is full"):
        export_parquet(demo, manifest.read(demo).content, out, tokens_per_file=3000, on_progress=stop_half_way)
    assert parts[-1] > 1, "some files were finished"
    assert not out.exists()


KILLED_HALF_WAY = """
import os, signal, sys
from pathlib import Path
from spanloom.dataset import manifest
from spanloom.dataset.export.parquet import export_dataset
from spanloom.dataset.export.form import export_form
from spanloom.families.harmony import dataset as harmony
from spanloom.report.export_views import export_views

def kill(done, total):
    if 2 * done > total:
        os.kill(os.getpid(), signal.SIGKILL)

root, out = map(Path, sys.argv[1:])
content = manifest.read(root).content
form = export_form("parquet", content, harmony.export_columns(content))
beside = export_views(root, content, harmony, form, croissant=False)
export_dataset(root, content, form, out, beside=beside, tokens_per_file=3000, on_progress=kill)
"""


def test_a_killed_export_is_cleared_and_begun_anew_by_the_same_command(demo: Path, tmp_path: Path) -> None:
    out, content = tmp_path / "out", manifest.read(demo).content
    done = warm.run_code(KILLED_HALF_WAY, demo, out)
    assert done.returncode == -signal.SIGKILL
    parts = [path for path in out.rglob("*.parquet") if not path.name.startswith(".")]
    assert len(parts) > 1
    assert not (out / "export.json").exists()
    (out / "train/shard_99-00000.parquet").write_bytes(b"mine")
    with pytest.raises(ConflictError, match="the output directory is not empty: it holds"):
        export_parquet(demo, content, out, tokens_per_file=3000)
    assert files_of(out) == {"train/shard_99-00000.parquet": b"mine"}
    shutil.rmtree(out)

    done = warm.run_code(KILLED_HALF_WAY, demo, out)
    assert done.returncode == -signal.SIGKILL
    export_parquet(demo, content, out, tokens_per_file=5000)
    export_parquet(demo, content, tmp_path / "undisturbed", tokens_per_file=5000)
    assert files_of(out) == files_of(tmp_path / "undisturbed")


def test_an_export_is_finished_when_all_but_its_record_says_so(demo: Path, tmp_path: Path) -> None:
    content = manifest.read(demo).content
    exported = export_parquet(demo, content, tmp_path / "out", tokens_per_file=3000)
    before = files_of(tmp_path / "out")
    names = [*(file["path"] for file in exported["files"]), "README.md", ".spanloom-made.json", "export.json"]
    identity = {"content_sha256": content.sha256, "tokens_per_file": 3000, "beside": ["README.md"]}
    record = tmp_path / "out/.spanloom-export-unfinished"
    run = [{"identity": identity, "last": names[-1]}, {"files": names}]
    record.write_text("".join(f"{json.dumps(line)}\n" for line in run))
    assert export_parquet(demo, content, tmp_path / "out", tokens_per_file=3000) == exported
    assert files_of(tmp_path / "out") == before
