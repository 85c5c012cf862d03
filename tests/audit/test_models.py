"""True tokenizers: TRL's training templates give the findings that they are known for; what we prove is clean.

The tokenizers lie beside the checkout. Gemma's does not: a small one has its markers.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spanloom.auditing.auditor import Auditor, ModelOptions, make_auditor
from spanloom.auditing.run import AuditOptions, audit
from spanloom.dataset import manifest
from spanloom.dataset.export.form import FormName, export_form
from spanloom.dataset.export.parquet import export_dataset
from spanloom.families.models.build import BuildOptions, build
from spanloom.families.models.conversation import Conversation
from spanloom.families.models.documents.rules import ModelRules
from spanloom.families.models.form import AsGiven, shaped
from spanloom.families.models.probe.frames import Learned
from spanloom.families.models.prove.conversation import Proven, prove_conversation
from spanloom.families.models.samples.conversations import sample_conversations
from spanloom.families.models.samples.model import run as sample_model
from support.audited import Document, trainer, training_template, write_masks
from support.chat_models import small_tokenizer, write_model
from support.model_datasets import record, stored, without_reasoning, write_conversations
from support.model_material import DAY, Pair, write_pair
from support.nightly import nightly

TRAINING = {
    "qwen2_5": ("qwen-2.5", {"trained_behind_stop", "prompt_supplied_trained"}),
    "qwen3": ("qwen-3", {"trained_behind_stop"}),
    "qwen3_6": ("qwen-3", {"trained_behind_stop", "prompt_supplied_trained"}),
    "gptoss": ("gptoss", {"prompt_supplied_trained"}),
    "glm4moe": ("glm-4.7-flash", set()),
}
"""TRL's training template → its tokenizer, and the findings of single turns."""

CLEAN = (
    ("qwen-3", "otc_qwen-3"),
    ("qwen-2.5", "otc_qwen-2.5"),
    ("deepseek-v3.1", "otc_deepseek-v3.1"),
    ("glm-4.7-flash", "otc_glm-4.7-flash"),
    ("gptoss", "lcpp_openai-gpt-oss-120b"),
    ("tekken_nemo", "lcpp_unsloth-mistral-Devstral-Small-2507"),
)


def _single_turns() -> list[Conversation]:
    """Conversations with one answer, each with another text."""
    one = [each for _, each in sample_conversations() if len(each.runs()) == 1]
    return one[:14]


def _options(material: list[Pair], tokenizer: str, folder: Path) -> ModelOptions:
    pair = next(pair for pair in material if pair.tokenizer == tokenizer)
    return ModelOptions(folder=write_pair(pair, folder), stops=pair.stops, date=DAY)


def _as_trl(options: ModelOptions, name: str, path: Path) -> tuple[ModelOptions, int]:
    """Masks that TRL makes of the conversations that are proven under its training template. Returns how many."""
    template = options.folder / "training.jinja"
    template.write_text(training_template(f"{name}_training"))
    options = replace(options, template=template)
    auditor = make_auditor(options, learned=Learned())
    made = trainer(options.folder, template.read_text())
    documents: list[Document] = []
    for each in _single_turns():
        if isinstance(prove_conversation(auditor.model, each, auditor.proving), Proven):
            messages = [shaped(message, auditor.proving.form, AsGiven()) for message in each.messages]
            documents.append(made.document(messages, each.tools))
    write_masks(path, documents)
    return options, len(documents)


@pytest.mark.nightly
@pytest.mark.parametrize("name", TRAINING)
def test_a_training_template_of_trl_has_the_findings_it_is_known_for(
    name: str, model_material: list[Pair], tmp_path: Path
) -> None:
    tokenizer, expected = TRAINING[name]
    data = tmp_path / "data.parquet"
    options, count = _as_trl(_options(model_material, tokenizer, tmp_path / "model"), name, data)
    assert count > 8
    result = audit(AuditOptions(data=data, model=options))
    assert set(result.found) == expected
    assert not expected & set(result.unshown)
    # One token of white space may begin in the prompt and go on into the answer.
    assert all(result.found[finding] >= count - 1 for finding in expected)


def test_gemmas_training_template_trains_the_line_feed_behind_its_stop_token(tmp_path: Path) -> None:
    markers = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
    folder = write_model(
        tmp_path / "model",
        training_template("gemma3_training"),
        stops=("<end_of_turn>", "<eos>"),
        config={"bos_token": "<bos>", "eos_token": "<eos>"},
        tokenizer=small_tokenizer(markers),
    )
    options, count = _as_trl(ModelOptions(folder=folder), "gemma3", tmp_path / "data.parquet")
    assert count > 8
    result = audit(AuditOptions(data=tmp_path / "data.parquet", model=options))
    assert result.found == {"trained_behind_stop": count}


@pytest.fixture(scope="module", params=[CLEAN[0], *map(nightly, CLEAN[1:])], ids=[name for name, _ in CLEAN])
def a_model(
    request: pytest.FixtureRequest, model_material: list[Pair], tmp_path_factory: pytest.TempPathFactory
) -> tuple[ModelOptions, Auditor]:
    """A published model and its auditor; all but the first in the nightly run."""
    pair = next(pair for pair in model_material if (pair.tokenizer, pair.template) == request.param)
    folder = write_pair(pair, tmp_path_factory.mktemp("model") / pair.tokenizer)
    options = ModelOptions(folder=folder, stops=pair.stops, date=DAY)
    return options, make_auditor(options)


def test_proven_documents_are_clean(a_model: tuple[ModelOptions, Auditor], tmp_path: Path) -> None:
    options, auditor = a_model
    documents: dict[tuple[int, ...], np.ndarray] = {}
    for _, each in sample_conversations():
        outcome = prove_conversation(auditor.model, each, auditor.proving)
        if isinstance(outcome, Proven):
            documents.update((tuple(made.tokens.tolist()), made.mask) for made in outcome.documents)
    data = write_masks(tmp_path / "data.parquet", [(list(ids), mask.tolist()) for ids, mask in documents.items()])
    result = audit(AuditOptions(data=data, model=options), auditor=auditor)
    assert result.found == {}
    # What the tokens of these templates do not show: answers that are context, where history is rewritten.
    assert set(result.unshown) <= {"history_untrained"}


def test_a_dataset_of_ours_and_its_exports_are_clean(a_model: tuple[ModelOptions, Auditor], tmp_path: Path) -> None:
    options, auditor = a_model
    _everything_is_clean(options, auditor, tmp_path, 20)


@pytest.mark.nightly
def test_a_dataset_for_the_small_sample_model_and_its_exports_are_clean(tmp_path: Path) -> None:
    sample_model(out=str(tmp_path / "sample"))
    options = ModelOptions(folder=tmp_path / "sample/model", date=DAY)
    _everything_is_clean(options, make_auditor(options), tmp_path, 8)


def _everything_is_clean(options: ModelOptions, auditor: Auditor, folder: Path, count: int) -> None:
    """A dataset of drawn conversations, its exports and its files of Megatron, without and with conversations."""
    records = [record(seed) for seed in range(count)]
    if auditor.proving.form.reasoning == "inline":  # the template knows none
        records = [without_reasoning(each) for each in records]
    source = write_conversations(folder / "source", [[stored(each) for each in records]])
    rules = ModelRules(valid_fraction=0.2, stops=options.stops, date=DAY.date().isoformat())
    made = build(
        BuildOptions(
            source=source,
            model=options.folder,
            out=folder / "root",
            rules=rules,
            allow_unknown_sha=True,
            max_rejects="70%",
            workers=1,
        )
    )
    assert made.report.clean, made.report.findings
    content = manifest.read(made.root).content
    assert content.totals.sequences >= 4
    places = {"root": made.root}
    forms: tuple[FormName, ...] = ("parquet", "trl", "megatron-bridge")
    for name in forms:
        form = export_form(name, content)
        export_dataset(made.root, content, form, folder / name, beside={})
        places[name] = folder / name
    places["bin"] = made.root / "train" / "shard_00_tokens"
    for name, place in places.items():
        for messages in (None, source):
            asked = AuditOptions(data=place, model=options, messages=messages, workers=1)
            result = audit(asked, auditor=auditor)
            assert result.findings == {}, (name, messages)
            assert result.trained > 0
            if result.messages is not None:
                assert (result.messages["matched"], result.messages["refused"]) == (result.documents, {}), name
                assert result.messages["not_proven"] == {}, name
        if name != "bin":
            assert result.documents == content.totals.sequences


def test_a_template_that_writes_the_system_text_into_the_question_is_matched(tmp_path: Path) -> None:
    """As Gemma's does: the question begins with the system text and an empty line."""
    template = (
        "{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\\n\\n' %}"
        "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
        "{% for m in rest %}<|start|>{{ m.role }}\n{{ first if loop.first }}{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
    )
    options = ModelOptions(folder=write_model(tmp_path / "model", template))
    auditor = make_auditor(options, learned=Learned())
    talks = [
        [
            *([{"role": "system", "content": f"Be brief.\nMaps {number}"}] if number % 2 else []),
            {"role": "user", "content": f"Where is\nplace {number}?"},
            {"role": "assistant", "content": f"answer {number}"},
        ]
        for number in range(6)
    ]
    documents: list[Document] = []
    for messages in talks:
        outcome = prove_conversation(auditor.model, Conversation(id="test", messages=tuple(messages)), auditor.proving)
        assert isinstance(outcome, Proven)
        documents += [(made.tokens.tolist(), made.mask.tolist()) for made in outcome.documents]
    chat = tmp_path / "chat.jsonl"
    chat.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in talks[1:]))
    data = write_masks(tmp_path / "data.parquet", documents)
    result = audit(AuditOptions(data=data, model=options, messages=chat))
    counts = {"rows": 5, "refused": {}, "matched": 5, "unmatched": 1, "not_proven": {}}
    assert (result.found, result.messages) == ({}, counts)
