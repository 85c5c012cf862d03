"""A small model whose template writes BOS and forgets reasoning, and documents that are right for it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spanloom.auditing.auditor import Auditor, ModelOptions, make_auditor
from spanloom.auditing.result import Result
from spanloom.auditing.run import AuditOptions, audit
from spanloom.families.models.conversation import read_conversation
from spanloom.families.models.prove.conversation import Proven, prove_conversation
from support.audited import Document
from support.chat_models import CHATML, MARKERS, small_tokenizer, write_model
from support.model_datasets import record

FORGETS = (
    "{{ bos_token }}{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    + CHATML.replace("{% if m.reasoning_content %}", "{% if m.reasoning_content and loop.index0 > ns.last %}")
)
"""ChatML behind BOS. Reasoning before the last question is left out."""

_TOOLS, _MESSAGES = CHATML.split("{% endif %}", 1)
LATER = (
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    + _MESSAGES.replace(
        "{% for m in messages %}",
        "{% for m in messages %}{% if loop.index0 == ns.last %}" + _TOOLS + "{% endif %}{% endif %}",
        1,
    )
)
"""ChatML that defines tools before the last question, as Mistral's templates do."""

FIM = "<|fim|>"
"""A control token that the template never writes."""


@dataclass(frozen=True)
class SmallModel:
    """A model's folder and its auditor; `documents`: proven ones, `records`: the conversations that they are of."""

    folder: Path
    auditor: Auditor
    records: list[dict[str, Any]]
    documents: list[Document]

    @property
    def options(self) -> ModelOptions:
        return ModelOptions(folder=self.folder)

    def audit(self, data: Path, **options: Any) -> Result:
        """The audit of a dataset with the auditor that is there: to make one takes longer."""
        return audit(AuditOptions(data=data, model=self.options, **options), auditor=self.auditor)

    def ids(self, text: str) -> list[int]:
        return self.auditor.model.tokenizer.encode([text], special=False)[0].ids.tolist()


def small_model(folder: Path, template: str, seeds: range) -> SmallModel:
    """The model of a template, and the proven documents of drawn conversations."""
    tokenizer = small_tokenizer([*MARKERS, FIM])
    auditor = make_auditor(ModelOptions(folder=write_model(folder, template, tokenizer=tokenizer)))
    records = [record(seed) for seed in seeds]
    documents: list[Document] = []
    for each in records:
        outcome = prove_conversation(auditor.model, read_conversation(each, name="test"), auditor.proving)
        assert isinstance(outcome, Proven)
        documents += [(document.tokens.tolist(), document.mask.tolist()) for document in outcome.documents]
    return SmallModel(folder, auditor, records, documents)


@pytest.fixture(scope="session")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> SmallModel:
    """Forgets reasoning: several documents for some conversations."""
    return small_model(tmp_path_factory.mktemp("audit") / "forgetful", FORGETS, range(60))


@pytest.fixture(scope="session")
def later(tmp_path_factory: pytest.TempPathFactory) -> SmallModel:
    """Defines tools before the last question."""
    return small_model(tmp_path_factory.mktemp("audit") / "later", LATER, range(30))


@pytest.fixture(scope="session")
def faithful(tmp_path_factory: pytest.TempPathFactory) -> SmallModel:
    """Keeps history as it is: a document for each conversation."""
    return small_model(tmp_path_factory.mktemp("audit") / "faithful", CHATML, range(60))
