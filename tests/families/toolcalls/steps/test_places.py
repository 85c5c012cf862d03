"""The pipeline over a bucket, step by step as its containers run it, gives what the commands give on one machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from families.toolcalls.conftest import fixtures, toolcall_cases, values  # noqa: F401  # fixtures of the folder above
from spanloom.building.steps import StepTask
from spanloom.dataset.fetch import fetch
from spanloom.errors import ConflictError
from spanloom.families import check_manifest, dataset_family
from spanloom.families.toolcalls.build import BuildOptions, build
from spanloom.families.toolcalls.convert.drafts import Options
from spanloom.families.toolcalls.convert.sources import convert
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.merge.merged import MergeOptions, lines_of_samples, merge
from spanloom.families.toolcalls.recipe import TokenizeRules
from spanloom.families.toolcalls.steps import (
    audit_toolcalls,
    convert_toolcalls,
    merge_toolcalls,
    tokenize_toolcalls,
    validate_toolcalls,
)
from spanloom.steps import validate_alignment
from spanloom.storage.publishing import Upload, publish_files
from spanloom.storage.staging import read_object
from support.nightly import nightly
from support.object_stores import Place
from support.toolcall_samples import CALL, write_samples

SYSTEM = "You have tools."
RULES = TokenizeRules(valid_fraction=0.3)
MERGE = MergeOptions(ratio=2, min_ratio=0.5, min_adversarial_safe=0, validate=True)


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    attacks = [
        {"record_id": f"r{n}", "combined_query": f"q{n}", "expected_tool": "read_file", "simulated_tool": "search_web"}
        for n in range(6)
    ]
    chats = [
        {"messages": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}!"}]}
        for n in range(9)
    ]
    return {
        "b4": write_samples(tmp_path / "in/b4.jsonl", attacks),
        "completions": write_samples(
            tmp_path / "in/completions.jsonl", [{"id": f"r{n}", "text": CALL} for n in range(6)]
        ),
        "ultrachat": write_samples(tmp_path / "in/ultrachat.jsonl", chats),
    }


@pytest.fixture
def template(fixtures: Path, tmp_path: Path) -> Path:  # noqa: F811
    path = tmp_path / "aware.jinja"
    path.write_text(values(fixtures / "templates.json")["templates"]["aware"])
    return path


@pytest.mark.parametrize("place", [nightly("gs"), "s3"], indirect=True)
def test_steps_over_a_bucket_make_what_the_commands_make(
    tmp_path: Path,
    place: Place,
    sources: dict[str, Path],
    template: Path,
    fixtures: Path,  # noqa: F811
) -> None:
    at = place.uri
    tokenizer = fixtures / "tokenizer_llamalike.json"
    held = {**sources, "template": template, "tokenizer": tokenizer}
    publish_files([Upload(path=path, uri=at / "in" / path.name) for path in held.values()])
    said = {name: str(at / "in" / path.name) for name, path in held.items()}
    samples, merged = str(at / "samples"), str(at / "merged.jsonl")
    options = Options(system=SYSTEM)
    for name in ("b4", "agentdojo", "ultrachat"):
        for _ in range(2):  # a retry
            made = convert_toolcalls.run(
                source=name,  # type: ignore[arg-type]
                place=said.get(name),
                out=samples,
                options=options,
                completions=said["completions"] if name == "b4" else None,
                report=str(at / f"{name}.json"),
            )
        assert made["given"] == (name != "agentdojo")
    assert json.loads(read_object(at / "b4.json") or b"")["written"] == {"harmful": 6, "retain": 0}
    report = validate_toolcalls.run(data_dir=samples, report=str(at / "report.json"), html=str(at / "report.html"))
    assert (validate_toolcalls.exit_code(report), report["total_samples"]) == (0, 15)
    for _ in range(2):
        merge_toolcalls.run(
            harmful_dir=f"{samples}/harmful", retain_dir=f"{samples}/retain", output=merged, options=MERGE
        )
    audited = audit_toolcalls.run(data=merged, template=said["template"], limit=0, report=str(at / "audit.json"))
    assert (audit_toolcalls.exit_code(audited), audited["samples"]) == (0, 15)
    made_here = here(tmp_path, sources, template, tokenizer, options)
    for split, local in made_here.items():
        root = str(at / "roots" / split)
        for _ in range(2):
            tokenize_toolcalls.run(
                data=merged,
                split=split,  # type: ignore[arg-type]
                root=root,
                template=said["template"],
                tokenizer=said["tokenizer"],
                rules=RULES,
                tokenizer_out=str(tmp_path / split / "tokenizer.json"),
                task=StepTask(max_rejects=None),
            )
        found = validate_alignment.run(
            root=root,
            family_of=dataset_family,
            source=merged,
            tokenizer=str(tmp_path / split / "tokenizer.json"),
            deep=100,
        )
        assert found.clean, found.as_dict()
        assert found.as_dict()["checked"]["samples rendered again"] == local.content.totals.rows_read
        brought = tmp_path / "brought" / split
        fetch(root, brought, check=check_manifest)
        assert json.loads((brought / "manifest.json").read_bytes())["content"] == local.content.as_dict()


def here(tmp_path: Path, sources: dict[str, Path], template: Path, tokenizer: Path, options: Options) -> dict[str, Any]:
    """The same by the functions of the commands, on this machine."""
    out = tmp_path / "here"
    convert("b4", sources["b4"], out, options, sources["completions"])
    convert("ultrachat", sources["ultrachat"], out, options)
    data = tmp_path / "merged.jsonl"
    data.write_bytes(lines_of_samples(merge(out / "harmful", out / "retain", MERGE).train))
    rules = BuildOptions(data=data, template=template, tokenizer=tokenizer, out=tmp_path / "roots", rules=RULES)
    return {one.root.name: one.manifest for one in build(rules)}


def test_other_bytes_are_a_conflict(tmp_path: Path, place: Place, sources: dict[str, Path]) -> None:
    out = str(place.uri / "samples")
    for system, fails in ((SYSTEM, False), ("Another.", True)):
        arguments: dict[str, Any] = {
            "source": "ultrachat",
            "place": str(sources["ultrachat"]),
            "out": out,
            "options": Options(system=system),
        }
        if fails:
            with pytest.raises(ConflictError, match="other bytes"):
                convert_toolcalls.run(**arguments)
        else:
            convert_toolcalls.run(**arguments)


def test_a_split_without_samples_stops_its_step(tmp_path: Path, template: Path, fixtures: Path) -> None:  # noqa: F811
    data = write_samples(tmp_path / "x.jsonl", [{"id": "x"}])
    with pytest.raises(ToolCallError, match="no harmful sample"):
        tokenize_toolcalls.run(
            data=str(data),
            split="harmful",
            root=str(tmp_path / "root"),
            template=str(template),
            tokenizer=str(fixtures / "tokenizer_llamalike.json"),
            rules=RULES,
            task=StepTask(max_rejects=None),
        )
