"""Token datasets of samples: what is on the disk, validation that finds each fault, commands, trainers."""

import copy
import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from conftest import Cli
from corruption.leaves import leaf_edits
from corruption.trial import ROOT
from families.toolcalls.conftest import Run, values
from spanloom.building.make import BuildResult
from spanloom.building.steps import StepTask
from spanloom.dataset import manifest
from spanloom.dataset.manifest import ManifestError
from spanloom.dataset.root.layout import array_prefix, rows_file
from spanloom.dataset.rows.table import rows_schema
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.errors import ConflictError, DatasetError, DuplicateIdError, SpanloomError
from spanloom.families.toolcalls import dataset as family
from spanloom.families.toolcalls.build import BuildOptions, build
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.rendering import load_template
from spanloom.families.toolcalls.format.tools import load_registries
from spanloom.families.toolcalls.loader import PairedLoader
from spanloom.families.toolcalls.recipe import LAYOUTS, TokenizeRules
from spanloom.families.toolcalls.samples.sampling import WeightedSampler
from spanloom.families.toolcalls.steps.tokenize_toolcalls import run as tokenize_step
from spanloom.families.toolcalls.tokens import masks
from spanloom.families.toolcalls.tokens.masks import Masked, masked_samples
from spanloom.families.toolcalls.tokens.tokenizer import load_tokenizer
from spanloom.families.toolcalls.verify.content import NOT_CHECKABLE
from spanloom.megatron.official import open_indexed
from spanloom.split import id_digests, is_valid
from spanloom.training.megatron_dataset import DatasetTokenizer
from spanloom.training.packed import PackedDataset
from spanloom.training.packed_megatron import PackedGPTDataset, packed_datasets
from spanloom.training.pytorch import DocumentDataset, StreamDataset, collate
from spanloom.training.samples.document_weights import document_weights
from spanloom.training.shard import open_shard
from spanloom.training.weights import WeightedCount, weighted_loss
from support.killed import killed_before
from support.megatron_options import config, open_dataset, packing_config
from support.nightly import drawn, nightly
from support.strange_files import INSTEAD
from support.toolcall_samples import changed, harmful, retain, write_samples
from tokenizers import Tokenizer

FRACTION = 0.3
EOT, EOD = "<|eot_id|>", "<|end_of_text|>"


def samples() -> list[dict[str, Any]]:
    made = [harmful(number) for number in range(12)]
    kept = [retain(number) for number in range(20)]
    kept[3] = changed(kept[3], "training.sample_weight", 2.5)
    kept[4] = changed(kept[4], "training.repeat", 3)
    kept[5] = changed(kept[5], "training.priority_class", "adversarial_safe")
    unrenderable = retain(
        50, messages=[*retain(50)["messages"], {"role": "assistant", "content": None, "tool_calls": [{}]}]
    )
    return [sample for pair in zip(made, kept, strict=False) for sample in pair] + kept[12:] + [unrenderable]


@pytest.fixture(scope="module")
def tokenizer(fixtures: Path) -> Path:
    return fixtures / "tokenizer_llamalike.json"


@pytest.fixture(scope="module")
def template(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "aware.jinja"
    path.write_text(values(fixtures / "templates.json")["templates"]["aware"])
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_samples(tmp_path_factory.mktemp("samples") / "train.jsonl", samples())


def make(data: Path, template: Path, tokenizer: Path, out: Path, **rules: Any) -> dict[str, BuildResult]:
    given = TokenizeRules(**{"valid_fraction": FRACTION, **rules})
    options = BuildOptions(
        data=data, template=template, tokenizer=tokenizer, out=out, rules=given, allow_unknown_sha=True
    )
    return {one.root.name: one for one in build(options)}


@pytest.fixture(scope="module")
def built(data: Path, template: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("roots")
    results = make(data, template, tokenizer, out)
    assert [one.report.clean for one in results.values()] == [True, True]
    return out


def documents(root: Path, split: str) -> list[tuple[list[int], list[int]]]:
    """Tokens and mask of each document as on disk, read through Megatron's own reader."""
    tokens, mask = (open_indexed(array_prefix(root, split, 0, name)) for name in ("tokens", "lossmask"))
    return [(tokens[number].tolist(), mask[number].tolist()) for number in range(len(tokens))]


def test_what_is_on_the_disk(built: Path, template: Path, tokenizer: Path) -> None:
    loaded, registries, render = load_tokenizer(tokenizer), load_registries(), load_template(template).render
    eod = loaded.id_of("<|end_of_text|>")
    for name in ("harmful", "retain"):
        root = built / name
        ours = [sample for sample in samples() if sample["labels"]["split"] == name]
        made = list(masked_samples(ours, render, loaded, registries))
        kept = [one for one in made if isinstance(one, Masked)]
        ids = [str(one.sample["id"]) for one in kept]
        for split, wanted in (("train", False), ("valid", True)):
            here = [
                one for one, valid in zip(kept, is_valid(id_digests(ids), FRACTION), strict=True) if valid == wanted
            ]
            assert here
            for one, (tokens, mask) in zip(here, documents(root, split), strict=True):
                aligned = [int(one.start <= at < one.end) for at in range(len(one.ids))] + [0]
                assert tokens == [*one.ids.tolist(), eod]
                assert mask == [*aligned[1:], 0]
        content = manifest.read(root).content
        assert content.family == "tool_calls"
        assert content.harmful == (name == "harmful")
        assert content.totals.rejected == ({} if name == "harmful" else {"the template raises": 1})


def rows(root: Path) -> dict[str, dict[str, Any]]:
    return {
        row["sample_id"]: row
        for split in ("train", "valid")
        for row in pq.read_table(rows_file(root, split, 0)).to_pylist()
    }


def test_weights_and_subtypes_are_in_the_rows(built: Path) -> None:
    found = rows(built / "retain")
    assert [found[f"ultrachat_retain_0000{n}"]["weight"] for n in (1, 3, 4, 5)] == [0.8, 2.5, pytest.approx(2.4), 2.0]
    assert Counter(row["subtype"] for row in found.values()) == {"general_conversation": 19, "adversarial_safe": 1}
    assert {row["source"] for row in rows(built / "harmful").values()} == {"fujitsu_b4"}
    assert all(row["calls"] for row in rows(built / "harmful").values())


def test_the_same_request_gives_the_same_bytes(
    data: Path, template: Path, tokenizer: Path, built: Path, tmp_path: Path
) -> None:
    again = make(data, template, tokenizer, tmp_path / "again")
    for name, one in again.items():
        assert one.manifest.content.as_dict() == manifest.read(built / name).content.as_dict()
    assert all(one.already_built for one in make(data, template, tokenizer, tmp_path / "again").values())
    with pytest.raises(ConflictError, match="other options"):
        make(data, template, tokenizer, tmp_path / "again", valid_fraction=0.5)


@pytest.mark.parametrize("change", [*map(nightly, (3, 8, 14, 21)), 29, *map(nightly, (38, 48))])
def test_a_build_that_was_killed_is_simply_run_again(
    data: Path, template: Path, tokenizer: Path, built: Path, tmp_path: Path, change: int
) -> None:
    out = tmp_path / "again"
    assert killed_before(change, lambda: make(data, template, tokenizer, out))
    make(data, template, tokenizer, out)
    for name in ("harmful", "retain"):
        files = {path.relative_to(out): path.read_bytes() for path in (out / name).rglob("shard_*")}
        assert files == {path.relative_to(built): path.read_bytes() for path in (built / name).rglob("shard_*")}
        assert manifest.read(out / name).content == manifest.read(built / name).content
        assert not (out / name / ".work").exists()


@pytest.mark.parametrize("standing", [(), ("notes.txt",)])
def test_a_refused_build_leaves_nothing(
    template: Path, tokenizer: Path, tmp_path: Path, standing: tuple[str, ...]
) -> None:
    """With no sample of any split, and where no sample has a mask."""
    out = tmp_path / "roots"
    for name in standing:
        out.mkdir()
        (out / name).write_text("mine")
    unmasked = [changed(sample, "messages", ...) for sample in samples()]
    with pytest.raises(ToolCallError, match="can be masked"):
        make(write_samples(tmp_path / "unmasked.jsonl", unmasked), template, tokenizer, out)
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ToolCallError, match="neither harmful nor retain samples"):
        make(tmp_path / "empty.jsonl", template, tokenizer, out)
    assert out.exists() == bool(standing)
    assert sorted(path.name for path in out.glob("*")) == list(standing)


def test_files_of_others_are_never_touched(data: Path, template: Path, tokenizer: Path, tmp_path: Path) -> None:
    out = tmp_path / "roots"
    (out / "retain").mkdir(parents=True)
    (out / "retain/tokenizer.json").write_text("mine")
    with pytest.raises(ConflictError, match=r"what no build of Spanloom made: tokenizer\.json"):
        make(data, template, tokenizer, out)
    assert (out / "retain/tokenizer.json").read_text() == "mine"


def test_the_samples_are_the_source(built: Path, data: Path, tmp_path: Path) -> None:
    for name in ("harmful", "retain"):
        report = validate_dataset(built / name, family, source=data, deep=100)
        assert report.clean, report.as_dict()
        assert report.as_dict()["checked"]["samples rendered again"] >= 12
    other = write_samples(tmp_path / "other.jsonl", samples()[1:])
    assert "another" not in str(validate_dataset(built / "retain", family, source=data, deep=1).as_dict()["findings"])
    found = validate_dataset(built / "retain", family, source=other, deep=1).as_dict()["found"]
    assert found == {"source": 1}


def test_every_value_of_the_manifest_is_held_to_something(built: Path, data: Path, tmp_path: Path) -> None:
    """Each leaf edited alone, and with the rest made to fit; but those of which `NOT_CHECKABLE` says why."""
    for name in ("harmful", "retain"):
        root = tmp_path / ROOT
        shutil.copytree(built / name, root)
        whole = json.loads((root / "manifest.json").read_bytes())
        edits = [
            edit for edit in leaf_edits(whole) if edit.why is None and edit.name.split(":")[0] not in NOT_CHECKABLE
        ]
        assert len(edits) > 100
        unfound = []
        for edit in edits[:: drawn(nightly=1, otherwise=7)]:
            (root / "manifest.json").write_text(json.dumps(whole))
            edit.apply(tmp_path)
            try:
                clean = validate_dataset(root, family, source=data, deep=2).clean
            except ManifestError:
                clean = False
            if clean:
                unfound.append(str(edit))
        assert unfound == []
        shutil.rmtree(root)


def test_every_value_of_the_rows_is_held_to_something(built: Path, data: Path, tmp_path: Path) -> None:
    """Each column of the row table edited in one row, the manifest made to fit the file."""
    others = {"source": "x", "subtype": "borderline", "sample_id": "x"}
    for number, field in enumerate(rows_schema(family.ROW_SCHEMA, LAYOUTS["answer"].span_names)):
        root = tmp_path / str(number)
        shutil.copytree(built / "retain", root)
        path = rows_file(root, "train", 0)
        table = pq.read_table(path)
        column = table.column(field.name).to_pylist()
        last = column[-1]
        if field.name in others:
            column[-1] = others[field.name]
        else:
            column[-1] = not last if isinstance(last, bool) else last + 1
        table = table.set_column(table.schema.get_field_index(field.name), field, pa.array(column, field.type))
        pq.write_table(table, path)
        whole = json.loads((root / "manifest.json").read_bytes())
        listed = whole["content"]["shards"][0]["splits"]["train"]["files"]
        entry = next(one for one in listed if one["path"].endswith("rows.parquet"))
        entry["bytes"], entry["sha256"] = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
        (root / "manifest.json").write_text(json.dumps(whole))
        found = validate_dataset(root, family, source=data, deep=100).as_dict()["found"]
        assert found, field.name
        assert "inventory" not in found, found


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"labels": {"split": "retain"}}', "[" * 5000, '{"labels": 1}'])
def test_a_damaged_source_is_a_finding(built: Path, data: Path, tmp_path: Path, line: str) -> None:
    """Even where the manifest was made to name the damaged file."""
    root = tmp_path / "root"
    shutil.copytree(built / "retain", root)
    lines_of_data = data.read_text().splitlines(keepends=True)
    first = next(at for at, one in enumerate(lines_of_data) if '"split": "retain"' in one)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("".join([*lines_of_data[:first], line + "\n", *lines_of_data[first + 1 :]]))
    whole = json.loads((root / "manifest.json").read_bytes())
    (entry,) = whole["content"]["input"]["shards"]
    entry["bytes"], entry["sha256"] = damaged.stat().st_size, hashlib.sha256(damaged.read_bytes()).hexdigest()
    (root / "manifest.json").write_text(json.dumps(whole))
    assert validate_dataset(root, family, source=damaged, deep=100).as_dict()["found"]["source"] >= 1


@pytest.mark.parametrize("name", ["chat_template.jinja", "tool_registries.json", "tokenizer.json"])
@pytest.mark.parametrize("instead", [None, *(each for each in INSTEAD if "8 GiB" not in each)])  # minutes to hash
def test_another_thing_in_place_of_what_the_root_carries_is_found(
    built: Path, data: Path, tmp_path: Path, name: str, instead: str | None
) -> None:
    root = tmp_path / "root"
    shutil.copytree(built / "retain", root)
    (root / name).unlink()
    if instead is not None:
        INSTEAD[instead](root / name)
    assert validate_dataset(root, family, source=data, deep=2).as_dict()["found"]["inventory"] == 1


FAULTS = {
    "shift": ("lossmask", lambda mask, ends: mask.__setitem__(ends - 1, 1)),
    "eod": ("tokens", lambda tokens, ends: tokens.__setitem__(ends - 1, 9)),
    "ids": ("tokens", lambda tokens, _: tokens.__setitem__(0, 1_000_000)),
    "values": ("lossmask", lambda mask, _: mask.__setitem__(0, 2)),
    "mask": ("lossmask", lambda mask, ends: mask.__setitem__(slice(0, ends), 0)),
}


@pytest.mark.parametrize("check", FAULTS)
def test_validation_finds_what_is_wrong_in_documents(built: Path, tmp_path: Path, check: str) -> None:
    root = tmp_path / "root"
    shutil.copytree(built / "retain", root)
    name, spoil = FAULTS[check]
    path = root / f"train/shard_00_{name}.bin"
    values_on_disk = np.fromfile(path, np.int32 if name == "tokens" else np.uint8)
    spoil(values_on_disk, len(documents(root, "train")[0][0]))
    values_on_disk.tofile(path)
    assert check in validate_dataset(root, family).as_dict()["found"]


def test_a_mask_that_is_shifted_is_found_against_the_source(built: Path, data: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(built / "harmful", root)
    path = root / "train/shard_00_lossmask.bin"
    np.roll(np.fromfile(path, np.uint8), -1).tofile(path)
    found = validate_dataset(root, family, source=data, deep=100).as_dict()["found"]
    assert found["source"] >= 1


def test_the_commands_of_every_dataset(built: Path, cli: Cli, tmp_path: Path, data: Path) -> None:
    root = built / "harmful"
    assert cli("validate", root, "--source", data).returncode == 0
    shown = cli("inspect", root, "--tokens")
    assert shown.returncode == 0, shown.stderr
    assert "tool call" in shown.stdout
    assert "weight 1" in shown.stdout
    for column in ("subtype", "source"):
        counted = cli("stats", root, "--by", column, "--json")
        assert counted.returncode == 0, counted.stderr
    assert "harmful_flip" in cli("stats", root, "--by", "subtype").stdout
    assert "allow_harmful=True" in (root / "README.md").read_text()
    assert "harmful_flip" in (root / "report.html").read_text()
    exported = cli("export", root, "--out", tmp_path / "exported")
    assert exported.returncode == 0, exported.stderr
    assert cli("blend", root, "--sequence-length", 64).returncode == 0
    assert "allow_harmful" in cli("manifest", "show", root).stdout


def test_the_command_makes_both_roots(data: Path, template: Path, tokenizer: Path, run: Run, tmp_path: Path) -> None:
    options = ["--data", data, "--template", template, "--tokenizer", tokenizer, "--out", tmp_path / "roots"]
    ended = run("tokenize", *options, "--valid-fraction", "0.3", "--json", "-q")
    assert ended.code == 0, ended.err
    assert set(json.loads(ended.out)) == {"harmful", "retain"}
    only = write_samples(tmp_path / "only.jsonl", [retain(1)])
    options = ["--data", only, "--template", template, "--tokenizer", tokenizer, "--out", tmp_path / "one"]
    assert run("tokenize", *options, "-q").code == 0
    assert not (tmp_path / "one/harmful").exists()
    nothing = write_samples(tmp_path / "nothing.jsonl", [{"id": "x"}])
    options[1], options[-1] = nothing, tmp_path / "none"
    assert run("tokenize", *options, "-q").code == 1
    assert run("tokenize", *options, "-q", "--eod", "<none>").err.count("no token '<none>'") == 1


def test_the_command_ends_with_4_where_validation_of_a_finished_root_finds_something(
    data: Path, template: Path, tokenizer: Path, run: Run, tmp_path: Path
) -> None:
    options = ["--data", data, "--template", template, "--tokenizer", tokenizer, "--out", tmp_path / "roots"]
    assert run("tokenize", *options, "-q").code == 0
    root = tmp_path / "roots/retain"
    mask = root / "train/shard_00_lossmask.bin"
    mask.write_bytes(bytes(byte ^ 1 for byte in mask.read_bytes()))
    # A manifest that names the damaged bytes: only the tokens themselves contradict the mask.
    whole = json.loads((root / "manifest.json").read_bytes())
    listed = whole["content"]["shards"][0]["splits"]["train"]["files"]
    (entry,) = [one for one in listed if one["path"].endswith("lossmask.bin")]
    entry["sha256"] = hashlib.sha256(mask.read_bytes()).hexdigest()
    (root / "manifest.json").write_text(json.dumps(whole))
    assert run("tokenize", *options, "-q").code == 4


def test_an_id_that_comes_again_stops_it(template: Path, tokenizer: Path, tmp_path: Path) -> None:
    data = write_samples(tmp_path / "x.jsonl", [retain(1), retain(1)])
    with pytest.raises(DuplicateIdError, match="duplicate id "):
        make(data, template, tokenizer, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.bin"))


def test_samples_without_any_mask_stop_it(tokenizer: Path, tmp_path: Path) -> None:
    template = tmp_path / "x.jinja"
    template.write_text("{{ raise_exception('no') }}")
    data = write_samples(tmp_path / "x.jsonl", [retain(1)])
    with pytest.raises(SpanloomError, match="1 the template raises"):
        make(data, template, tokenizer, tmp_path / "out")


def test_the_step_makes_one_root(data: Path, template: Path, tokenizer: Path, built: Path, tmp_path: Path) -> None:
    made = tokenize_step(
        data=str(data),
        split="harmful",
        root=str(tmp_path / "root"),
        template=str(template),
        tokenizer=str(tokenizer),
        rules=TokenizeRules(valid_fraction=FRACTION),
        task=StepTask(max_rejects=None),
    )
    assert made["content"] == manifest.read(built / "harmful").content.as_dict()


# --- Trainers --------------------------------------------------------------------------------------------------------


def test_a_harmful_root_is_opened_only_when_it_is_said(built: Path, cli: Cli, tmp_path: Path) -> None:
    root = built / "harmful"
    planned = cli("plan", root, "--sequence-length", 64, "--out", tmp_path / "plan", "-q")
    assert planned.returncode == 0, planned.stderr
    for opened in (
        lambda: open_shard(root / "train/shard_00_tokens"),
        lambda: DocumentDataset(root),
        lambda: StreamDataset(root, sequence_length=8),
        lambda: PairedLoader(built),
        lambda: PackedDataset(tmp_path / "plan"),
    ):
        with pytest.raises(DatasetError, match="allow_harmful=True"):
            opened()
    assert len(DocumentDataset(root, allow_harmful=True)) > 0
    assert len(StreamDataset(root, sequence_length=8, allow_harmful=True)) > 0
    assert len(DocumentDataset(built / "retain")) > 0
    packed = PackedDataset(tmp_path / "plan", allow_harmful=True)
    trained = sum(int(packed[number]["loss_mask"].sum()) for number in range(len(packed)))
    documents = DocumentDataset(root, allow_harmful=True)
    assert trained == sum(int(documents[number]["loss_mask"].sum()) for number in range(len(documents))) > 0


def test_megatron_opens_a_harmful_root_only_when_it_is_said(built: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="allow_harmful=True"):
        open_dataset(built / "harmful/train/shard_00_tokens", config(tmp_path, 8))


@pytest.mark.parametrize("name", ["harmful", "retain"])
def test_megatrons_dataset_and_the_weighted_loss_run_on_a_root(built: Path, tmp_path: Path, name: str) -> None:
    """Samples of Megatron's dataset hold several documents: mask and weight of each label against the raw files."""
    root = built / name
    said = manifest.read(root).content.tokenizer
    options = config(
        tmp_path,
        200,
        tokenizer=DatasetTokenizer(name=said.name, sha256=said.sha256, vocab_size=said.vocab_size, eod=said.eod),
    )
    options.allow_harmful = options.document_weights = True
    prefix = root / "train/shard_00_tokens"
    dataset = open_dataset(prefix, options)
    weights = DocumentDataset(root, weights=True, allow_harmful=True).weights
    order = dataset.document_index.tolist()
    on_disk = documents(root, "train")
    stream = {
        "tokens": [token for at in order for token in on_disk[at][0]],
        "loss_mask": [value for at in order for value in on_disk[at][1]],
        "weight": [weights[at] for at in order for _ in on_disk[at][0]],
    }
    assert len(dataset) > 1
    items = [dataset[index] for index in range(len(dataset))]
    for index, item in enumerate(items):
        first = int(dataset.shuffle_index[index]) * 200
        for key, values_of_all in stream.items():
            assert item[key].tolist() == pytest.approx(values_of_all[first : first + 200]), (index, key)
    batch = torch.utils.data.default_collate(items)
    losses = torch.rand(batch["tokens"].shape, generator=torch.Generator().manual_seed(1))
    count = WeightedCount.of(batch["loss_mask"], batch["weight"])
    both = list(zip(stream["weight"], stream["loss_mask"], strict=True))
    taken = [int(dataset.shuffle_index[index]) * 200 + at for index in range(len(items)) for at in range(200)]
    below = sum(both[at][0] * both[at][1] for at in taken)
    above = sum(
        both[at][0] * both[at][1] * float(loss) for at, loss in zip(taken, losses.flatten().tolist(), strict=True)
    )
    assert count.total.item() == pytest.approx(below, rel=1e-5)
    loss = weighted_loss(losses, batch["loss_mask"], batch["weight"], count)
    assert loss.item() == pytest.approx(above / below, rel=1e-5)
    assert "weight" not in open_dataset(prefix, replaced(options, document_weights=False))[0]


def test_megatrons_samples_of_a_plan_are_of_a_harmful_root_only_when_it_is_said_and_have_no_weights(
    built: Path, cli: Cli, tmp_path: Path
) -> None:
    root, plan = built / "harmful", tmp_path / "plan"
    planned = cli("plan", root, "--sequence-length", 64, "--out", plan, "-q")
    assert planned.returncode == 0, planned.stderr
    said = manifest.read(root).content.tokenizer
    tokenizer = DatasetTokenizer(name=said.name, sha256=said.sha256, vocab_size=said.vocab_size, eod=said.eod)
    options = packing_config(tmp_path, 64, tokenizer=tokenizer)
    with pytest.raises(DatasetError, match="allow_harmful=True"):
        packed_datasets(plan, options, [None] * 3, kind=PackedGPTDataset)
    options.allow_harmful = True
    train = packed_datasets(plan, options, [None] * 3, kind=PackedGPTDataset)[0]
    assert len(train) == len(PackedDataset(plan, allow_harmful=True))
    options.document_weights = True
    with pytest.raises(DatasetError, match="samples of a plan carry no weights"):
        packed_datasets(plan, options, [None] * 3, kind=PackedGPTDataset)


def replaced(options: Any, **changes: Any) -> Any:
    other = copy.copy(options)
    for key, value in changes.items():
        setattr(other, key, value)
    return other


def test_the_rows_of_other_families_have_no_weights(tmp_path: Path) -> None:
    path = rows_file(tmp_path, "train", 0)
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"sequence": [0]}), path)
    with pytest.raises(DatasetError, match="have no weights"):
        document_weights(tmp_path, "train", 0)


def test_documents_have_their_weights(built: Path) -> None:
    dataset = DocumentDataset(built / "retain", weights=True)
    assert len(dataset.weights) == len(dataset)
    batch = collate([dataset[0], dataset[1]])
    assert batch["weight"].dtype == torch.float64
    assert batch["weight"].tolist() == dataset.weights[:2].tolist()
    assert set(dataset.weights.tolist()) <= {row["weight"] for row in rows(built / "retain").values()}
    assert "weight" not in DocumentDataset(built / "retain")[0]
    documents_on_disk = documents(built / "retain", "train")
    sample = dataset[0]
    assert sample["tokens"].tolist() == documents_on_disk[0][0]
    assert sample["loss_mask"].tolist() == documents_on_disk[0][1]


def test_documents_are_drawn_by_weight_or_weighed_never_both(built: Path) -> None:
    dataset = DocumentDataset(built / "retain")
    sampler = WeightedSampler.of(dataset, draws=1000, seed=3)
    counts = Counter(sampler)
    shares = dataset.weights * 1000 / dataset.weights.sum()
    assert all(abs(counts[at] - share) < 1 for at, share in enumerate(shares))
    loader = torch.utils.data.DataLoader(dataset, sampler=sampler, batch_size=10, collate_fn=collate)
    assert len(list(loader)) == 100
    with pytest.raises(DatasetError, match="weighed twice"):
        WeightedSampler.of(DocumentDataset(built / "retain", weights=True))


def test_steps_pair_one_harmful_sample_with_some_to_retain(built: Path) -> None:
    loaders = [PairedLoader(built, allow_harmful=True, benign_per_harmful=3, rank=rank, ranks=2) for rank in range(2)]
    together = PairedLoader(built, allow_harmful=True, benign_per_harmful=3)
    steps = list(together.positions())
    assert sorted(one for one, _ in steps) == list(range(len(together.harmful)))
    assert [pair for both in zip(*(each.positions() for each in loaders), strict=True) for pair in both] == steps[
        : 2 * len(loaders[0])
    ]
    beside = [at for _, these in steps for at in these]
    count = len(together.retain)
    assert sorted(beside[:count]) == list(range(count)), "each once before any comes again"
    together.set_epoch(1)
    assert list(together.positions()) != steps
    batch = next(iter(together))
    assert batch["harmful"]["tokens"].shape[0] == 1
    assert batch["retain"]["tokens"].shape[0] == 3
    assert "weight" not in batch["retain"]


def test_steps_with_weights(built: Path) -> None:
    by_loss = PairedLoader(built, allow_harmful=True, weighted="loss")
    assert next(iter(by_loss))["retain"]["weight"].shape == (5,)
    drawn = PairedLoader(built, allow_harmful=True, weighted="sampler", benign_per_harmful=50)
    assert "weight" not in next(iter(drawn))["retain"]
    counts = Counter(at for _, beside in drawn.positions() for at in beside)
    weights = drawn.retain.weights
    for at, count in counts.items():
        assert abs(count - weights[at] * counts.total() / weights.sum()) < 1


def test_the_loader_takes_whole_documents(tmp_path: Path, template: Path, tokenizer: Path) -> None:
    long = [{"role": "system", "content": "You have tools. " * 400}, {"role": "user", "content": "Find picture 1."}]
    data = write_samples(tmp_path / "train.jsonl", [harmful(1, messages=long), retain(1)])
    make(data, template, tokenizer, tmp_path / "roots", valid_fraction=0.0)
    batch = next(iter(PairedLoader(tmp_path / "roots", allow_harmful=True, benign_per_harmful=1)))["harmful"]
    assert batch["loss_mask"].any(), "the answer stands at the end"


# --- Control tokens in texts ------------------------------------------------------------------------------------------


def test_control_tokens_in_texts_leave_a_sample_out_or_are_kept_or_are_text(
    template: Path, tokenizer: Path, tmp_path: Path
) -> None:
    fine, asked, ended = retain(0), retain(1), retain(2)
    asked["messages"] = [{**each, "content": f"what is {EOT}?"} for each in asked["messages"][:1]]
    ended["messages"] = [{**each, "content": f"what is {EOD}?"} for each in ended["messages"][:1]]
    role = asked["messages"][0]["role"]
    data = write_samples(tmp_path / "train.jsonl", [fine, asked, ended])
    loaded = Tokenizer.from_file(str(tokenizer))
    frame = {}
    for how, reasons in (
        ("refuse", {f"control token in a text: {mark} in a message of {role}": 1 for mark in (EOT, EOD)}),
        ("as-served", {f"control token in a text: {EOD} in a message of {role}": 1}),
        ("text", {}),
    ):
        result = make(data, template, tokenizer, tmp_path / how, control_texts=how)["retain"]
        assert result.report.clean, result.report.findings
        report = validate_dataset(result.root, family, source=data, deep=10)
        assert report.clean, report.findings
        content = result.manifest.content
        assert content.totals.rejected == reasons
        rows = {
            row["sample_id"]: row
            for table in result.root.glob("*/*_rows.parquet")
            for row in pq.read_table(table).to_pylist()
        }
        assert len(rows) == 3 - len(reasons)
        if how != "refuse":
            assert rows[asked["id"]]["control_tokens"] == 1
            assert rows[fine["id"]]["control_tokens"] == 0
        frame[how] = {
            name: [int(token) for token in documents_of(result.root, row["sample_id"])] for name, row in rows.items()
        }
    mark, eod = loaded.token_to_id(EOT), loaded.token_to_id(EOD)
    kept, text = frame["as-served"][asked["id"]], frame["text"][asked["id"]]
    assert kept.count(mark) == text.count(mark) + 1
    assert loaded.decode(kept, skip_special_tokens=False) == loaded.decode(text, skip_special_tokens=False)
    assert frame["text"][ended["id"]].count(eod) == 1  # at its end
    assert frame["text"][fine["id"]] == frame["refuse"][fine["id"]]


def test_a_dataset_of_an_earlier_release_may_hold_control_tokens_but_no_eod(
    template: Path, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks, "_refused", lambda *_: None)  # it knew no such option
    for number, (mark, checks) in enumerate(((EOT, set()), (EOD, {"eod"}))):
        asked = retain(1)
        asked["messages"] = [{**each, "content": f"what is {mark}?"} for each in asked["messages"][:1]]
        data = write_samples(tmp_path / f"{number}.jsonl", [retain(0), asked])
        result = make(data, template, tokenizer, tmp_path / str(number), valid_fraction=0.0)["retain"]
        assert {finding.check for finding in result.report.findings} == checks, result.report.findings
        if not checks:
            report = validate_dataset(result.root, family, source=data, deep=10)
            assert report.clean, report.findings


def documents_of(root: Path, sample: str) -> Any:
    """The tokens of a sample's document."""
    for table in root.glob("*/*_rows.parquet"):
        rows = pq.read_table(table).to_pylist()
        for row in rows:
            if row["sample_id"] == sample:
                return open_indexed(array_prefix(root, table.parent.name, 0, "tokens"))[row["sequence"]]
    raise AssertionError(sample)
