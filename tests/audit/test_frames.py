"""Templates whose frames no token shows: an audit ends in a message, and never says that there are no findings."""

from pathlib import Path

import pytest

from spanloom.auditing.auditor import ModelOptions, make_auditor
from spanloom.auditing.run import AuditOptions, audit
from spanloom.errors import SourceError
from spanloom.families.models.probe.frames import Learned
from spanloom.law.classes import CONTEXT_TRAINED
from spanloom.law.grammar import ASSISTANT, USER
from support.audited import write_masks
from support.chat_models import write_model

_PROMPT = "{% if add_generation_prompt %}ASSISTANT: {% endif %}"
PLAIN = {
    "a line for each message": "{% for m in messages %}{{ m.role | upper }}: {{ m.content }}\n{% endfor %}" + _PROMPT,
    "EOS behind answers, as Vicuna's": "{{ bos_token }}{% for m in messages %}{{ m.role | upper }}: {{ m.content }}"
    "{{ eos_token if m.role == 'assistant' else '\n' }}{% endfor %}" + _PROMPT,
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_template_whose_roles_are_plain_text_ends_in_a_message(name: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", PLAIN[name], stops=("<|eof|>",))
    data = write_masks(tmp_path / "data.parquet", [([40, 41, 42], [0, 1, 1])])
    with pytest.raises(SourceError) as fault:
        audit(AuditOptions(data=data, model=ModelOptions(folder=folder)))
    assert "frames cannot be read off the tokens" in str(fault.value)
    assert fault.value.remedy


def test_a_template_whose_frames_are_misread_ends_in_a_message(tmp_path: Path) -> None:
    """Proven documents are tried first. A class found in them would be left out of the report."""
    folder = write_model(tmp_path / "model")
    auditor = make_auditor(ModelOptions(folder=folder), learned=Learned(unshown=(CONTEXT_TRAINED,)))
    data = write_masks(tmp_path / "data.parquet", [([40, 41, 42], [0, 1, 1])])
    with pytest.raises(SourceError) as fault:
        audit(AuditOptions(data=data, model=ModelOptions(folder=folder)), auditor=auditor)
    assert CONTEXT_TRAINED in str(fault.value)
    assert "--messages" in str(fault.value.remedy)


def test_headers_of_text_behind_a_token_that_closes_messages_are_read(tmp_path: Path) -> None:
    """The token belongs to the message before, and to the header of the next."""
    template = "{% for m in messages %}### {{ m.role }}:\n{{ m.content }}<|end|>\n{% endfor %}"
    prompt = "{% if add_generation_prompt %}### assistant:\n{% endif %}"
    auditor = make_auditor(ModelOptions(folder=write_model(tmp_path / "model", template + prompt)))
    assert {ASSISTANT, USER} <= {header.role for header in auditor.tables.grammar.headers}
    assert (auditor.unshown, auditor.proven > 0) == ((), True)
