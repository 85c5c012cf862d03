"""`--longest N`: rows that make a longer document are left out, and nothing else changes.

The expected documents are those of a build without the option: they are the ones that have at most N tokens.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spanloom
from spanloom.errors import ConflictError, RejectedRowError
from spanloom.families.toolcalls.build import BuildOptions as ToolCallOptions
from spanloom.families.toolcalls.build import build as build_toolcalls
from spanloom.families.traces.export.lines import export_lines
from spanloom.families.traces.recipe import TokenizeRules
from spanloom.families.traces.store.manifest import read_manifest
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.token_build import TokenBuildOptions, build_tokens
from spanloom.provenance import sha256_json
from support.bytes_of_builds import CASES, Workshop
from support.nightly import nightly

Documents = dict[tuple[str, int, int], tuple[list[int], list[int]]]
"""Id, row and number in the row → tokens and mask."""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("longest"))


def documents(root: Path) -> Documents:
    held: Documents = {}
    for split in ("train", "valid"):
        for document in spanloom.open_dataset(root, split=split, allow_harmful=True):
            row = document.metadata
            held[(str(document.id), int(row["row"]), int(row.get("cut") or 0))] = (
                np.asarray(document.tokens).tolist(),
                np.asarray(document.loss_mask).tolist(),
            )
    return held


def expected(whole: Documents, longest: int) -> Documents:
    """The documents of rows all of whose documents are short enough."""
    long = {(row, key.split("#")[0]) for (key, row, _), (tokens, _) in whole.items() if len(tokens) > longest}
    return {key: value for key, value in whole.items() if (key[1], key[0].split("#")[0]) not in long}


def middle(whole: Documents) -> int:
    """A length that some documents exceed and others do not, and that one document has."""
    lengths = sorted(len(tokens) for tokens, _ in whole.values())
    return lengths[len(lengths) // 2]


def rejected(root: Path) -> dict[str, int]:
    content: dict[str, Any] = json.loads((root / "manifest.json").read_text())["content"]
    counts: dict[str, int] = content["totals"]["rejected"]
    return counts


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("synth_kd", {}),
        ("harmony_chat", {}),
        nightly("model_chat", {}),
        ("model_chat", {"model": "forgetful"}),
        nightly("model_chat", {"turns": "last"}),
    ],
)
def test_longer_documents_are_left_out(
    workshop: Workshop, family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    folder = workshop.folder / tmp_path.name
    build = getattr(workshop, f"_{family}")
    build(folder / "whole", **options)
    whole = documents(folder / "whole")
    longest = middle(whole)
    build(folder / "short", longest=longest, **options)
    short = documents(folder / "short")
    assert 0 < len(short) < len(whole)
    assert short == expected(whole, longest)
    rows = {(row, key.split("#")[0]) for key, row, _ in whole} - {(row, key.split("#")[0]) for key, row, _ in short}
    assert rejected(folder / "short") == {"too_long": len(rows)}
    config = json.loads((folder / "short/manifest.json").read_text())["content"]["config"]
    assert config["caps"]["longest"] == longest
    source = {"synth_kd": workshop.synth, "harmony_chat": workshop.harmony, "model_chat": workshop.conversations}
    report = spanloom.validate(folder / "short", source=source[family], deep=1000)
    assert report.clean, report.findings


def test_the_same_bytes_by_two_workers_and_after_a_stop(workshop: Workshop, tmp_path: Path) -> None:
    two = Workshop(tmp_path, workers=2)
    workshop._model_chat(tmp_path / "one", longest=120)
    two._model_chat(tmp_path / "two", longest=120)
    assert documents(tmp_path / "one") == documents(tmp_path / "two")
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one/train").rglob("*.bin"))
    assert files
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    again = spanloom.build(
        workshop.conversations,
        tmp_path / "one",
        model=workshop.small,
        longest=120,
        valid_fraction=0.3,
        reader="independent",
    )
    assert again.already_built
    with pytest.raises(ConflictError, match="other options"):
        workshop._model_chat(tmp_path / "one", longest=121)


def test_faults_are_still_limited(workshop: Workshop, tmp_path: Path) -> None:
    """Rows that are left out do not use up --max-rejects, and the error names the fault."""
    with pytest.raises(RejectedRowError, match="messages_json"):
        workshop._harmony_chat(tmp_path / "stops", source="harmony_faulty", longest=20, on_duplicate="keep")
    workshop._harmony_chat(tmp_path / "goes", source="harmony_faulty", longest=200, max_rejects=1, on_duplicate="keep")
    assert sum(rejected(tmp_path / "goes").values()) >= 2


def test_a_dataset_without_any_document_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(spanloom.SpanloomError, match="too_long"):
        workshop._model_chat(tmp_path / "none", longest=2)


@pytest.mark.parametrize(
    ("form", "max_rejects"),
    [
        ("tunix_sft", None),
        ("training_example", "0"),
        nightly("tunix_sft", "0"),
        nightly("training_example", None),
    ],
)
def test_traces(workshop: Workshop, tmp_path: Path, form: Any, max_rejects: str | None) -> None:
    store = open_store(default_url(workshop.traces))

    def build(out: Path, longest: int | None) -> Documents:
        options = TokenBuildOptions(
            root=workshop.traces,
            key="clean-1",
            tokenizer=CASES / "traces/fixtures/masks/tokenizer_gemmalike.json",
            out=out,
            rules=TokenizeRules(form=form, valid_fraction=0.2),
            longest=longest,
            max_rejects=max_rejects,
            reader="independent",
        )
        result = build_tokens(store, options)
        assert result.report.clean, result.report.findings
        return documents(out)

    whole = build(tmp_path / "whole", None)
    longest = middle(whole)
    short = build(tmp_path / "short", longest)
    store.close()
    assert 0 < len(short) < len(whole)
    assert short == expected(whole, longest)
    assert rejected(tmp_path / "short") == {"too_long": len(whole) - len(short)}
    assert spanloom.validate(tmp_path / "short").clean


def test_tool_calls(workshop: Workshop, tmp_path: Path) -> None:
    def build(out: Path, longest: int | None) -> dict[str, Documents]:
        options = ToolCallOptions(
            data=workshop.samples,
            template=workshop.toolcall_template,
            tokenizer=CASES / "toolcalls/fixtures/tokenizer_llamalike.json",
            out=out,
            longest=longest,
            reader="independent",
        )
        results = list(build_toolcalls(options))
        assert all(result.report.clean for result in results)
        return {result.root.name: documents(result.root) for result in results}

    whole = build(tmp_path / "whole", None)
    longest = max(map(middle, whole.values()))
    short = build(tmp_path / "short", longest)
    assert sum(map(len, short.values())) < sum(map(len, whole.values()))
    for split, held in whole.items():
        assert short[split] == expected(held, longest)
        left_out = len(held) - len(short[split])
        assert rejected(tmp_path / "short" / split).get("too_long", 0) == left_out
        report = spanloom.validate(tmp_path / "short" / split, source=workshop.samples, deep=100)
        assert report.clean, report.findings


@pytest.mark.parametrize("family", ["synth_kd", nightly("harmony_chat"), "model_chat"])
def test_rows_that_were_left_out_wrongly_are_found(workshop: Workshop, tmp_path: Path, family: str) -> None:
    """A manifest that claims another limit: then documents were short enough, or are too long."""
    sources = {"synth_kd": workshop.synth, "harmony_chat": workshop.harmony, "model_chat": workshop.conversations}
    getattr(workshop, f"_{family}")(tmp_path / "whole")
    longest = middle(documents(tmp_path / "whole"))
    root = tmp_path / "root"
    getattr(workshop, f"_{family}")(root, longest=longest)
    most = max(len(tokens) for tokens, _ in documents(root).values())
    for claimed, check, message in (
        (100_000, "rejects", "tokens at most" if family == "model_chat" else "nothing is wrong with it"),
        (most - 1, "manifest", f"longest is {most - 1}"),
        (None, "manifest", "the options have no longest"),
    ):
        claim(root, claimed)
        report = spanloom.validate(root, source=sources[family], deep=1000)
        assert [each for each in report.findings if each.check == check and message in each.message], report.findings


def claim(root: Path, longest: int | None) -> None:
    """Writes another limit into the manifest, with the hash of the options."""
    manifest = json.loads((root / "manifest.json").read_text())
    config = manifest["content"]["config"]
    options = config.get("caps", config)
    options.pop("longest", None)
    if longest is not None:
        options["longest"] = longest
    manifest["content"]["config_sha256"] = sha256_json(config)
    (root / "manifest.json").write_text(json.dumps(manifest))


def test_traces_that_were_left_out_wrongly_are_found(workshop: Workshop, tmp_path: Path) -> None:
    store = open_store(default_url(workshop.traces))
    options = TokenBuildOptions(
        root=workshop.traces,
        key="clean-1",
        tokenizer=CASES / "traces/fixtures/masks/tokenizer_gemmalike.json",
        out=tmp_path / "root",
        rules=TokenizeRules(form="tunix_sft", valid_fraction=0.2),
        longest=60,
        reader="independent",
    )
    build_tokens(store, options)
    ids = read_manifest(workshop.traces, "clean-1").ids
    export = tmp_path / "clean-1.tunix_sft.jsonl"
    with store.snapshot() as snapshot:
        export.write_bytes(b"".join(export_lines(snapshot, ids, "tunix_sft", TokenizeRules().options)))
    store.close()
    assert rejected(tmp_path / "root")["too_long"] > 0
    assert spanloom.validate(tmp_path / "root", source=export, deep=1000).clean
    claim(tmp_path / "root", 100_000)
    found = spanloom.validate(tmp_path / "root", source=export, deep=1000).findings
    assert [each for each in found if "longest allows them" in each.message], found
