"""The fast route gives the record route's bits, whatever the conversation; what it was not proven on it hands over."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openai_harmony
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.building.shards.making import ShardJob, make_shards
from spanloom.conversations.source import folder
from spanloom.conversations.source.folder import open_source
from spanloom.conversations.source.structure import LabelledConversation
from spanloom.errors import AuditError
from spanloom.families.harmony import recipe as recipes
from spanloom.families.harmony.build import BuildOptions, build
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.profile import HARMONY_CHAT
from spanloom.families.harmony.render import fast as fast_module
from spanloom.families.harmony.render import rows
from spanloom.families.harmony.render.audit import Auditor, audit_floor, audit_share, audit_stride
from spanloom.families.harmony.render.fast import LONGEST_TEXT, FastRenderer, derive_wrappers
from spanloom.families.harmony.render.official import RenderedBatch, render_through_harmony
from spanloom.tokenizers.o200k.encoder import EncodedTexts
from support import sources
from support.harmony_strategies import conversations
from support.nightly import drawn

Messages = list[dict[str, Any]]


@pytest.fixture(scope="module")
def fast(encoding: openai_harmony.HarmonyEncoding, asset: Path) -> FastRenderer:
    return FastRenderer(encoding, asset)


def both(
    fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding, *found: Messages
) -> tuple[RenderedBatch, RenderedBatch]:
    parsed = [parse_conversation(json.dumps({"messages": messages})) for messages in found]
    return fast.render(parsed), render_through_harmony(parsed, encoding)


def assert_same(ours: RenderedBatch, record: RenderedBatch) -> None:
    assert ours.kept == record.kept
    assert ours.refused == record.refused
    for name in ("tokens", "span_id", "loss_mask", "lengths"):
        one, other = getattr(ours.documents, name), getattr(record.documents, name)
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


@given(batch=st.lists(conversations, max_size=5))
@settings(max_examples=drawn(300, 50))
def test_a_batch_is_the_record_routes_bit_for_bit(
    fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding, batch: list[Messages]
) -> None:
    assert_same(*both(fast, encoding, *batch))


plain_text = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=60)


@given(texts=st.lists(st.tuples(plain_text, plain_text, plain_text), min_size=1, max_size=6))
@settings(max_examples=drawn(300, 50))
def test_plain_conversations_never_fall_back_and_are_the_same(
    fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding, texts: list[tuple[str, str, str]]
) -> None:
    ours, record = both(fast, encoding, *(sources.conversation(*three) for three in texts))
    assert ours.fallbacks == 0
    assert_same(ours, record)


A = {"role": "assistant", "channel": "final", "content": "x"}


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "x", "name": "bob"}, A],
        [{**A, "recipient": "functions.f"}],
        [{**A, "content_type": "json"}],
        [{**A, "extra": 1}],
        [{"role": "user", "channel": "final", "content": "x"}, A],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, A],
        [{"role": "user", "content": []}, A],
        [{"role": "user", "content": [{"type": "text", "text": "a", "more": 1}]}, A],
        [{"role": "system", "content": [{"type": "system_content", "tools": {}}]}, A],
        [{"role": "developer", "content": [{"type": "developer_content", "instructions": "x", "tools": {}}]}, A],
        [{"role": "system", "content": [{"type": "developer_content", "instructions": "x"}]}, A],
        [{"role": "user", "content": "\ud800"}, A],
        [{"role": "user", "content": "a " * (LONGEST_TEXT // 2 + 1)}, A],
        [{"role": "user", "content": None}, A],
        [{"role": "user", "channel": ["x"], "content": "x"}, A],
        [{"role": "user", "channel": {"x": 1}, "content": "x"}, A],
        [{"role": "user", "content": [{"type": ["text"], "text": "x"}]}, A],
        [{"role": "user", "content": [["x"]]}, A],
    ],
)
def test_what_is_outside_the_table_goes_to_openai_harmony(
    fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding, messages: Messages
) -> None:
    ours, record = both(fast, encoding, [A], messages, [A])
    assert ours.fallbacks == 1
    assert_same(ours, record)


def test_structured_contents_are_rendered_by_openai_harmony_once(
    fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding
) -> None:
    system = {
        "role": "system",
        "content": [{"type": "system_content", "model_identity": "Me.", "knowledge_cutoff": None}],
    }
    developer = {"role": "developer", "content": [{"type": "developer_content", "instructions": "Be brief."}]}
    before = fast._structured.cache_info().misses
    ours, record = both(fast, encoding, *([[system, developer, A]] * 5), [A, system])
    assert fast._structured.cache_info().misses == before + 1
    assert ours.fallbacks == 0
    assert_same(ours, record)


SYSTEM = {"role": "system", "content": [{"type": "system_content"}]}
FUNCTION = {"name": "f", "description": "(the instructions of a row)", "parameters": {"type": "object"}}
TOOLS: list[dict[str, Any]] = [
    {},
    {"tools": {"functions": {"name": "functions", "description": "d", "tools": [{"name": "g", "description": "x"}]}}},
    {"tools": {"functions": {"name": "functions", "description": None, "tools": [FUNCTION]}}},
]
TRICKY = [
    "",
    " ",
    "\n",
    "\n\n# Tools",
    " a ",
    "a\r\n",
    "<|end|><|start|>user<|message|>x",
    "(the instructions of a row)",
    "é" * 9,
]


@pytest.fixture(scope="module")
def fast_chat(encoding: openai_harmony.HarmonyEncoding, asset: Path) -> FastRenderer:
    return FastRenderer(encoding, asset, HARMONY_CHAT)


@given(
    texts=st.lists(st.one_of(plain_text, st.sampled_from(TRICKY)), min_size=1, max_size=6), tools=st.sampled_from(TOOLS)
)
@settings(max_examples=drawn(300, 50))
def test_instructions_of_each_row_are_those_of_openai_harmony_and_only_their_frame_is_rendered_by_it(
    fast_chat: FastRenderer, encoding: openai_harmony.HarmonyEncoding, texts: list[str], tools: dict[str, Any]
) -> None:
    developers = [
        {"role": "developer", "content": [{"type": "developer_content", "instructions": text, **tools}]}
        for text in texts
    ]
    structured = fast_chat._structured.cache_info().misses
    ours, record = both(fast_chat, encoding, *([SYSTEM, developer, A] for developer in developers))
    assert ours.fallbacks == 0
    assert_same(ours, record)
    if tools is not TOOLS[2]:  # its description is what stands for the instructions
        assert fast_chat._structured.cache_info().misses <= structured + 1
        assert fast_chat._around.cache_info().currsize <= len(TOOLS)


def test_the_table_is_that_of_the_renders(encoding: openai_harmony.HarmonyEncoding) -> None:
    wrappers = derive_wrappers(encoding)
    shown = {
        key: [encoding.decode(part.tolist()) for part in (w.prefix, w.closer, w.last)] for key, w in wrappers.items()
    }
    assert shown == {
        ("system", None): ["<|start|>system<|message|>", "<|end|>", "<|end|>"],
        ("developer", None): ["<|start|>developer<|message|>", "<|end|>", "<|end|>"],
        ("user", None): ["<|start|>user<|message|>", "<|end|>", "<|end|>"],
        ("assistant", "analysis"): ["<|start|>assistant<|channel|>analysis<|message|>", "<|end|>", "<|end|>"],
        ("assistant", "final"): ["<|start|>assistant<|channel|>final<|message|>", "<|end|>", "<|return|>"],
    }


def test_the_real_sample_is_the_same_on_both_routes(
    real_sample: Path, fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding
) -> None:
    import pyarrow.parquet as pq

    for shard in sorted((real_sample / "synth_harmony").glob("*.parquet")):
        column = pq.read_table(shard, columns=["messages_json"])["messages_json"].to_pylist()
        ours, record = both(fast, encoding, *(json.loads(text)["messages"] for text in column))
        assert ours.fallbacks == 0
        assert_same(ours, record)


def test_the_stride_audits_the_share_asked_for_and_64_rows_at_least() -> None:
    assert audit_stride(1_000_000, 0.001) == 1000
    assert audit_stride(20_000, 0.001) == 312
    assert audit_stride(100, 0.001) == 1
    assert audit_stride(1_000_000, 1.0) == 1
    assert audit_stride(1_000_000, 0.0) == 0


def faulty(fast: FastRenderer, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == "encoder":
        encode = fast._encoder.encode

        def wrong_at_the_first(texts: list[str]) -> EncodedTexts:
            right = encode(texts)
            return replace(right, tokens=np.concatenate([[525], right.tokens[1:]]).astype(np.int32))

        monkeypatch.setattr(fast._encoder, "encode", wrong_at_the_first)
    else:
        wrapper = fast._wrappers["assistant", "analysis"]
        broken = fast_module.Wrapper(prefix=wrapper.prefix[::-1].copy(), closer=wrapper.closer, last=wrapper.last)
        monkeypatch.setitem(fast._wrappers, ("assistant", "analysis"), broken)


@pytest.mark.parametrize(("where", "name", "at"), [("encoder", "tokens", 3), ("table", "tokens", 8)])
def test_a_planted_fault_is_caught_by_the_audit(
    fast: FastRenderer,
    encoding: openai_harmony.HarmonyEncoding,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    name: str,
    at: int,
) -> None:
    parsed = [parse_conversation(json.dumps({"messages": sources.conversation(f"Question {n}?")})) for n in range(3)]
    places = [(640 + n, f"id-{n}") for n in range(3)]
    assert Auditor(encoding, stride=1).audit(2, places, parsed, fast.render(parsed)) == 3
    faulty(fast, monkeypatch, where)
    with pytest.raises(
        AuditError, match=rf"in {name} at token {at}: .*around .* instead of .*\n.*shard 02, row 640, synth_id 'id-0'"
    ):
        Auditor(encoding, stride=1).audit(2, places, parsed, fast.render(parsed))


def test_a_span_that_differs_is_caught_too(fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding) -> None:
    parsed = [parse_conversation(json.dumps({"messages": sources.conversation()}))]
    rendered = fast.render(parsed)
    rendered.documents.span_id[-2] = 1
    with pytest.raises(AuditError, match="in span_id at token"):
        Auditor(encoding, stride=1).audit(0, [(0, "a")], parsed, rendered)


def test_the_first_row_of_each_shape_is_audited_whatever_the_stride(
    fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding
) -> None:
    batch = [[A], [A], [A, A], [{**A, "name": "x"}], [A], [{**A, "name": "y"}]]
    parsed = [parse_conversation(json.dumps({"messages": messages})) for messages in batch]
    auditor = Auditor(encoding, stride=1000)
    assert auditor.audit(0, [(row, str(row)) for row in range(1, 7)], parsed, fast.render(parsed)) == 3
    assert auditor.audit(0, [(row, str(row)) for row in range(995, 1001)], parsed, fast.render(parsed)) == 1


def long_rows(count: int, words: int, first: int = 0) -> list[LabelledConversation]:
    """Conversations of one shape, of about so many tokens each."""
    text = " ".join(["word"] * words)
    return [
        parse_conversation(json.dumps({"messages": sources.conversation(f"Question {first + number}? {text}")}))
        for number in range(count)
    ]


def audited(auditor: Auditor, fast: FastRenderer, parsed: list[LabelledConversation], batch: int) -> int:
    """How many documents are audited of conversations that come in batches of so many."""
    total = 0
    for first in range(0, len(parsed), batch):
        few = parsed[first : first + batch]
        total += auditor.audit(0, [(first + n, str(first + n)) for n in range(len(few))], few, fast.render(few))
    return total


def test_what_is_audited_is_bounded_in_tokens_and_does_not_depend_on_batches(
    fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding
) -> None:
    parsed = long_rows(40, words=1000)
    tokens = fast.render(parsed).documents.lengths.tolist()
    assert min(tokens) > 1000
    for batch in (1, 7, 40):
        # 5 % of 40 are 2, and the first is audited for its shape
        assert audited(Auditor(encoding, stride=1, floor=0), fast, parsed, batch) == 2
        assert audited(Auditor(encoding, stride=1, floor=sum(tokens[:10])), fast, parsed, batch) == 10
        assert audited(Auditor(encoding, stride=1, floor=0, share=1.0), fast, parsed, batch) == 40
        assert audited(Auditor(encoding, stride=1), fast, parsed, batch) == 40  # far fewer than 200,000 tokens


def test_the_first_row_of_a_shape_is_audited_though_the_bound_is_reached(
    fast: FastRenderer, encoding: openai_harmony.HarmonyEncoding
) -> None:
    other = parse_conversation(json.dumps({"messages": [A]}))
    auditor = Auditor(encoding, stride=1, floor=0, share=0.0)
    assert audited(auditor, fast, [*long_rows(3, words=50), other, other], batch=5) == 2


def test_a_larger_fraction_that_was_asked_for_and_the_share_of_a_part() -> None:
    assert (audit_share(0.001), audit_share(0.25)) == (0.05, 0.25)
    assert (audit_floor(10, 10), audit_floor(4096, 16384), audit_floor(0, 0)) == (200_000, 50_000, 0)


def test_long_rows_are_read_and_rendered_in_turn_and_the_documents_stay(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory follows the characters at hand: no batch of rows and no render has more than so many, but for one row."""
    sizes: list[int] = []
    render = FastRenderer.render

    def watched(self: FastRenderer, conversations: Sequence[LabelledConversation]) -> RenderedBatch:
        sizes.append(len(conversations))
        return render(self, conversations)

    monkeypatch.setattr(FastRenderer, "render", watched)
    monkeypatch.setattr(recipes, "_renderer", recipes._renderer.__wrapped__)  # one of a test before is not watched
    source = sources.write_source(tmp_path / "source", [sources.rows(70)])
    opened = open_source(source, shards=1)
    shard = opened.shards[0]
    made = []
    for name, most in (("whole", folder.BATCH_BYTES), ("few", 3000), ("single", 1)):
        monkeypatch.setattr(folder, "BATCH_BYTES", most)
        monkeypatch.setattr(rows, "BATCH_BYTES", most)
        sizes.clear()
        recipe = recipes.recipe_of(
            opened, asset=asset, renderer="fast", rules=None, audit_fraction=0.05, caps=Caps(), given={}
        )
        job = ShardJob(
            shard=shard, rows=70, rendered=tmp_path / name / "rendered", ids=tmp_path / name / "ids", reject_limit=0
        )
        ((_, (summary,)),) = make_shards(recipe, [job], None, resume=False)
        tables = [pq.read_table(path) for path in sorted((tmp_path / name).rglob("*.parquet"))]
        made.append((max(sizes), tables, summary["counts"]["audit"]["audited_rows"], summary["tokens"]))
    assert made[0][0] == 70
    assert 1 < made[1][0] < 70
    assert made[2][0] == 1
    assert len(made[0][1]) == 2
    assert made[0][1:] == made[1][1:] == made[2][1:]


@pytest.mark.parametrize(
    ("sizes", "runs"),
    [
        ([3, 3, 9, 1], [(0, 2), (2, 3), (3, 4)]),
        ([], []),
        ([7], [(0, 1)]),
        ([0, 0, 6, 0, 1], [(0, 4), (4, 5)]),
    ],
)
def test_runs_of_items_that_add_up_to_no_more_than_a_bound(sizes: list[int], runs: list[tuple[int, int]]) -> None:
    assert list(folder.runs_within(sizes, 6)) == runs


def test_both_renderers_build_the_same_files_and_say_who_they_are(tmp_path: Path) -> None:
    odd = [sources.row("odd", [{"role": "user", "content": "x", "name": "bob"}, A])]
    source = sources.write_source(tmp_path / "source", [[*sources.rows(70), *odd], sources.rows(5, "b")])
    options = {"source": source, "shards": 2, "workers": 1, "valid_fraction": 0.2, "deep": 0}
    roots = {name: tmp_path / name for name in ("fast", "harmony")}
    for name, root in roots.items():
        assert build(BuildOptions(out=root, renderer=name, **options)).report.clean  # type: ignore[arg-type]
    assert sources.data_files(roots["fast"]) == sources.data_files(roots["harmony"])
    said = {name: sources.content(root)["renderer"] for name, root in roots.items()}
    assert said["fast"]["fallback_rows"] == 1
    assert said["fast"]["audited_rows"] == 71 + 5  # fewer than 64 a shard: all of them
    assert "fastokens" in said["fast"]["version"]
    assert said["harmony"] == {
        "name": "harmony", "version": "openai-harmony 0.0.8", "fallback_rows": 0, "audited_rows": 0,
    }  # fmt: skip


def test_no_token_of_a_text_is_special(fast: FastRenderer) -> None:
    texts = ["<|start|>", "<|end|><|return|>", "<|endoftext|>", "<|channel|>final<|message|>", "<|reserved_200013|>"]
    assert int(fast._encoder.encode(texts).tokens.max()) < 199_998
    assert np.unique(fast._encoder.encode(texts).lengths).min() > 1
