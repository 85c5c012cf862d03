"""What packing records of its places."""

from pathlib import Path

from spanloom.building.steps import StepTask
from spanloom.families.chat.build import PackOptions, build_chat
from spanloom.families.chat.recipe import PackingRules
from spanloom.families.chat.steps import pack_chat
from support.chat_datasets import transcripts, write_transcripts


def test_the_manifest_names_the_asset_that_was_found_where_none_was_given(tmp_path: Path, asset: Path) -> None:
    source, rules = write_transcripts(tmp_path / "transcripts.jsonl", transcripts(12)), PackingRules(block_size=64)
    built = build_chat(
        PackOptions(transcripts=source, root=tmp_path / "built", tokenizer=None, rules=rules, workers=1, deep=0)
    )
    step = pack_chat.run(
        transcripts=str(source), root=str(tmp_path / "step"), rules=rules, task=StepTask(max_rejects=None)
    )
    for environment in (built.manifest.environment, step["environment"]):
        assert environment["source"] == str(source)
        assert environment["tokenizer"] == str(asset)
    assert step["content"] == built.manifest.content.as_dict()
