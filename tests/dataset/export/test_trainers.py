"""Exports as the trainers' own loaders read them: each document once, with its labels, packed and not.

`make test` loads them with `datasets` and pads with the collator of transformers. The nightly run starts Axolotl and
LLaMA-Factory, each in the Python that its variable names, and holds the table of docs/training/trainers.md to it.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import datasets
import pytest
from tokenizers.models import WordLevel
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast

from conftest import REPOSITORY, Cli
from support.exported_documents import on_disk
from support.requirements import AXOLOTL, LLAMA_FACTORY, absent
from tokenizers import Tokenizer

PAGE = REPOSITORY / "docs/training/trainers.md"
LENGTH = 20_000
"""Longer than the longest document: trainers leave out longer ones."""

Document = tuple[tuple[int, ...], tuple[int, ...]]


@pytest.fixture(scope="module")
def export(cli: Cli, demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("exports")

    def made(form: str) -> Path:
        done = cli("export", demo, "--to", form, "--out", folder / form, "--no-croissant", "--tokens-per-file", 20_000)
        assert done.returncode == 0, done.stderr
        return folder / form

    return made


def wanted(demo: Path, split: str) -> Counter[Document]:
    return Counter((tuple(row["input_ids"]), tuple(row["labels"])) for row in on_disk(demo, split))  # type: ignore[arg-type]


def documents(batches: Iterable[dict[str, list[list[int]]]]) -> Counter[Document]:
    """The documents of batches. Padding has the attention mask 0, documents packed into one row have 1, 2, … in it."""
    found: Counter[Document] = Counter()
    for batch in batches:
        for row in zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True):
            for number, positions in groupby(zip(*row, strict=True), key=lambda position: position[1]):
                ids, _, labels = zip(*positions, strict=True)
                if number:
                    found[ids, labels] += 1
                else:
                    assert set(labels) == {-100}
    return found


def padding_tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>")),
        pad_token="<pad>",
        eos_token="<eos>",
    )


@pytest.mark.parametrize("form", ["axolotl", "llama-factory"])
def test_datasets_and_the_collator_of_transformers_give_each_document_with_its_labels(
    export: Callable[[str], Path], demo: Path, tmp_path: Path, form: str
) -> None:
    folder = export(form)
    if form == "axolotl":
        read = datasets.load_dataset(str(folder), cache_dir=str(tmp_path))
    else:
        read = datasets.load_from_disk(str(folder))
    assert sorted(read) == ["train", "validation"]
    collate = DataCollatorForSeq2Seq(padding_tokenizer(), label_pad_token_id=-100)
    for split, rows in read.items():
        # Axolotl takes a dataset for tokenized by these names.
        assert sorted(rows.column_names) == ["attention_mask", "input_ids", "labels"]
        batches = [collate([rows[at] for at in range(n, min(n + 3, len(rows)))]) for n in range(0, len(rows), 3)]
        found = documents({name: values.tolist() for name, values in batch.items()} for batch in batches)
        assert found == wanted(demo, "train" if split == "train" else "valid")


def test_a_folder_of_save_to_disk_is_read_as_its_own_writer_writes_it(
    export: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = export("llama-factory")
    read = datasets.load_from_disk(str(folder))
    assert len(read["train"].cache_files) > 1
    read.save_to_disk(str(tmp_path / "again"))
    again = datasets.load_from_disk(str(tmp_path / "again"))
    for split in read:
        assert read[split].features == again[split].features
        assert read[split].to_list() == again[split].to_list()
    state = json.loads((folder / "train/state.json").read_bytes())
    theirs = json.loads((tmp_path / "again/train/state.json").read_bytes())
    assert state.keys() == theirs.keys()
    assert [file["filename"] for file in state["_data_files"]] == sorted(
        path.name for path in folder.glob("train/*.arrow")
    )


def test_croissant_metadata_is_refused_where_there_is_no_parquet(cli: Cli, demo: Path, tmp_path: Path) -> None:
    done = cli("export", demo, "--to", "llama-factory", "--out", tmp_path / "out", "--croissant")
    assert done.returncode == 1
    assert "Croissant metadata describes Parquet" in done.stderr
    assert not (tmp_path / "out").exists()


# --- The trainers themselves -----------------------------------------------------------------------------------------


def in_table(trainer: str, version: str, how: str, found: dict[str, Counter[Document]], demo: Path) -> None:
    """Holds the row of the page to what was read: the version, the equal documents of all."""
    expected = {split: wanted(demo, split) for split in ("train", "valid")}
    equal = sum((found[split] & expected[split]).total() for split in expected)
    total = sum(each.total() for each in expected.values())
    assert found == expected, f"{equal} of {total}"
    assert f"| {trainer} | {version} | {how} | {equal} of {total} |" in PAGE.read_text("utf-8")


def read_by(program: str, python: str, *arguments: object, out: Path) -> Any:
    quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "AXOLOTL_DO_NOT_TRACK": "1"}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, REPOSITORY / f"tests/support/{program}.py", *map(str, arguments), out]
    # LLaMA-Factory refuses to start with any other version of its libraries, which its loader does not need.
    environment |= {**quiet, "DISABLE_VERSION_CHECK": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(out.read_bytes())


@pytest.mark.nightly
@pytest.mark.parametrize("packed", [False, True])
def test_axolotl_reads_each_document(export: Callable[[str], Path], demo: Path, tmp_path: Path, packed: bool) -> None:
    python = os.environ.get("SPANLOOM_AXOLOTL") or absent(AXOLOTL)
    folder, out = export("axolotl"), tmp_path / "read.json"
    read = read_by("axolotl_reader", python, folder, tmp_path / "cache", LENGTH, int(packed), out=out)
    found = {split: documents(batches) for split, batches in read["splits"].items()}
    if packed:
        rows = sum(len(batch["input_ids"]) for batch in read["splits"]["train"])
        assert rows < found["train"].total()
        for batch in read["splits"]["train"]:  # positions begin at 0 with each document
            for mask, positions in zip(batch["attention_mask"], batch["position_ids"], strict=True):
                starts = [at for at, number in enumerate(mask) if at == 0 or number != mask[at - 1]]
                assert [positions[at] for at in starts] == [0] * len(starts)
    how = "`sample_packing: true`" if packed else "documents"
    in_table("Axolotl", read["version"], how, found, demo)


@pytest.mark.nightly
def test_llama_factory_reads_each_document(export: Callable[[str], Path], demo: Path, tmp_path: Path) -> None:
    python = os.environ.get("SPANLOOM_LLAMA_FACTORY") or absent(LLAMA_FACTORY)
    read = read_by("llama_factory_reader", python, export("llama-factory"), out=tmp_path / "read.json")
    found = {split: documents(batches) for split, batches in read["splits"].items()}
    in_table("LLaMA-Factory", read["version"], "`tokenized_path`", found, demo)


def test_trl_reads_each_document(
    export: Callable[[str], Path], demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    read = datasets.load_dataset(str(export("trl")), cache_dir=str(tmp_path / "cache"))
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    trainer = SFTTrainer(
        model=LlamaForCausalLM(LlamaConfig(vocab_size=16, max_position_embeddings=64, **sizes)),
        args=SFTConfig(output_dir=str(tmp_path / "out"), max_length=None, report_to=[], use_cpu=True, bf16=False),
        train_dataset=read["train"],
        eval_dataset=read["validation"],
        processing_class=padding_tokenizer(),
    )
    loaders = {"train": trainer.get_train_dataloader(), "valid": trainer.get_eval_dataloader()}
    found = {}
    for split, loader in loaders.items():
        batches = ({name: values.tolist() for name, values in batch.items()} for batch in loader)
        found[split] = documents(batches)
    in_table("TRL", version("trl"), "documents", found, demo)
