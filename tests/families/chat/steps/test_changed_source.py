"""Conversations and transcripts that somebody writes to while they are read stop what reads them; nothing is made."""

import json
from pathlib import Path

import pytest

from spanloom.building.options import RunOptions
from spanloom.errors import SourceError
from spanloom.families.chat import recipe
from spanloom.families.chat.recipe import PackingRules
from spanloom.families.chat.steps.generate_chat import PROGRESS_EVERY, GeneratorRules, generate_chat
from spanloom.families.chat.steps.pack_chat import pack_chat
from support.changed_files import change_in_place
from support.chat_datasets import transcript, write_tokenizer, write_transcripts

CHANGED = r"^the file was changed, replaced or touched while it was read\n  where: .*{}\n  remedy: run again"


def test_conversations_changed_while_they_are_read_give_no_transcripts(tmp_path: Path) -> None:
    source, out = tmp_path / "chats.jsonl", tmp_path / "transcripts.parquet"
    rows = [
        [{"role": "user", "content": f"Why {row}?"}, {"role": "assistant", "content": f"So {row}."}]
        for row in range(2 * PROGRESS_EVERY)
    ]
    source.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))

    def change(done: int, _: int) -> None:
        if done == PROGRESS_EVERY:
            change_in_place(source, b"So 999.", b"So ???.")

    with pytest.raises(SourceError, match=CHANGED.format(r"chats\.jsonl")):
        generate_chat(
            source=source,
            out=out,
            tokenizer=write_tokenizer(tmp_path / "tokenizer.json"),
            rules=GeneratorRules(),
            report=tmp_path / "report.json",
            on_progress=change,
        )
    assert {path.name for path in tmp_path.iterdir()} == {"chats.jsonl", "tokenizer.json"}


def test_transcripts_changed_while_they_are_packed_give_no_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "BATCH_RECORDS", 10)
    folder, root = tmp_path / "transcripts", tmp_path / "dataset"
    folder.mkdir()
    for name in ("a", "b"):
        write_transcripts(folder / f"{name}.jsonl", [transcript(2, seed=number) for number in range(40)])
    changed: list[int] = []

    def change(done: int, _: int) -> None:
        if not changed:
            change_in_place(folder / "b.jsonl", b"<|ASSISTANT|>", b"<|assistant|>")
            changed.append(done)

    with pytest.raises(SourceError, match=CHANGED.format(r"b\.jsonl")):
        pack_chat(
            transcripts=folder,
            root=root,
            tokenizer=write_tokenizer(tmp_path / "tokenizer.json"),
            rules=PackingRules(block_size=64, shards=2),
            work=tmp_path / "work",
            options=RunOptions(allow_unknown_sha=True),
            environment={},
            on_progress=change,
        )
    assert [path for path in root.rglob("*") if path.is_file()] == []
