"""Rendering, audit, masks and training files: the given cases, and any messages in any template that is fair."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families.toolcalls.conftest import Run, values
from spanloom.errors import SpanloomError
from spanloom.families.toolcalls.audit import audit_sample
from spanloom.families.toolcalls.format.control import CONTROL_STRINGS, END_TOKENS
from spanloom.families.toolcalls.format.rendering import (
    Render,
    answer_span,
    check_version,
    load_template,
    render_sample,
    rendered_by_tokenizer,
)
from spanloom.families.toolcalls.format.tools import load_registries
from spanloom.families.toolcalls.tokens.masks import Left, Masked, masked_samples
from spanloom.families.toolcalls.tokens.tokenizer import load_tokenizer
from spanloom.families.toolcalls.tokens.training_files import flat_row
from spanloom.tokenizers.chat_template import ChatTemplate
from spanloom.tokenizers.encoding import JsonTokenizer
from spanloom.tokenizers.rendering.process import TemplateLimitError
from support.cases import lines
from support.nightly import drawn
from support.toolcall_samples import CALL, harmful, retain, write_samples

REGISTRIES = load_registries()
HEADER = "<|start_header_id|>{}<|end_header_id|>\n\n"
FAIR = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' }}"
    "{{ m['content'] }}{% if not m['content'].endswith(('<|eot_id|>', '<|eom_id|>')) %}{{ '<|eot_id|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)


@pytest.fixture(scope="session")
def templates(fixtures: Path) -> dict[str, Render]:
    given_templates = values(fixtures / "templates.json")
    special = {"bos_token": given_templates["bos_token"]}
    return {
        name: ChatTemplate(text, special_tokens=special).render for name, text in given_templates["templates"].items()
    }


@pytest.fixture(scope="session")
def tokenizer(fixtures: Path) -> JsonTokenizer:
    return load_tokenizer(fixtures / "tokenizer_llamalike.json")


@pytest.fixture
def aware(fixtures: Path, tmp_path: Path) -> Path:
    path = tmp_path / "aware.jinja"
    path.write_text(values(fixtures / "templates.json")["templates"]["aware"])
    return path


def one_masked(sample: Any, render: Render, tokenizer: JsonTokenizer, **options: Any) -> Masked | Left:
    (one,) = masked_samples([sample], render, tokenizer, REGISTRIES, **options)
    return one


NUMBERS = ("char_start", "char_end", "loss_mask_start", "loss_mask_end", "n_tokens")


def numbers(one: Masked | Left) -> tuple[int, ...] | None:
    return (one.span.start, one.span.end, one.start, one.end, len(one.ids)) if isinstance(one, Masked) else None


def test_every_given_audit(fixtures: Path, templates: dict[str, Render], tokenizer: JsonTokenizer) -> None:
    cases = values(fixtures / "template_audit.json")
    assert cases
    for case in cases:
        render = templates[case["template"]]
        audited = audit_sample(case["sample"], render, REGISTRIES)
        order = lambda found: json.dumps(found, sort_keys=True)  # noqa: E731
        assert sorted(audited.findings, key=order) == sorted(case["findings"], key=order), case["case"]
        assert (audited.rendered.full if audited.rendered else None) == case.get("rendered"), case["case"]
        wanted = tuple(case[name] for name in NUMBERS) if case.get("char_start") is not None else None
        assert numbers(one_masked(case["sample"], render, tokenizer)) == wanted, case["case"]


def test_every_given_mask(fixtures: Path, templates: dict[str, Render], tokenizer: JsonTokenizer) -> None:
    samples = {case["case"]: case["sample"] for case in lines(fixtures / "samples.jsonl")}
    cases = values(fixtures / "loss_masks.json")
    assert cases
    for case in cases:
        one = one_masked(samples[case["case"]], templates[case["template"]], tokenizer)
        assert numbers(one) == tuple(case[name] for name in NUMBERS), case["case"]
        assert isinstance(one, Masked)
        assert hashlib.sha256(one.text.encode()).hexdigest() == case["rendered_sha256"]


def given_samples(fixtures: Path) -> list[Any]:
    """All samples of the cases by id, also those that stand in the folders of the reports alone."""
    found = [case["sample"] for case in lines(fixtures / "samples.jsonl")]
    for path in sorted((fixtures / "dirs/clean").rglob("*.jsonl")):
        found += [json.loads(line) for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    return [*{sample["id"]: sample for sample in found if isinstance(sample.get("id"), str)}.values()]


def test_every_given_row(fixtures: Path, run: Run, aware: Path, tmp_path: Path) -> None:
    wanted = {row["id"]: row for row in lines(fixtures / "training_flat.jsonl")}
    assert wanted == {row["id"]: row for row in pq.read_table(fixtures / "training_flat.parquet").to_pylist()}
    file = write_samples(tmp_path / "x.jsonl", [s for s in given_samples(fixtures) if s["id"] in wanted])
    for suffix in ("jsonl", "parquet"):
        out = tmp_path / f"out.{suffix}"
        options = ["--template", aware, "--tokenizer", fixtures / "tokenizer_llamalike.json"]
        ended = run("export", "--data", file, "--output", out, *options)
        rows = lines(out) if suffix == "jsonl" else pq.read_table(out).to_pylist()
        assert len(rows) >= 21
        assert all(row == wanted[row["id"]] for row in rows)
        assert json.loads(ended.out)["left_out"] == {}
    ours, theirs = pq.ParquetFile(tmp_path / "out.parquet"), pq.ParquetFile(fixtures / "training_flat.parquet")
    assert ours.schema_arrow == theirs.schema_arrow
    assert ours.metadata.row_group(0).column(0).compression == "ZSTD"


def test_our_rendering_is_transformers(fixtures: Path, tokenizer: JsonTokenizer) -> None:
    from transformers import PreTrainedTokenizerFast

    special = values(fixtures / "templates.json")
    samples = [case["sample"] for case in values(fixtures / "template_audit.json")]
    for name, text in special["templates"].items():
        theirs = PreTrainedTokenizerFast(
            tokenizer_file=str(tokenizer.path), chat_template=text, bos_token=special["bos_token"]
        )
        render = ChatTemplate(text, special_tokens={"bos_token": special["bos_token"]}).render
        for sample in samples:
            ours = audit_sample(sample, render, REGISTRIES).findings
            assert audit_sample(sample, rendered_by_tokenizer(theirs), REGISTRIES).findings == ours, name
            if "A6" not in {found["code"] for found in ours}:
                tools = REGISTRIES.for_template(sample.get("tools"))
                text = theirs.apply_chat_template(
                    sample["messages"], tools=tools, add_generation_prompt=True, tokenize=False
                )
                assert render(sample["messages"], tools=tools, add_generation_prompt=True) == text


def test_a_hugging_face_folder_renders_the_same(fixtures: Path, run: Run, aware: Path, tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer_file = fixtures / "tokenizer_llamalike.json"
    folder = tmp_path / "folder"
    PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_file), chat_template=aware.read_text(), bos_token="<|begin_of_text|>"
    ).save_pretrained(folder)
    file = write_samples(tmp_path / "x.jsonl", [harmful(1), retain(1)])
    made = []
    for number, options in enumerate((["--template", aware], ["--hf-tokenizer", folder], ["--template", folder])):
        out = tmp_path / f"{number}.jsonl"
        assert run("export", "--data", file, "--output", out, "--tokenizer", tokenizer_file, *options).code == 0
        made.append(out.read_bytes())
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize(
    ("version", "refused"), [("4.42.1", True), ("3.0", True), ("4.43.0", False), ("5.0.0.dev0", False)]
)
def test_an_old_version_of_transformers_is_refused(version: str, refused: bool) -> None:
    if refused:
        with pytest.raises(SpanloomError, match=rf"{version} is too old: 4\.43"):
            check_version(version)
    else:
        check_version(version)


TEMPLATES = {
    "aware": FAIR,
    "adds an end always": "{% for m in messages %}"
    "<|start_header_id|>{{ m.role }}<|end_header_id|>{{ m.content }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}",
    "adds eom": "{% for m in messages %}{{ '[' + m.role + ']' }}{{ m.content ~ '<|eom_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}",
    "adds no end": "{% for m in messages %}{{ m.role ~ ': ' ~ m.content }}|{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}",
}
ENDS = {"aware": "<|eot_id|>", "adds an end always": "<|eot_id|>", "adds eom": "<|eom_id|>", "adds no end": ""}
CONTENT = st.text(max_size=8) | st.lists(
    st.sampled_from([*CONTROL_STRINGS, "x", " ", "\n", "é", "👩‍🚀", CALL, "Answer."]), max_size=5
).map("".join)


@settings(max_examples=drawn(300, 50))
@given(
    st.sampled_from(sorted(TEMPLATES)),
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), CONTENT), min_size=1, max_size=4),
    CONTENT.filter(str.strip),
)
def test_the_mask_is_the_answer_and_its_end_whatever_the_messages_hold(
    fixtures_tokenizer: JsonTokenizer, template: str, messages: list[tuple[str, str]], raw: str
) -> None:
    sample = {
        "messages": [{"role": role, "content": text} for role, text in messages],
        "assistant_raw": raw,
        "tools": None,
    }
    render = ChatTemplate(TEMPLATES[template], special_tokens={"bos_token": "<|begin_of_text|>"}).render
    rendered = render_sample(sample, render, REGISTRIES)
    assert rendered.full.startswith(rendered.prompt)
    own_end = raw.rstrip().endswith(END_TOKENS)
    added = "" if own_end else ENDS[template]
    one = one_masked(sample, render, fixtures_tokenizer)
    span = answer_span(rendered, raw)
    assert span is not None
    assert rendered.full[span.start : span.end] == raw + added
    assert span.start == len(rendered.prompt)
    if isinstance(one, Left):  # a token of the prompt took the whole answer with it
        assert one.reason == "no token begins in the span"
        return
    offsets = fixtures_tokenizer.encode([one.text], special=False)[0].offsets
    inside = [k for k, (a, b) in enumerate(offsets) if a < b and span.start <= a < span.end]
    assert (one.start, one.end) == (inside[0], inside[-1] + 1)


@pytest.fixture(scope="session")
def fixtures_tokenizer(tokenizer: JsonTokenizer) -> JsonTokenizer:
    return tokenizer


def test_a_text_that_stands_there_twice_is_not_searched_for(tokenizer: JsonTokenizer) -> None:
    render = ChatTemplate(FAIR, special_tokens={"bos_token": ""}).render
    sample = retain(
        1, assistant_raw="Yes.", messages=[{"role": "tool", "content": "Yes."}, {"role": "user", "content": "Yes."}]
    )
    one = one_masked(sample, render, tokenizer)
    assert isinstance(one, Masked)
    assert one.text.count("Yes.") == 3
    assert one.span.start == one.text.rindex("Yes.")
    codes = [found["code"] for found in audit_sample(sample, render, REGISTRIES).findings]
    assert codes == ["A7"]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}?{% endif %}", "no span"),
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "no span"),
        ("{{ raise_exception('no') }}", "the template raises"),
    ],
)
def test_without_a_span_there_is_no_mask(tokenizer: JsonTokenizer, template: str, reason: str) -> None:
    one = one_masked(harmful(1), ChatTemplate(template).render, tokenizer)
    assert isinstance(one, Left)
    assert one.reason.startswith(reason)


def test_a_template_at_a_limit_is_no_sample_without_a_mask(tokenizer: JsonTokenizer) -> None:
    with pytest.raises(TemplateLimitError, match="memory"):
        one_masked(harmful(1), ChatTemplate("{{ 'a' * 10**10 }}").render, tokenizer)


def test_masks_are_written_into_samples(fixtures: Path, run: Run, aware: Path, tmp_path: Path) -> None:
    stale = {"sample_weight": 2.0, "loss_mask_start": 1, "loss_mask_end": 2}
    called = {"role": "assistant", "content": None, "tool_calls": [{}]}
    rows = [harmful(1), retain(1, training=stale), retain(2, messages=[*retain(2)["messages"], called])]
    file, out = write_samples(tmp_path / "x.jsonl", rows), tmp_path / "out.jsonl"
    options = ["--template", aware, "--tokenizer", fixtures / "tokenizer_llamalike.json"]
    ended = run("mask", "--data", file, "--output", out, *options)
    assert json.loads(ended.out) == {
        "samples": 3,
        "masked": 2,
        "straddling": 0,
        "replaced": 1,
        "without_mask": {"the template raises": 1},
    }
    first, second, third = lines(out)
    assert first["training"]["loss_mask_start"] > 0
    assert second["training"]["sample_weight"] == 2.0
    assert second["training"]["loss_mask_start"] > 2
    assert third["training"] == {"loss_mask_start": None, "loss_mask_end": None}
    assert run("validate", "--data", out, "--strict").code == 0
    again = json.loads(run("mask", "--data", out, "--output", tmp_path / "2.jsonl", *options).out)
    assert again["replaced"] == 0
    assert (tmp_path / "2.jsonl").read_bytes() == out.read_bytes()

    cut = json.loads(run("mask", "--data", file, "--output", out, "--overwrite", "--max-length", 100, *options).out)
    assert cut["without_mask"] == {"cut inside of the span": 1, "the template raises": 1}
    assert [sample["id"] for sample in lines(out)] == ["ultrachat_retain_00001", "ultrachat_retain_00002"]


def test_the_audit_command(fixtures: Path, run: Run, aware: Path, tmp_path: Path) -> None:
    bad = harmful(2, messages=[{"role": "user", "content": "x <|eom_id|>"}, {"role": "user", "content": "y"}])
    file = write_samples(tmp_path / "x.jsonl", [harmful(1), bad, {"id": "x"}])
    options = ["--data", file, "--template", aware, "--tokenizer", fixtures / "tokenizer_llamalike.json"]
    assert run("audit", *options, "--limit", 1, "--strict").code == 0
    report = tmp_path / "audit.json"
    ended = run("audit", *options, "--strict", "--report", report)
    assert ended.code == 4
    assert "ERROR A4 (control tokens in a message that is not the assistant's): 1" in ended.out
    result = values(report)
    assert (result["samples"], result["unreadable"], result["by_code"]) == (3, 1, {"A4": 1})
    assert result["tokens"] == {"masked": 2, "straddling": 0, "without_mask": {"no messages or assistant_raw": 1}}
    assert run("audit", *options).code == 0
    assert run("audit", "--data", file).code == 2


def test_rows_of_batches(fixtures: Path, run: Run, aware: Path, tmp_path: Path) -> None:
    rows = [harmful(n) for n in range(2)] + [retain(n) for n in range(3)]
    file = write_samples(tmp_path / "x.jsonl", rows)
    tokenizer = fixtures / "tokenizer_llamalike.json"
    made = []
    for suffix in ("jsonl", "parquet"):
        out = tmp_path / f"batched.{suffix}"
        options = ["--template", aware, "--tokenizer", tokenizer, "--batched", "--benign-per-harmful", "2"]
        assert run("export", "--data", file, "--output", out, *options).code == 0
        made.append(lines(out) if suffix == "jsonl" else pq.read_table(out).to_pylist())
    assert made[0] == made[1]
    assert run("batches", "--data", file, "--output", tmp_path / "b.jsonl", "--benign-per-harmful", "2").code == 0
    paired = [
        (batch["batch_id"], role, sample["id"])
        for batch in lines(tmp_path / "b.jsonl")
        for role in ("harmful", "benign")
        for sample in batch[role]
    ]
    assert [(row["batch_id"], row["role"], row["id"]) for row in made[0]] == paired
    assert flat_row(one_masked(rows[0], load_template(aware).render, load_tokenizer(tokenizer))) in [
        {key: value for key, value in row.items() if key not in ("batch_id", "role")} for row in made[0]
    ]


class FailingTokenizer:
    """A tokenizer of transformers whose template raises."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault

    def apply_chat_template(self, *_: object, **__: object) -> str:
        raise self.fault


@pytest.mark.parametrize(
    "fault",
    [
        jinja2.UndefinedError("x"),
        jinja2.TemplateError("refused"),
        TypeError("x"),
        KeyError("x"),
        ZeroDivisionError("x"),
        ValueError("x"),
    ],
)
def test_what_a_tokenizers_template_raises_is_a_finding_of_the_sample(fault: Exception) -> None:
    (finding,) = audit_sample(harmful(1), rendered_by_tokenizer(FailingTokenizer(fault)), REGISTRIES).findings
    assert finding["code"] == "A6"


def test_what_is_no_fault_of_a_template_comes_through() -> None:
    with pytest.raises(PermissionError):
        audit_sample(harmful(1), rendered_by_tokenizer(FailingTokenizer(PermissionError("vocabulary"))), REGISTRIES)
