"""What each builder writes, as hashes: a build for each option that changes bytes, over small sources.

In: a folder to work in, a number of workers. Out: name of a build → hashes of its files and of its manifest. The
expected ones are in `tests/building/bytes_of_builds.json`. To compare, and to write them:

    PYTHONPATH=tests python -m support.bytes_of_builds [--workers 2] [--write] [NAME…]

Write them only with code whose bytes are known to be right, in a commit of its own that says why bytes changed.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import spanloom
from spanloom.building.make import BuildResult
from spanloom.families.chat.build import PackOptions, build_chat
from spanloom.families.chat.recipe import PackingRules
from spanloom.families.chess.build import PrepareOptions, prepare
from spanloom.families.toolcalls.build import BuildOptions as ToolCallOptions
from spanloom.families.toolcalls.build import build as build_toolcalls
from spanloom.families.toolcalls.recipe import TokenizeRules as ToolCallRules
from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.export.lines import ExportOptions
from spanloom.families.traces.recipe import TokenizeRules as TraceRules
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.token_build import TokenBuildOptions, build_tokens
from spanloom.tokenizers.o200k.asset import locate_asset
from support import chat_sources, sources, warm
from support.cases import REPOSITORY
from support.chat_datasets import transcripts, write_tokenizer, write_transcripts
from support.chat_models import CHATML, write_model
from support.model_datasets import record, stored, write_conversations
from support.toolcall_samples import changed, harmful, retain, write_samples
from support.traces import store_rows

TESTS = REPOSITORY / "tests"
EXPECTED = TESTS / "building/bytes_of_builds.json"
FROZEN, CASES = TESTS / "frozen", TESTS / "cases"
NOT_DATA = {"manifest.json", "README.md", "report.json", "report.html"}
"""Files at a root that hold times and places, or are made of these."""

Options = dict[str, Any]
Built = dict[str, dict[str, str]]
"""`files`: path below the root → sha256; `content`: key of the manifest's content → sha256 of its canonical JSON."""

SYNTH_KD: dict[str, Options] = {
    "plain": {},
    "harmony_renderer": {"renderer": "harmony"},
    "max_rows": {"max_rows": 11},
    "max_rows_per_shard": {"max_rows_per_shard": 3},
    "max_tokens": {"max_tokens": 1500},
    "rejects": {"source": "synth_faulty", "max_rejects": 3, "on_duplicate": "keep"},
    "duplicates": {"source": "synth_duplicates", "on_duplicate": "keep"},
    "parts": {"source": "synth_parts"},
    "no_valid": {"valid_fraction": 0},
}
HARMONY_CHAT: dict[str, Options] = {
    "plain": {},
    "history_keep": {"history": "keep"},
    "history_openai_harmony": {"history": "openai-harmony"},
    "train_final": {"train": "final"},
    "calls_as_served": {"call_format": "as-served"},
    "calls_json": {"call_format": "json"},
    "turns_last": {"turns": "last"},
    "mask_generation_prompt": {"mask_generation_prompt": True},
    "max_rows": {"max_rows": 7},
    "max_tokens": {"max_tokens": 3000},
    "rejects": {"source": "harmony_faulty", "max_rejects": "50%", "on_duplicate": "keep"},
    "conversations": {"source": "conversations"},
    "conversations_keep_last_final": {
        "source": "conversations",
        "history": "keep",
        "turns": "last",
        "train": "final,commentary",
    },
}
MODEL_CHAT: dict[str, Options] = {
    "plain": {},
    "forgetful": {"model": "forgetful"},
    "max_rows": {"max_rows": 9},
    "max_rows_per_shard": {"max_rows_per_shard": 5},
    "rejects": {"source": "conversations_faulty", "max_rejects": "50%", "on_duplicate": "keep"},
    "controls_as_served": {
        "source": "conversations_faulty",
        "max_rejects": "50%",
        "on_duplicate": "keep",
        "control_texts": "as-served",
    },
    "controls_as_text": {
        "source": "conversations_faulty",
        "max_rejects": "50%",
        "on_duplicate": "keep",
        "control_texts": "text",
    },
    "train_final": {"train": "final", "max_rejects": "100%"},
    "inline_think": {"model": "without_reasoning", "inline_think": True},
    "boundary_refuse": {"boundary": "refuse", "max_rejects": "100%"},
    "harmony_source": {"source": "harmony", "model": "forgetful", "max_rejects": "100%"},
}
PACKED_CHAT: dict[str, Options] = {
    "plain": {"post_training": False},
    "plain_pad_tail": {"post_training": False, "pad_tail": True},
    "post_training": {"post_training": True},
    "post_training_pad_tail": {"post_training": True, "pad_tail": True, "shards": 1},
    "strict_user": {"post_training": True, "strict_user": True, "keep_lossless": False},
    "skip": {"post_training": True, "on_error": "skip", "source": "transcripts_faulty"},
    "asset": {"post_training": True, "block_size": 128, "source": "transcripts_frozen", "tokenizer": None},
    "text_file": {"post_training": True, "records": "eos", "source": "transcripts_text"},
}
TRACES: dict[str, Options] = {
    "tunix_sft": {"form": "tunix_sft"},
    "training_example": {"form": "training_example"},
    "control_tokens_text": {"form": "tunix_sft", "key": "all-1", "export": {"control_tokens": "text"}},
    "control_tokens_verbatim": {
        "form": "training_example",
        "key": "open-1",
        "export": {"control_tokens": "verbatim"},
    },
    "weight": {"form": "tunix_sft", "weight": "reward"},
    "system_sorted": {"form": "tunix_sft", "export": {"system": "Be brief.", "sort_steps": True}},
}
TOOL_CALLS: dict[str, Options] = {
    "answer": {"spans": "answer"},
    "parts": {"spans": "parts"},
    "controls_as_served": {"control_texts": "as-served"},
    "controls_as_text": {"control_texts": "text", "spans": "parts"},
    "max_length": {"max_length": 720},
}
CHESS: dict[str, Options] = {
    "games": {"thinking": None},
    "games_and_thinking": {},
    "thinking_alone": {"games": None},
    "rejects": {"games": "games_faulty", "thinking": "thinking_faulty"},
    "no_valid": {"valid_fraction": 0.0},
}


@dataclass(frozen=True)
class Workshop:
    """Makes sources, each once, below `folder`, and builds of them with so many workers."""

    folder: Path
    workers: int = 1
    trace_tokenizer: Path = CASES / "traces/fixtures/masks/tokenizer_gemmalike.json"
    toolcall_tokenizer: Path = CASES / "toolcalls/fixtures/tokenizer_llamalike.json"

    @cached_property
    def synth(self) -> Path:
        return FROZEN / "synth_harmony"

    @cached_property
    def synth_faulty(self) -> Path:
        shards = [sources.rows(count, f"s{shard}") for shard, count in enumerate((8, 5, 4, 3))]
        for shard, row, text in ((0, 2, "{"), (0, 5, '{"messages": []}'), (2, 1, "7"), (3, 0, "{}")):
            shards[shard][row]["messages_json"] = text
        shards[1][3]["synth_id"] = None
        return sources.write_source(self.folder / "synth_faulty", shards)

    @cached_property
    def synth_duplicates(self) -> Path:
        shards = [sources.rows(6, "a"), sources.rows(4, "b"), sources.rows(4, "a")]
        return sources.write_source(self.folder / "synth_duplicates", shards)

    @cached_property
    def synth_parts(self) -> Path:
        """Two parts in the first shard, a shard without rows, two short ones."""

        def tiny(name: str) -> sources.Row:
            return sources.row(name, sources.conversation("Why?", None, f"So it is {name}."))

        shards = [[tiny(f"{shard}-{row}") for row in range(count)] for shard, count in enumerate((4100, 0, 12, 5))]
        return sources.write_source(self.folder / "synth_parts", shards)

    @cached_property
    def harmony(self) -> Path:
        return FROZEN / "harmony_conversations"

    @cached_property
    def harmony_faulty(self) -> Path:
        shards = [chat_sources.rows(6, "a"), chat_sources.rows(4, "b"), chat_sources.rows(3, "a")]
        shards[0][1]["messages_json"] = "{"
        shards[1][2]["messages_json"] = json.dumps({"messages": [chat_sources.user("And then?")]})
        return chat_sources.write_source(self.folder / "harmony_faulty", shards)

    @cached_property
    def conversations(self) -> Path:
        rows = [stored(record(seed)) for seed in range(30)]
        return write_conversations(self.folder / "conversations", [rows[:18], rows[18:]])

    @cached_property
    def conversations_faulty(self) -> Path:
        """A control token in a question, one in an answer, no JSON, an id that is there twice."""

        def asked(name: str, question: str, answer: str) -> dict[str, str]:
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            return stored({"id": name, "messages": messages})

        rows = [stored(record(seed)) for seed in range(6)]
        faulty = [
            asked("asks", "What is <|end|> for?", "It ends a turn."),
            asked("answers", "Which?", "It is <|end|>."),
            {**rows[0], "id": "broken", "messages_json": "{"},
            rows[1],
        ]
        return write_conversations(self.folder / "conversations_faulty", [rows[:4], [*rows[4:], *faulty]])

    @cached_property
    def small(self) -> Path:
        return write_model(self.folder / "small", CHATML)

    @cached_property
    def forgetful(self) -> Path:
        """Several documents a conversation."""
        when = "{% if m.reasoning_content %}"
        return write_model(self.folder / "forgetful", CHATML.replace(when, when[:-2] + "and loop.last %}"))

    @cached_property
    def without_reasoning(self) -> Path:
        begin, end = CHATML.index("{% if m.reasoning_content %}"), CHATML.index("{{ m.content or '' }}")
        return write_model(self.folder / "without_reasoning", CHATML[:begin] + CHATML[end:])

    @cached_property
    def transcripts(self) -> Path:
        return write_transcripts(self.folder / "transcripts.jsonl", transcripts(60))

    @cached_property
    def transcripts_frozen(self) -> Path:
        return FROZEN / "transcripts.jsonl"

    @cached_property
    def transcripts_faulty(self) -> Path:
        texts = [*transcripts(12), None, "no markers at all", "<|USER|>alone<|END|>", *transcripts(5)]
        return write_transcripts(self.folder / "transcripts_faulty.jsonl", texts)

    @cached_property
    def transcripts_text(self) -> Path:
        path = self.folder / "transcripts.txt"
        path.write_text("<|EOS|>".join(transcripts(20)))
        return path

    @cached_property
    def chat_tokenizer(self) -> Path:
        return write_tokenizer(self.folder / "chat_tokenizer.json")

    @cached_property
    def traces(self) -> Path:
        """A store with three datasets: `all-1`, `open-1` without the EOD, `clean-1` without control strings and with a
        reward for each."""
        root = self.folder / "traces"
        rows = [json.loads(line) for line in (CASES / "traces/fixtures/rows.jsonl").read_bytes().splitlines()]
        for number, row in enumerate(rows):
            meta = {**(row["payload"]["meta"] or {}), "place": number}
            text = json.dumps(row["payload"])
            if "<eos>" not in text:
                meta["open"] = 1
            if "<" not in text:
                meta["reward"] = number / 8
            row["payload"]["meta"] = meta
        store = open_store(default_url(root), create=True)
        store_rows(store, rows)
        for name, where in (("all", "place >= 0"), ("open", "open >= 1"), ("clean", "reward >= 0")):
            request = BuildRequest(dataset_name=name, dataset_version="1", limit=10_000, where=[where])
            build_dataset(store, root, request, reproducible=True)
        store.close()
        return root

    @cached_property
    def samples(self) -> Path:
        retained = [retain(number) for number in range(12)]
        retained[3] = changed(retained[3], "training.sample_weight", 2.5)
        for number, text in ((4, "Is <|eot_id|> text?"), (5, "Is <|end_of_text|> text?"), (6, "word " * 400)):
            retained[number]["messages"][1]["content"] = text
        retained[7]["messages"].append({"role": "assistant", "content": None, "tool_calls": [{}]})
        wanted = [harmful(number) for number in range(10)]
        wanted[9]["messages"][1]["content"] += " Please." * 40
        return write_samples(self.folder / "samples.jsonl", [*wanted, *retained])

    @cached_property
    def toolcall_template(self) -> Path:
        path = self.folder / "aware.jinja"
        path.write_text(json.loads((CASES / "toolcalls/fixtures/templates.json").read_bytes())["templates"]["aware"])
        return path

    @cached_property
    def games(self) -> Path:
        return FROZEN / "chess_source/games"

    @cached_property
    def thinking(self) -> Path:
        return FROZEN / "chess_source/thinking"

    @cached_property
    def games_faulty(self) -> Path:
        """The middle file's first game has a move that is none."""
        return self._with_fault(self.games, "games_faulty", 1, "played_move", "zz99")

    @cached_property
    def thinking_faulty(self) -> Path:
        return self._with_fault(self.thinking, "thinking_faulty", 0, "variations", "{")

    def _with_fault(self, folder: Path, name: str, file: int, column: str, value: str) -> Path:
        """A copy of the Parquet files; the first value of a column is another in one of them."""
        made = self.folder / name
        made.mkdir()
        for number, path in enumerate(sorted(folder.glob("*.parquet"))):
            table = pq.read_table(path)
            if number == file:
                at = table.schema.get_field_index(column)
                values = pa.array([value, *table.column(column).to_pylist()[1:]], table.schema.field(at).type)
                table = table.set_column(at, table.schema.field(at), values)
            pq.write_table(table, made / path.name)
        return made

    def build(self, family: str, name: str, **more: Any) -> Path:
        """Builds it into a new folder, with a clean validation, and returns the folder. `more`: other options."""
        out = self.folder / "built" / family / name
        getattr(self, f"_{family}")(out, **FAMILIES[family][name], **more)
        return out

    def _synth_kd(self, out: Path, *, source: str = "synth", **options: Any) -> None:
        self._harmony_chat(out, source=source, **options)

    def _harmony_chat(self, out: Path, *, source: str = "harmony", **options: Any) -> None:
        folder = getattr(self, source)
        shards = len(list(folder.glob("*.parquet")))
        options = {"valid_fraction": 0.3, **options}
        spanloom.build(folder, out, shards=shards, workers=self.workers, reader="independent", **options)

    def _model_chat(self, out: Path, *, source: str = "conversations", model: str = "small", **options: Any) -> None:
        self._harmony_chat(out, source=source, model=getattr(self, model), **options)

    def _packed_chat(
        self, out: Path, *, source: str = "transcripts", tokenizer: str | None = "chat_tokenizer", **options: Any
    ) -> None:
        rules = _rules_of(options, PackingRules, block_size=64, shards=2)
        _check(
            self.pack(
                out,
                rules,
                transcripts=getattr(self, source),
                tokenizer=tokenizer and getattr(self, tokenizer),
                workers=self.workers,
                **options,
            )
        )

    def pack(self, out: Path, rules: PackingRules, **options: Any) -> BuildResult:
        given = {"transcripts": self.transcripts, "tokenizer": self.chat_tokenizer, "reader": "independent", **options}
        return build_chat(PackOptions(root=out, rules=rules, **given))

    def _reasoning_traces(self, out: Path, *, export: Mapping[str, Any] | None = None, **options: Any) -> None:
        if export is not None:
            options["options"] = ExportOptions(**export)
        _check(self.tokenize(out, _rules_of(options, TraceRules, valid_fraction=0.2), **options))

    def tokenize(self, out: Path, rules: TraceRules, *, key: str = "clean-1", **options: Any) -> BuildResult:
        with closing(open_store(default_url(self.traces))) as store:
            given = {"root": self.traces, "key": key, "tokenizer": self.trace_tokenizer, "reader": "independent"}
            return build_tokens(store, TokenBuildOptions(out=out, rules=rules, **given, **options))

    def _tool_calls(self, out: Path, **options: Any) -> None:
        results = self.mask(out, _rules_of(options, ToolCallRules, valid_fraction=0.3), **options)
        assert len(results) == 2
        for result in results:
            _check(result)

    def mask(self, out: Path, rules: ToolCallRules, *, data: Path | None = None, **options: Any) -> list[BuildResult]:
        files = {"template": self.toolcall_template, "tokenizer": self.toolcall_tokenizer, "reader": "independent"}
        return list(
            build_toolcalls(ToolCallOptions(data=data or self.samples, out=out, rules=rules, **files, **options))
        )

    def _chess(
        self, out: Path, *, games: str | None = "games", thinking: str | None = "thinking", **options: Any
    ) -> None:
        folders = {
            "games": None if games is None else getattr(self, games),
            "thinking": None if thinking is None else getattr(self, thinking),
        }
        _check(prepare(PrepareOptions(root=out, workers=self.workers, **{"valid_fraction": 0.4, **folders, **options})))


def _rules_of(options: Options, kind: Any, **defaults: Any) -> Any:
    """The rules among options, which are taken out."""
    return kind(**defaults | {name: options.pop(name) for name in [*options] if name in kind.__dataclass_fields__})


def _check(result: Any) -> None:
    assert result.report.clean, result.report.findings


FAMILIES: dict[str, dict[str, Options]] = {
    "synth_kd": SYNTH_KD,
    "harmony_chat": HARMONY_CHAT,
    "model_chat": MODEL_CHAT,
    "packed_chat": PACKED_CHAT,
    "reasoning_traces": TRACES,
    "tool_calls": TOOL_CALLS,
    "chess": CHESS,
}
NAMES = tuple(f"{family}/{name}" for family, builds in FAMILIES.items() for name in builds)


def written(workshop: Workshop, name: str) -> dict[str, Built]:
    """Builds it. Returns folder below its output, "." where the output is the root → what is there."""
    out = workshop.build(*name.split("/"))
    roots = sorted(path.parent for path in out.rglob("manifest.json"))
    return {root.relative_to(out).as_posix(): built(root) for root in roots}


def built(root: Path) -> Built:
    """What lies below a root."""
    files = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*")) if path.is_file()}
    content = json.loads((root / "manifest.json").read_bytes())["content"]
    del content["git_sha"]  # differs in every commit
    return {
        "files": {name: _sha256(path.read_bytes()) for name, path in files.items() if name not in NOT_DATA},
        "content": {key: _sha256(_canonical(value)) for key, value in sorted(content.items())},
    }


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def differences(made: Mapping[str, Built], expected: Mapping[str, Built]) -> Iterator[str]:
    """A line for each difference: a root, a file, or a key of the manifest's content."""
    for root in sorted({*made, *expected}):
        if root not in made or root not in expected:
            yield f"root {root}: {'new' if root in made else 'missing'}"
            continue
        for kind, what in (("files", "file"), ("content", "manifest, content")):
            ours, theirs = made[root][kind], expected[root][kind]
            for name in sorted({*ours, *theirs}):
                if ours.get(name) != theirs.get(name):
                    how = "new" if name not in theirs else "missing" if name not in ours else "other bytes"
                    yield f"root {root}: {what} {name}: {how}"


def read_expected() -> dict[str, dict[str, Built]]:
    expected: dict[str, dict[str, Built]] = json.loads(EXPECTED.read_bytes())
    return expected


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="support.bytes_of_builds", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="builds, such as chess/games; default: all")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write the expected hashes instead of comparing")
    given = parser.parse_args(arguments)
    os.environ["SPANLOOM_GIT_SHA"] = "0" * 40
    asset = locate_asset()
    os.environ[warm.ASSET] = str((asset if asset.is_file() else REPOSITORY / asset).resolve())
    warm.fork_workers(os.environ[warm.ASSET])
    expected = read_expected() if EXPECTED.exists() else {}
    changed = 0
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder), given.workers)
        for name in given.names or NAMES:
            made = written(workshop, name)
            lines = list(differences(made, expected.get(name, {})))
            changed += bool(lines)
            print(*(f"{name}: {line}" for line in lines), sep="\n", end="\n" if lines else "")
            expected[name] = made
    if given.write:
        kept = {name: expected[name] for name in NAMES}
        EXPECTED.write_text(json.dumps(kept, indent=1) + "\n")
    return 1 if changed and not given.write else 0


if __name__ == "__main__":
    sys.exit(main())
