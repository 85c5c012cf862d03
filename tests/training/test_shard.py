"""What must not be trained on is refused before the first sample, and the error names the file."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Cli
from spanloom.dataset.blend import blend, per_split
from spanloom.dataset.manifest import ManifestError
from spanloom.errors import DatasetError
from spanloom.megatron.indexed import index_blocks
from spanloom.training.megatron_dataset import DatasetTokenizer, SpanGPTDataset, SpanWireGPTDataset
from spanloom.training.pytorch import DocumentDataset, StreamDataset
from spanloom.training.shard import open_shard, read_content
from support.counting import calls_of
from support.megatron_options import TOKENIZER, config, open_dataset
from support.opened_files import opens_of
from support.token_datasets import Document, random_document, random_shards, write_dataset, write_manifest

PREFIX = "train/shard_00_tokens"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_dataset(
        tmp_path / "root", {"train": random_shards(3, [[9, 12, 20], [30]]), "valid": random_shards(4, [[3]])}
    )


def refused(root: Path, cache: Path, *, match: str, **changes: Any) -> None:
    with pytest.raises((DatasetError, ManifestError), match=match):
        open_dataset(root / PREFIX, config(cache, changes.pop("sequence_length", 7), **changes))


@pytest.mark.parametrize("array", ["tokens", "lossmask", "span"])
@pytest.mark.parametrize("suffix", [".bin", ".idx"])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_one_byte_too_long_or_too_short(
    root: Path, tmp_path: Path, array: str, suffix: str, change: int
) -> None:
    path = root / f"train/shard_00_{array}{suffix}"
    data = path.read_bytes()
    path.write_bytes(data + b"\0" if change > 0 else data[:-1])
    refused(root, tmp_path / "cache", match=rf"(?s)bytes, the manifest says.*shard_00_{array}\{suffix}")


@pytest.mark.parametrize("array", ["tokens", "lossmask", "span"])
def test_an_index_from_another_build(root: Path, tmp_path: Path, array: str) -> None:
    """The same number of documents and tokens, cut elsewhere: sizes cannot tell, the hash does."""
    path = root / f"train/shard_00_{array}.idx"
    dtype = np.int32 if array == "tokens" else np.uint8
    other = b"".join(bytes(block) for block in index_blocks(np.array([9, 13, 19], dtype=np.int32), dtype))
    assert len(other) == path.stat().st_size
    path.write_bytes(other)
    refused(root, tmp_path / "cache", match=rf"(?s)another build.*shard_00_{array}\.idx")


@pytest.mark.parametrize("array", ["lossmask", "span"])
@pytest.mark.parametrize(
    ("lengths", "dtype", "words"),
    [
        ([9, 13, 19], np.uint8, "13 items where tokens has 12"),
        ([9, 32], np.uint8, "2 sequences, tokens has 3"),
        ([9, 12, 20], np.int32, "dtype code 4, expected 1"),
    ],
)
def test_arrays_that_do_not_lie_parallel_though_the_manifest_says_so(
    root: Path, tmp_path: Path, array: str, lengths: list[int], dtype: Any, words: str
) -> None:
    blocks = index_blocks(np.array(lengths, dtype=np.int32), dtype)
    (root / f"train/shard_00_{array}.idx").write_bytes(b"".join(bytes(block) for block in blocks))
    write_manifest(root, shards=2)
    refused(root, tmp_path / "cache", match=f"(?s){words}.*shard_00_{array}")


def test_a_missing_file(root: Path, tmp_path: Path) -> None:
    (root / "train/shard_00_span.bin").unlink()
    refused(root, tmp_path / "cache", match=r"(?s)missing.*shard_00_span\.bin")


def test_a_shard_that_the_manifest_does_not_know(root: Path, tmp_path: Path) -> None:
    for path in list((root / "train").glob("shard_01_*")):
        shutil.copy(path, path.with_name(path.name.replace("shard_01", "shard_07")))
    with pytest.raises(DatasetError, match=r"(?s)does not list.*shard_07_tokens\.idx"):
        open_dataset(root / "train/shard_07_tokens", config(tmp_path / "cache", 7))


def test_a_manifest_that_is_missing_pending_or_elsewhere(root: Path, tmp_path: Path) -> None:
    manifest = root / "manifest.json"
    manifest.rename(root / "manifest.pending.json")
    refused(root, tmp_path / "cache", match="built but not validated")
    (root / "manifest.pending.json").unlink()
    refused(root, tmp_path / "cache", match=r"no manifest\.json")
    shutil.rmtree(root)
    refused(root, tmp_path / "cache", match="there is no such folder")


def test_a_manifest_of_another_alignment(root: Path, tmp_path: Path) -> None:
    write_manifest(root, shards=2, alignment="tokens")
    refused(root, tmp_path / "cache", match=r"content\.alignment")


def test_a_dataset_without_spans(root: Path, tmp_path: Path) -> None:
    write_manifest(root, shards=2, arrays={"tokens": "int32"})
    refused(root, tmp_path / "cache", match="training reads tokens")


def test_another_tokenizer(root: Path, tmp_path: Path) -> None:
    fields = {"name": "other", "vocab_size": 96, "sha256": "cd" * 32, "eod": TOKENIZER.eod}
    refused(root, tmp_path / "cache", match="this tokenizer has cdcd", tokenizer=DatasetTokenizer(**fields))
    fields |= {"sha256": TOKENIZER.sha256, "eod": 5}
    refused(root, tmp_path / "cache", match="end-of-document is 5", tokenizer=DatasetTokenizer(**fields))


def test_the_eos_of_hugging_faces_tokenizer_is_recognised(root: Path, tmp_path: Path) -> None:
    """gpt-oss's: the ids are the same, and its eos is another one."""
    tokenizer = {"name": "o200k_harmony", "sha256": TOKENIZER.sha256, "vocab_size": 201_088, "eod": 199_999}
    write_manifest(root, shards=1, tokenizer=tokenizer)
    theirs = DatasetTokenizer(**{**tokenizer, "eod": 200_002})
    refused(root, tmp_path / "cache", match=r"(?s)eos_token is <\|return\|> \(200002\).*leave out", tokenizer=theirs)


def test_a_sequence_too_short_to_predict_anything(root: Path, tmp_path: Path) -> None:
    refused(root, tmp_path / "cache", match="sequence_length is 1", sequence_length=1)


def test_a_shard_shorter_than_one_sample(root: Path, tmp_path: Path) -> None:
    refused(root, tmp_path / "cache", match="41 tokens give no sample of 41", sequence_length=41)
    assert len(open_dataset(root / PREFIX, config(tmp_path / "cache", 40))) == 1


def test_no_index_cache_is_written_beside_the_data(root: Path) -> None:
    before = sorted(root.rglob("*"))
    with pytest.raises(DatasetError, match="data-cache-path"):
        open_dataset(root / PREFIX, config(root, 7, path_to_cache=None))
    assert sorted(root.rglob("*")) == before


def test_a_prefix_that_is_none(root: Path) -> None:
    for wrong in ("train/shard_00", "train/shard_00_lossmask", "train/shard_00_tokens.bin"):
        with pytest.raises(DatasetError, match="not the prefix"):
            open_shard(root / wrong)


def test_a_dataset_built_again_does_not_meet_its_old_index(root: Path, tmp_path: Path) -> None:
    """The same path, options and number of documents, other lengths: a stale index would cut at the old boundaries."""
    options = config(tmp_path / "cache", 7)
    old = open_dataset(root / PREFIX, options)
    shutil.rmtree(root)
    random = np.random.default_rng(9)
    write_dataset(root, {"train": [[random_document(random, length) for length in (20, 30, 40)]]})
    new = open_dataset(root / PREFIX, options)
    assert (len(old), len(new)) == ((41 - 1) // 7, (90 - 1) // 7)


def test_an_index_cache_cut_short_is_said_to_be(root: Path, tmp_path: Path) -> None:
    options = config(tmp_path / "cache", 7)
    open_dataset(root / PREFIX, options)
    (index,) = (tmp_path / "cache").glob("*sample_index.npy")
    for size in (0, 20, index.stat().st_size - 1):
        index.write_bytes(index.read_bytes()[:size] if size else b"")
        with pytest.raises(DatasetError, match="cached sample index") as refusal:
            open_dataset(root / PREFIX, options)
        assert refusal.value.where == str(index)


@pytest.mark.parametrize("kind", ["document_index", "sample_index", "shuffle_index"])
def test_an_index_cache_torn_anywhere_names_the_file(root: Path, tmp_path: Path, kind: str) -> None:
    options = config(tmp_path / "cache", 7)
    open_dataset(root / PREFIX, options)
    (index,) = (tmp_path / "cache").glob(f"*{kind}.npy")
    whole = index.read_bytes()
    torn = [whole[:size] for size in (*range(0, 128, 9), len(whole) - 1)]
    torn += [b"\0" * len(whole), b"\x80\x04garbage", whole[:10] + b"\0" * 60 + whole[70:]]
    for data in torn:
        index.write_bytes(data)
        with pytest.raises(DatasetError, match="cached sample index") as refusal:
            open_dataset(root / PREFIX, options)
        assert refusal.value.where == str(index)
        assert refusal.value.remedy
    index.write_bytes(whole)
    assert len(open_dataset(root / PREFIX, options)) == (41 - 1) // 7


def test_an_index_cache_that_this_rank_does_not_see_is_said_to_be(root: Path, tmp_path: Path) -> None:
    """`fast_cache_load` takes the cache for built, as every rank but the first does."""
    refused(root, tmp_path / "cache", match="(?s)not here.*sample_index|not here.*document_index", fast_cache_load=True)


def test_a_blend_weighs_shards_by_their_tokens_and_leaves_out_what_gives_no_sample(root: Path) -> None:
    content = read_content(root)
    whole = blend(content, "/data", "train")
    assert whole.flat() == ["41", "/data/train/shard_00_tokens", "30", "/data/train/shard_01_tokens"]
    assert per_split({"train": whole}) == {"train": whole.flat(), "valid": None, "test": None}
    cut = blend(content, "/data", "train", sequence_length=30)
    assert (cut.prefixes, cut.left_out) == (("/data/train/shard_00_tokens",), ("/data/train/shard_01_tokens",))
    with pytest.raises(DatasetError, match="no shard of train holds a sample of 41"):
        blend(content, "/data", "train", sequence_length=41)
    with pytest.raises(DatasetError, match="no test documents"):
        blend(content, "/data", "test")


def test_a_shard_without_documents_has_no_prefix(tmp_path: Path) -> None:
    eod = Document(np.array([95], np.int32), np.zeros(1, np.uint8), np.zeros(1, np.uint8))
    root = write_dataset(tmp_path / "root", {"train": [[], [eod, eod]]})
    assert blend(read_content(root), root, "train").prefixes == (f"{root}/train/shard_01_tokens",)
    assert json.loads((root / "manifest.json").read_text())["content"]["totals"]["splits"]["train"]["tokens"] == 2
    assert (
        SpanGPTDataset.numel_low_level_dataset(
            SpanGPTDataset.build_low_level_dataset(f"{root}/train/shard_01_tokens", config(tmp_path, 2))
        )
        == 2
    )


def test_the_command_prints_and_writes_what_megatrons_flags_take(root: Path, tmp_path: Path, cli: Cli) -> None:
    written = tmp_path / "blend.json"
    done = cli("blend", root, "--mount", "/data", "--out", written)
    assert done.returncode == 0, done.stderr
    train = "41 /data/train/shard_00_tokens 30 /data/train/shard_01_tokens"
    assert done.stdout.splitlines() == [f"--per-split-data-args-path {written}"]
    expected = {"train": train.split(), "valid": ["3", "/data/valid/shard_00_tokens"], "test": None}
    assert json.loads(written.read_text()) == expected
    assert json.loads(cli("blend", root, "--mount", "/data", "--json").stdout) == expected
    plain = cli("blend", root).stdout.splitlines()
    assert plain == [
        f"--data-path {train.replace('/data', str(root))} --split 100,0,0",
        f"--train-data-path {train.replace('/data', str(root))}",
        f"--valid-data-path 3 {root}/valid/shard_00_tokens",
    ]
    cut = cli("blend", root, "--sequence-length", 30)
    assert cut.returncode == 1
    assert "shard of valid" in cut.stderr


class TestOpeningManyShards:
    """The manifest is read once a root and process, however many shards are opened, and again where it changed."""

    @pytest.fixture
    def many(self, tmp_path: Path) -> Path:
        return write_dataset(tmp_path / "many", {"train": random_shards(5, [[9, 12, 20]] * 5)})

    def test_megatron_classes_and_plain_pytorch_read_the_manifest_once(self, many: Path, tmp_path: Path) -> None:
        def open_all() -> None:
            for kind in (SpanWireGPTDataset, SpanGPTDataset):
                for shard in range(5):
                    open_dataset(many / f"train/shard_{shard:02d}_tokens", config(tmp_path / "cache", 7), kind=kind)
            StreamDataset(many, sequence_length=7)
            DocumentDataset(many)

        assert opens_of(many / "manifest.json", open_all) == 1
        assert opens_of(many / "manifest.json", open_all) == 0

    @pytest.mark.parametrize("replace", [True, False])
    def test_a_manifest_that_changed_is_read_again(self, many: Path, replace: bool) -> None:
        before = read_content(many)
        path = many / "manifest.json"
        changed = path.read_text().replace('"eod": 95', '"eod": 94')
        assert len(changed) == path.stat().st_size
        if replace:  # as a build does: another file under the same name
            (many / "other.json").write_text(changed)
            (many / "other.json").replace(path)
        else:
            path.write_text(changed)
        assert (before.tokenizer.eod, read_content(many).tokenizer.eod) == (95, 94)

    def test_a_manifest_that_is_gone_is_told(self, many: Path) -> None:
        read_content(many)
        (many / "manifest.json").unlink()
        with pytest.raises(ManifestError, match=r"there is no manifest\.json"):
            read_content(many)

    def test_the_files_of_all_shards_are_listed_once(self, many: Path) -> None:
        """Work in Python for each further shard does not grow with their number."""

        def calls(shards: int) -> int:
            root = write_dataset(many.parent / f"of{shards}", {"train": random_shards(5, [[9]] * shards)})
            open_shard(root / "train/shard_00_tokens")
            return calls_of(lambda: [open_shard(root / f"train/shard_{number:02d}_tokens") for number in range(10)])

        assert calls(60) < 1.1 * calls(10)
