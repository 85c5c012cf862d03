"""What proving every run costs beside `apply_chat_template`: CPU of one thread, both in one process and one run.

In: a pair of tokenizer and template of the folder that `SPANLOOM_MODELS` names. Out: JSON with the seconds of each
route and three ratios. `proof`: P and F of each run by transformers' `apply_chat_template`, against conversations
proven by methods A, B and S. `path`: one `apply_chat_template` of each conversation, against its documents by path;
the first round has learned the paths. `encoding`: such texts encoded by transformers' tokenizer, against the encoder of
a build. Each round takes texts that no round had before, so that no cache knows them.

    PYTHONPATH=tests python -m tools.bench.model_proof --conversations 150 --rounds 3
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from transformers import PreTrainedTokenizerFast

from spanloom.families.models.conversation import Conversation, read_conversation
from spanloom.families.models.model import Model
from spanloom.families.models.paths.prover import PathProver
from spanloom.families.models.probe.form import find_form, variable_sets
from spanloom.families.models.prove.conversation import Proven, Proving, prove_conversation
from support.model_material import DAY, models_of, pairs
from support.processor_time import processor_time
from tools.bench.texts import Texts

TURNS = 6
"""Questions and answers of a conversation, behind a system message."""
LENGTH = 700
"""Characters of a text, about."""


def texts() -> Iterator[str]:
    """Texts of `LENGTH` characters or more, none twice."""
    for block in Texts().blocks("prose"):
        for at in range(0, len(block) - LENGTH, LENGTH):
            if text := block[at : at + LENGTH].strip().replace("<", "(").replace("[", "("):
                yield text


def conversations(given: Iterator[str], count: int) -> list[Conversation]:
    """Of `TURNS` questions with a system text; every second one with reasoning."""
    made = []
    for number in range(count):
        messages: list[dict[str, Any]] = [{"role": "system", "content": next(given)}]
        for _ in range(TURNS):
            messages.append({"role": "user", "content": next(given)})
            thought = {"reasoning": next(given)[: LENGTH // 2]} if number % 2 else {}
            messages.append({"role": "assistant", "content": next(given), **thought})
        made.append(read_conversation({"messages": messages}, name=str(number)))
    return made


def processor_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = processor_time()
    result = work()
    return processor_time() - began, result


def as_transformers(conversation: Conversation) -> list[dict[str, Any]]:
    """The messages with reasoning where most templates read it."""
    return [
        {("reasoning_content" if key == "reasoning" else key): value for key, value in message.items()}
        for message in conversation.messages
    ]


def proof(
    model: Model, peer: PreTrainedTokenizerFast, prover: PathProver, batch: list[Conversation]
) -> dict[str, float]:
    """Seconds to prove each run, and of transformers' P and F of each run; both from messages to ids."""
    sets = variable_sets(model.template, "auto", {})
    proving = Proving(form=find_form(model.template, sets), variables=sets)
    peers = [as_transformers(conversation) for conversation in batch]

    def by_transformers() -> int:
        tokens = 0
        for conversation, messages in zip(batch, peers, strict=True):
            for run in conversation.runs():
                peer.apply_chat_template(messages[:run], add_generation_prompt=True, tokenize=True)
                tokens += len(peer.apply_chat_template(messages[: run + 1], tokenize=True, return_dict=False))
        return tokens

    def proven() -> int:
        outcomes = [prove_conversation(model, conversation, proving) for conversation in batch]
        assert all(isinstance(outcome, Proven) for outcome in outcomes), outcomes
        return sum(len(outcome.runs) for outcome in outcomes if isinstance(outcome, Proven))

    ours, runs = processor_seconds(proven)
    theirs, tokens = processor_seconds(by_transformers)
    by_path, found = processor_seconds(lambda: [prover.documents(conversation) for conversation in batch])
    once, _ = processor_seconds(lambda: [peer.apply_chat_template(messages, tokenize=True) for messages in peers])
    return {
        "runs": runs,
        "tokens": tokens,
        "transformers": theirs,
        "proven": ours,
        "by_path": by_path,
        "apply_once": once,
        "conversations_by_path": sum(each is not None for each in found),
    }


def encoding(model: Model, peer: PreTrainedTokenizerFast, batch: list[Conversation]) -> dict[str, float]:
    """Seconds to encode P and F of each run, text by text."""
    rendered = [
        text
        for conversation in batch
        for messages in (as_transformers(conversation),)
        for run in conversation.runs()
        for text in (
            peer.apply_chat_template(messages[:run], add_generation_prompt=True, tokenize=False),
            peer.apply_chat_template(messages[: run + 1], tokenize=False),
        )
    ]
    ours, ids = processor_seconds(lambda: [model.encoder.ids(text) for text in rendered])
    theirs, peer_ids = processor_seconds(lambda: [peer.encode(text, add_special_tokens=False) for text in rendered])
    assert all(left.tolist() == right for left, right in zip(ids, peer_ids, strict=True))
    return {"transformers_encode": theirs, "encode": ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pair", default="otc_qwen-3", help="the name of a template")
    given = parser.parse_args()
    source = texts()
    with tempfile.TemporaryDirectory() as scratch:
        chosen = [pair for pair in pairs() if pair.template == given.pair]
        ((pair, model),) = models_of(chosen, Path(scratch), DAY)
        path = Path(scratch) / pair.tokenizer / "tokenizer.json"
        peer = PreTrainedTokenizerFast(tokenizer_file=str(path), chat_template=model.template.text)
        sets = variable_sets(model.template, "auto", {})
        prover = PathProver(model, Proving(form=find_form(model.template, sets), variables=sets))
        rounds = [
            proof(model, peer, prover, conversations(source, given.conversations))
            | encoding(model, peer, conversations(source, given.conversations))
            for _ in range(given.rounds + 1)
        ][1:]  # the first one warms up
    total = {name: sum(each[name] for each in rounds) for name in rounds[0]}
    ratios = {
        "proof": total["transformers"] / total["proven"],
        "path": total["apply_once"] / total["by_path"],
        "encoding": total["transformers_encode"] / total["encode"],
    }
    print(json.dumps({"pair": given.pair, **{name: round(value, 3) for name, value in (total | ratios).items()}}))


if __name__ == "__main__":
    main()
