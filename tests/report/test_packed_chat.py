"""The views of the second family: what `inspect`, `stats`, the report, the card and the export say of packed chat."""

import json
import re
from pathlib import Path

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from conftest import Cli
from spanloom.dataset.manifest import read
from spanloom.families.chat.blocks.markers import CONTROL_STRINGS
from spanloom.tokenizers.json_file import JsonVocabulary, load_json_tokenizer
from support.chat_datasets import packed, transcript, write_transcripts

X, PAD = "<|EOS|>", "<|PAD|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    assert packed(folder, pad_tail=True).report.clean
    return folder


@pytest.fixture(scope="module")
def dataset(folder: Path) -> Path:
    return folder / "dataset"


def on_disk(root: Path) -> list[tuple[list[int], list[int]]]:
    """Tokens and lossmask of every block, in the order of shards."""
    blocks = []
    for tokens in sorted((root / "train").glob("shard_*_tokens.bin")):
        mask = tokens.with_name(tokens.name.replace("tokens", "lossmask"))
        pair = (np.fromfile(tokens, "<i4").reshape(-1, 64), np.fromfile(mask, np.uint8).reshape(-1, 64))
        blocks += [(one.tolist(), other.tolist()) for one, other in zip(*pair, strict=True)]
    return blocks


@pytest.mark.parametrize("streaming", [False, True])
def test_datasets_loads_what_lies_on_disk(
    folder: Path, dataset: Path, tmp_path: Path, cli: Cli, streaming: bool
) -> None:
    done = cli("export", dataset, "--out", tmp_path / "out", "--tokens-per-file", 1000, "--json", "-q")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["files"]) > 2
    loaded = datasets.load_dataset(str(tmp_path / "out"), streaming=streaming, cache_dir=str(tmp_path / "cache"))
    assert set(loaded) == {"train"}
    assert loaded["train"].column_names == ["input_ids", "labels", "loss_mask", "assistant_masks", "attention_mask"]
    rows, blocks = list(loaded["train"]), on_disk(dataset)
    assert len(rows) == len(blocks)
    pad = JsonVocabulary(load_json_tokenizer(folder / "tokenizer.json", extra="chat"), CONTROL_STRINGS)
    padded = 0
    for row, (tokens, mask) in zip(rows, blocks, strict=True):
        assert row["input_ids"] == tokens
        assert row["loss_mask"] == row["assistant_masks"] == [0, *mask[:-1]]
        assert row["labels"][1:] == [token if on else -100 for token, on in zip(tokens[1:], mask[:-1], strict=True)], (
            "the targets of the blocks, which trainers shift by themselves"
        )
        real = sum(row["attention_mask"])
        assert row["attention_mask"] == [1] * real + [0] * (64 - real)
        assert {pad.name(token) for token in tokens[real:]} <= {PAD}
        padded += 64 - real
    assert padded == (read(dataset).content.totals.packing or {})["padding_tokens"] > 0


def test_inspect_shows_the_turns_of_a_block_and_what_is_learned(folder: Path, tmp_path: Path, cli: Cli) -> None:
    text = transcript(1, system="S", seed=0).replace("Why is the sky blue?", "Q")
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    texts = ["<|SYSTEM|>Be brief.<|END|><|USER|>Grüße ☃<|END|><|ASSISTANT|>42<|END|>", text] * 20
    write_transcripts(tmp_path / "transcripts.jsonl", texts)
    packed(tmp_path, shards=1)
    words = ("inspect", tmp_path / "dataset", "--tokenizer", tmp_path / "tokenizer.json")
    said = cli(*words, "train/0/0").stdout
    assert "· system – masked" in said
    assert "· <|SYSTEM|>Be brief.<|END|>" in said
    assert "· <|USER|>Grüße ☃<|END|>" in said
    assert "┊ assistant – learned as assistant" in said
    assert "┊ <|ASSISTANT|>42<|END|>" in said
    assert "· <|EOS|>" in said
    labels = cli(*words, "train/0/0", "--labels").stdout.splitlines()
    _, mask = on_disk(tmp_path / "dataset")[0]
    rows = labels[next(at for at, line in enumerate(labels) if line.startswith("position")) + 1 :]
    assert len(rows) == 64
    learned = [int(re.search(r" ([01])\s+[·┊] [01] ", line)[1]) for line in rows]  # type: ignore[index]
    assert learned == mask
    page = tmp_path / "page.html"
    assert cli(*words, "--pick", "first", "-n", 3, "--html", page).returncode == 0
    html = page.read_text()
    assert "&lt;|ASSISTANT|&gt;" in html
    assert "learned as assistant" in html
    assert 'data-spans="context assistant"' in html


def test_inspect_marks_what_was_injected(dataset: Path, folder: Path, cli: Cli) -> None:
    rows = pq.read_table(dataset / "train/shard_00_rows.parquet")
    sequence = next(at for at, count in enumerate(rows["injected_tokens"].to_pylist()) if count > 1)
    said = cli("inspect", dataset, f"train/0/{sequence}", "--tokenizer", folder / "tokenizer.json").stdout
    assert f"{rows['injected_tokens'][sequence]} tokens injected" in said
    assert "system injected – masked" in said
    assert "user injected – masked" in said


def test_inspect_picks_blocks_without_loss(dataset: Path, folder: Path, cli: Cli) -> None:
    words = ("inspect", dataset, "--tokenizer", folder / "tokenizer.json")
    rows = pq.read_table(dataset / "train/shard_01_rows.parquet")
    lossless = {at for at, count in enumerate(rows["assistant_tokens"].to_pylist()) if not count}
    said = cli(*words, "--without", "assistant", "--shard", 1, "-n", 99).stdout
    assert {int(found) for found in re.findall(r"train/01/(\d+)", said)} == lossless
    for option in (("--language", "de"), ("--id", "x")):
        refused = cli(*words, *option)
        assert refused.returncode == 1
        assert "have no" in refused.stderr
    assert "no span of reasoning" in cli(*words, "--no-reasoning").stderr


def test_another_tokenizer_is_refused(dataset: Path, folder: Path, tmp_path: Path, cli: Cli) -> None:
    other = tmp_path / "other.json"
    other.write_text((folder / "tokenizer.json").read_text().replace('"truncation":null', '"truncation": null'))
    assert other.read_bytes() != (folder / "tokenizer.json").read_bytes()
    for words in (
        ("inspect", dataset, "--tokenizer", other),
        ("inspect", dataset),
        ("validate", dataset, "--source", folder / "transcripts.jsonl", "--tokenizer", other),
    ):
        done = cli(*words)
        assert done.returncode == 1
        assert "of another tokenizer" in done.stderr


def test_stats_add_up_to_the_manifest(dataset: Path, cli: Cli) -> None:
    totals = read(dataset).content.as_dict()["totals"]["splits"]["train"]
    for by in ("split", "shard", ""):
        lines = json.loads(cli("stats", dataset, "--by", by, "--json").stdout)
        assert sum(line["sequences"] for line in lines) == totals["sequences"]
        assert sum(line["tokens"] for line in lines) == totals["tokens"]
        assert sum(line["trained_tokens"] for line in lines) == totals["span_tokens"]["assistant"]
    assert "assistant" in cli("stats", dataset).stdout


def test_report_card_and_manifest_say_what_became_of_the_stream(dataset: Path, cli: Cli) -> None:
    content = read(dataset).content.as_dict()
    packing = content["totals"]["packing"]
    facts = json.loads((dataset / "report.json").read_bytes())
    assert facts["dataset"]["totals"]["packing"] == packing
    assert (
        facts["statistics"]["total"]["trained_tokens"]
        == content["totals"]["splits"]["train"]["span_tokens"]["assistant"]
    )
    page, card = ((dataset / name).read_text() for name in ("report.html", "README.md"))
    shown = cli("manifest", "show", dataset).stdout
    for count in (packing["injected_tokens"], packing["tokens_given_up"], packing["lossless_blocks"]):
        for text in (page, card, shown):
            assert f"{count:,}" in text
    assert "Packing" in page
    assert "Lengths" not in page
    assert "renderer" not in page
    front = yaml.safe_load(card.split("---")[1])
    assert front["configs"][0]["data_files"] == [{"split": "train", "path": "train/shard_*_rows.parquet"}]
    assert "sequence_length` 64" in card
    for marker in content["config"]["markers"].values():
        assert f"`{marker['text']}` {marker['id']}" in card
    loaded = datasets.load_dataset("parquet", data_files=str(dataset / "train/shard_*_rows.parquet"), split="train")
    assert sum(loaded["assistant_tokens"]) == content["totals"]["splits"]["train"]["span_tokens"]["assistant"]


def test_manifests_of_two_packings_differ_where_they_do(folder: Path, dataset: Path, cli: Cli) -> None:
    packed(folder, name="loose", pad_tail=True, strict_user=False)
    done = cli("manifest", "diff", dataset, folder / "loose", "--json")
    assert done.returncode == 1
    paths = {difference["path"] for difference in json.loads(done.stdout)}
    assert "content.config.strict_user" in paths
    assert "content.config.block_size" not in paths


@pytest.mark.parametrize(
    ("environment", "flag", "on"), [("1", (), True), ("0", (), False), ("1", ("--no-post-training",), False)]
)
def test_the_switch_is_an_option_or_an_environment_variable(
    folder: Path, tmp_path: Path, cli: Cli, environment: str, flag: tuple[str, ...], on: bool
) -> None:
    done = cli(
        *("chat", "pack", "--input", folder / "transcripts.jsonl", "--out", tmp_path / "out", "--block-size", 64),
        *("--tokenizer", folder / "tokenizer.json", "--json", *flag),
        POST_TRAINING=environment,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["clean"]
    content = read(tmp_path / "out").content.as_dict()
    assert content["config"]["post_training"] is on
    assert ("every token counts" in done.stderr) is not on
    trained = content["totals"]["splits"]["train"]["span_tokens"]["assistant"]
    assert (trained == content["totals"]["splits"]["train"]["sequences"] * 63) is not on


def test_the_vocabulary_of_a_tokenizers_file_has_its_bytes(folder: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    vocabulary = JsonVocabulary(load_json_tokenizer(folder / "tokenizer.json", extra="chat"), CONTROL_STRINGS)
    for text in ("Grüße ☃ 波長\n\ttab", "a  b", "\x00\x7f"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert b"".join(vocabulary.piece(token) for token in ids).decode() == text
    assert vocabulary.name(tokenizer.token_to_id(X)) == X
    assert vocabulary.is_special(tokenizer.token_to_id(X))
    assert vocabulary.is_special(10_000)
    assert vocabulary.is_special(-1)
