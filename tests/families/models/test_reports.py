"""Records in shapes that people reported, from `convert` to a dataset for a model.

In: files of `tests/cases/reports`. Published templates come from the folder that `SPANLOOM_MODELS` names.
"""

import re
from pathlib import Path

import pytest

from conftest import Cli
from spanloom.building.make import BuildResult
from spanloom.errors import RejectedRowError
from spanloom.families.models.build import BuildOptions, build
from spanloom.families.models.documents.rules import ModelRules
from spanloom.report.progress import Mode, Progress
from support.cases import beside, cases_of
from support.chat_models import CHATML, small_tokenizer, write_model
from support.model_datasets import documents_on_disk
from support.model_material import Pair, write_pair
from support.nightly import nightly
from support.requirements import REPORTED, absent
from tokenizers import Tokenizer

REPORTS = cases_of("reports")
QWEN = ("<|im_end|>", "<|endoftext|>")
GLM = ("<|endoftext|>", "<|user|>", "<|observation|>")
EMPTY_THOUGHTS = {
    "otc_qwen-3": (Pair("qwen-3", "otc_qwen-3", QWEN), "<think>\n\n</think>\n\n"),
    "lcpp_Qwen3.5-4B": (Pair("qwen-3", "lcpp_Qwen3.5-4B", QWEN), "\n</think>\n\n"),
    "otc_glm-4.6v": (Pair("glm-4.7-flash", "otc_glm-4.6v", GLM), "<think></think>\n"),
}
"""Template → what it writes before an answer without reasoning, as its text shows."""


def converted(cli: Cli, name: str, out: Path, *options: str) -> Path:
    ended = cli("convert", REPORTS / name, "--out", out, "--yes", *options)
    assert ended.returncode == 0, ended.stderr
    return out


def made(source: Path, model: Path, out: Path, stops: tuple[str, ...], **more: object) -> BuildResult:
    rules = ModelRules(
        valid_fraction=0,
        stops=stops,
        variables=dict(more.pop("variables", {})),  # type: ignore[call-overload]
        date=more.pop("date", None),  # type: ignore[arg-type]
    )
    return build(
        BuildOptions(source=source, model=model, out=out, rules=rules, allow_unknown_sha=True, **more),  # type: ignore[arg-type]
        Progress(mode=Mode.LINES),
    )


def trained_texts(root: Path) -> list[str]:
    """The trained text of each stretch, in order."""
    tokenizer = Tokenizer.from_file(str(root / "model/tokenizer.json"))
    texts = []
    for _, tokens, mask, _ in documents_on_disk(root):
        stretches: list[list[int]] = []
        for at, (token, trained) in enumerate(zip(tokens, mask, strict=True)):
            if trained and not (at and mask[at - 1]):
                stretches.append([])
            if trained:
                stretches[-1].append(token)
        texts += [tokenizer.decode(stretch, skip_special_tokens=False) for stretch in stretches]
    return texts


@pytest.mark.parametrize("template", ["otc_qwen-3", nightly("lcpp_Qwen3.5-4B"), nightly("otc_glm-4.6v")])
def test_the_empty_thought_is_context_as_when_serving_without_thinking(
    template: str, model_material: list[Pair], tmp_path: Path, cli: Cli, capfd: pytest.CaptureFixture[str]
) -> None:
    assert model_material
    pair, thought = EMPTY_THOUGHTS[template]
    model = write_pair(pair, tmp_path / "model")
    source = converted(cli, "plain.jsonl", tmp_path / "source")
    result = made(source, model, tmp_path / "root", pair.stops)
    assert result.report.clean, result.report.findings
    answers = ["The Marañón.", "56", "64"]
    assert [text.split("<|")[0] for text in trained_texts(result.root)] == answers
    assert "empty_thoughts" not in (result.manifest.content.totals.cutting or {})
    capfd.readouterr()
    on = made(source, model, tmp_path / "on", pair.stops, variables={"enable_thinking": True})
    assert on.report.clean, on.report.findings
    assert [text.split("<|")[0] for text in trained_texts(on.root)] == [thought + answer for answer in answers]
    assert (on.manifest.content.totals.cutting or {})["empty_thoughts"] == 3
    assert "an empty thought trained in 3 runs without reasoning" in capfd.readouterr().err


def small(folder: Path) -> Path:
    return write_model(folder, CHATML)


def test_reasoning_without_an_answer_is_refused(tmp_path: Path, cli: Cli) -> None:
    source = converted(cli, "reasoning_only_end.jsonl", tmp_path / "source")
    with pytest.raises(RejectedRowError, match="answer_missing: message 1 has reasoning without an answer"):
        made(source, small(tmp_path / "model"), tmp_path / "root", ())


def test_messages_in_a_row_are_refused_unless_they_are_joined(tmp_path: Path, cli: Cli) -> None:
    model = small(tmp_path / "model")
    source = converted(cli, "sep_calls.jsonl", tmp_path / "apart")
    with pytest.raises(RejectedRowError, match="assistant_in_a_row: message 2 follows") as refused:
        made(source, model, tmp_path / "no", ())
    assert "spanloom convert --join-consecutive" in str(refused.value.remedy)
    joined = converted(cli, "sep_calls.jsonl", tmp_path / "joined", "--join-consecutive")
    check_one_message_of_calls(made(joined, model, tmp_path / "root", ()), thought="")


def test_a_thought_and_turns_of_calls_are_one_message(tmp_path: Path, cli: Cli) -> None:
    source = converted(cli, "tool_call_role.jsonl", tmp_path / "source", "--think-tags")
    result = made(source, small(tmp_path / "model"), tmp_path / "root", ())
    check_one_message_of_calls(result, thought="Two words.")


def check_one_message_of_calls(result: BuildResult, *, thought: str) -> None:
    """Both calls, and the thought before them, are trained in one turn with one stop."""
    assert result.report.clean, result.report.findings
    (turn,) = [text for text in trained_texts(result.root) if "<call>" in text]
    assert turn.count("<call>lookup") == 2
    assert turn.count("<|end|>") == 1
    assert thought in turn


TAG_PAIRS = CHATML.replace(
    "{{ c.function.arguments | tojson }}",
    "{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}</{{ k }}>{% endfor %}",
)
"""Arguments as MiniMax-M3 writes them."""


def test_names_of_arguments_may_be_pairs_of_tags(tmp_path: Path, cli: Cli) -> None:
    source = converted(cli, "m3.jsonl", tmp_path / "source")
    result = made(source, write_model(tmp_path / "model", TAG_PAIRS), tmp_path / "root", ())
    assert result.report.clean, result.report.findings
    assert "<call>lookup <word>ant</word></call><|end|>" in trained_texts(result.root)[0]


@pytest.mark.parametrize("ids", ["kimi_native_ids", "mistral_ids"])
def test_calls_of_kimi_have_its_own_ids(ids: str, model_material: list[Pair], tmp_path: Path, cli: Cli) -> None:
    template = beside("SPANLOOM_REPORTS", "reports") / "chat/kimi-k2-0905.jinja"
    assert model_material
    if not template.is_file():
        absent(REPORTED)
    markers = set(re.findall(r"<\|\w+\|>", template.read_text()))
    model = write_model(
        tmp_path / "model", template.read_text(), stops=("<|im_end|>",), tokenizer=small_tokenizer(markers)
    )
    source = converted(cli, f"{ids}.jsonl", tmp_path / "source")
    result = made(source, model, tmp_path / "root", ())
    assert result.report.clean, result.report.findings
    begin = "<|tool_call_begin|>functions.lookup:0<|tool_call_argument_begin|>"
    assert begin in trained_texts(result.root)[0]


@pytest.mark.parametrize(
    "template", [nightly("lcpp_mistralai-Mistral-Nemo-Instruct-2407"), "lcpp_Mistral-Small-3.2-24B-Instruct-2506"]
)
def test_ids_of_calls_are_rewritten_for_mistral(
    template: str, model_material: list[Pair], tmp_path: Path, cli: Cli
) -> None:
    (pair,) = [each for each in model_material if each.template == template]
    source = converted(cli, "mistral_ids.jsonl", tmp_path / "source")
    result = made(source, write_pair(pair, tmp_path / "model"), tmp_path / "root", pair.stops, date="2025-01-01")
    assert result.report.clean, result.report.findings
    ((_, tokens, _, _),) = documents_on_disk(result.root)
    text = Tokenizer.from_file(str(result.root / "model/tokenizer.json")).decode(tokens, skip_special_tokens=False)
    assert len(set(re.findall(r'(?:\bid": "|CALL_ID\]|call_id": "?)([a-zA-Z0-9]{9})\b', text))) == 1
