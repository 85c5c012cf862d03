"""Published templates and conversations, rendered here and by transformers: the same texts, the same refusals."""

from collections import Counter
from datetime import datetime
from itertools import product
from typing import Any

import pytest
from transformers.utils import chat_template_utils

from spanloom.families.models.conversation import read_conversation
from spanloom.families.models.form import AsGiven, Form, shaped
from spanloom.tokenizers.chat_template import ChatTemplate, ChatTemplateError
from support.model_material import DAY, ROOT, records
from support.nightly import drawn
from support.requirements import MODELS, absent

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
FORMS = (Form(), Form(reasoning="inline", arguments="text", beside_calls="null"))


class _Day(datetime):
    @classmethod
    def now(cls, *_: object) -> datetime:
        return DAY


def ours(template: ChatTemplate, messages: list[dict[str, Any]], **more: Any) -> str | None:
    """The text; None where the template refuses."""
    try:
        return template.render(messages, **more)
    except ChatTemplateError:
        return None


def theirs(template: ChatTemplate, messages: list[dict[str, Any]], **more: Any) -> str | None:
    # Null values are left out before, as the tokenizers of transformers do it.
    given = [{key: value for key, value in message.items() if value is not None} for message in messages]
    try:
        made = chat_template_utils.render_jinja_template([given], chat_template=template.text, **TOKENS, **more)
    except Exception:  # whatever the template raises
        return None
    text: str = made[0][0]
    return text


def test_texts_are_those_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template_utils, "datetime", _Day)
    paths = sorted((ROOT / "templates").glob("*.jinja")) or absent(MODELS)
    conversations = [read_conversation(record, name="one") for record in records()]
    assert (len(paths), len(conversations)) == (160, 40)
    texts: Counter[bool] = Counter()
    for path in paths[:: drawn(1, 8)]:
        template = ChatTemplate(path.read_text("utf-8"), special_tokens=TOKENS, now=DAY)
        for conversation, form, prompt in product(conversations, FORMS, (False, True)):
            messages = [shaped(message, form, AsGiven()) for message in conversation.messages]
            tools = None if conversation.tools is None else list(conversation.tools)
            more = {"tools": tools, "add_generation_prompt": prompt, **conversation.variables}
            text = ours(template, messages, **more)
            assert text == theirs(template, messages, **more), (path.stem, conversation.id, form, prompt)
            texts[text is None] += 1
    assert texts[False] > texts[True] > 0
