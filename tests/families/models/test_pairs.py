"""True tokenizers with the templates of their models: text, ids and masks against transformers and a second prover.

Conversations are those beside the templates, and drawn ones.
The material lies beside the checkout; `SPANLOOM_MODELS` names it.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from families.models.conftest import assert_refused_in_words, assert_run_of_the_reference, form_of, proving_of
from spanloom.families.models.conversation import Conversation, read_conversation
from spanloom.families.models.prove.conversation import Proven, prove_conversation
from spanloom.families.models.prove.run import RefusedError, Rendered
from support.drawn_chats import drawn_record
from support.mask_reference import openai_messages, rendered
from support.model_material import Pair, models_of, pairs, records
from support.nightly import drawn
from support.proven import texts_of_runs
from tokenizers import Tokenizer

BY_TOKENIZER: dict[str, list[Pair]] = defaultdict(list)
for _pair in pairs():
    BY_TOKENIZER[_pair.tokenizer].append(_pair)
DRAWN = drawn(nightly=6, otherwise=2)
"""Of each template."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BY_TOKENIZER) or ["none"])
def test_text_ids_and_masks_are_those_of_a_second_prover(name: str, model_material: list[Pair], tmp_path: Path) -> None:
    runs = texts = of_drawn = 0
    tokenizer = None
    today = datetime.now()  # transformers cannot be given a day
    for pair, model in models_of(BY_TOKENIZER[name], tmp_path, today):
        tokenizer = tokenizer or Tokenizer.from_file(str(tmp_path / pair.tokenizer / "tokenizer.json"))
        proving = proving_of(model)
        form = form_of(proving)
        number = pairs().index(pair)
        seeds = range(number * DRAWN, (number + 1) * DRAWN)
        for record in [*records(), *({**drawn_record(seed), "name": f"drawn {seed}"} for seed in seeds)]:
            conversation = read_conversation(record, name=record["name"])
            outcome = prove_conversation(model, conversation, proving)
            where = f"{pair.template}: {record['name']}"
            ours = Rendered(model, conversation, proving.form)
            messages = openai_messages(record, form)
            for prompt in (False, True):
                try:
                    text = ours.text(ours.plain, {}, prompt=prompt)
                except RefusedError:
                    continue
                given = model.template.special_tokens
                assert text == rendered(model.template.text, messages, record, given, prompt=prompt), where
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                assert model.encoder.ids(text).tolist() == ids, where
                texts += 1
            if not isinstance(outcome, Proven):
                assert_refused_in_words(outcome, where)
                continue
            for run, text in texts_of_runs(outcome):
                assert_run_of_the_reference(run, text, record, form, model, tokenizer, where)
                given = {**model.template.special_tokens, **run.variables}
                prompt = rendered(model.template.text, messages[: run.run], record, given, prompt=True)
                assert text[: run.prompt] == prompt, where
                if record["name"].startswith("drawn"):
                    assert_nothing_is_lost(conversation, run.run, text, where)
                    of_drawn += 1
                runs += 1
            assert [run.run for run in outcome.runs] == conversation.runs(), where
            for document in outcome.documents:
                assert document.mask.sum() == sum(len(run.tokens) - run.first for run in document.runs), where
    assert texts > 50
    assert runs > 20
    assert of_drawn


def assert_nothing_is_lost(conversation: Conversation, run: int, text: str, where: str) -> None:
    """Each text of system, user and tools before the run, and all of the run, is in F as it is, or as JSON."""
    for place, message in enumerate(conversation.messages[: run + 1]):
        if message["role"] != "assistant":
            assert is_in(message["content"], text), f"{where}, message {place}"
    message = conversation.messages[run]
    for part in (message.get("content"), message.get("reasoning")):
        assert is_in(part, text), f"{where}, message {run}"
    for call in message.get("tool_calls") or ():
        assert call["name"] in text, where
        for leaf in leaves(call["arguments"]):
            assert is_in(leaf, text), f"{where}, message {run}: {leaf!r}"
    for tool in conversation.tools or ():
        for leaf in (tool["function"]["name"], tool["function"]["description"]):
            assert is_in(leaf, text), f"{where}: {leaf!r}"


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inside in value.items():
            yield key
            yield from leaves(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from leaves(inside)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def is_in(part: str | None, text: str) -> bool:
    words = (part or "").strip()
    python = {"true": "True", "false": "False", "null": "None"}.get(words, words)
    once = json.dumps(words, ensure_ascii=False)[1:-1]
    ways = (words, python, once, json.dumps(words)[1:-1], repr(words)[1:-1], json.dumps(once, ensure_ascii=False)[1:-1])
    lines = [line.strip() for line in words.splitlines()]
    return any(way in text for way in ways) or all(line in text for line in lines)
