"""How many faults does the audit name, and how many clean documents does it accuse? Alone and with the conversations.

In: pairs of a true tokenizer and a template, by name; without names eight of them. Each kind of fault is a dataset of
its own. Out: a table of kinds of faults.

    PYTHONPATH=tests python -m tools.bench.audit_faults [--conversations 40] [TEMPLATE …]
"""

import argparse
import json
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from spanloom.auditing.auditor import ModelOptions, make_auditor
from spanloom.auditing.run import AuditOptions, audit
from spanloom.law import classes
from support.audited import Document, write_masks
from support.chat_models import small_tokenizer, write_model
from support.model_material import DAY, ROOT, pairs, write_pair
from support.trainers_faults import QUESTION, conversation, seeded

MARKS = {
    "lenml_llama3_1": (
        "<|begin_of_text|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eom_id|>",
        "<|python_tag|>",
        "<|end_of_text|>",
    ),
    "lenml_gemma3": ("<bos>", "<end_of_turn>", "<start_of_turn>", "<eos>", "<pad>"),
}
"""Control tokens of models whose tokenizers are not there: BOS, the stop token, others."""

TEMPLATES = (
    "otc_qwen-3",
    "otc_qwen-2.5",
    "otc_glm-4.7-flash",
    "lcpp_openai-gpt-oss-120b",
    "otc_deepseek-v3.1",
    "otc_glm-4-32b-0414",
    *MARKS,
)


class Outcome(NamedTuple):
    """What the audit says of a document with a fault of this kind, or of none. `named`: classes."""

    template: str
    kind: str | None
    messages: bool
    named: frozenset[str]


def folder_of(name: str, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The model of a template with its own tokenizer; where that is not there, with a small one that has its marks."""
    for pair in pairs():
        if pair.template == name:
            return write_pair(pair, folder / "model"), pair.stops
    template = (ROOT / "templates" / f"{name}.jinja").read_text()
    bos, stop, *marks = MARKS[name]
    tokenizer = small_tokenizer([bos, stop, *marks])
    model = write_model(
        folder / "model",
        template,
        stops=(stop,),
        tokenizer=tokenizer,
        config={"bos_token": bos, "eos_token": stop},
    )
    return model, (stop,)


def outcomes(name: str, folder: Path, count: int) -> list[Outcome]:
    """What the audit says of each document."""
    model, stops = folder_of(name, folder)
    options = ModelOptions(folder=model, stops=stops, date=DAY)
    auditor = make_auditor(options)
    made: dict[str | None, list[Document]]
    clean, faulty = seeded(auditor.model, auditor.proving, count)
    made = {None: clean}
    for kind, document in faulty:
        made.setdefault(kind, []).append(document)
    chat = folder / "chat.jsonl"
    records = [conversation(seed) for seed in range(count)]
    records += [{**each, "id": f"{each['id']}?", "messages": [*each["messages"], QUESTION]} for each in records]
    chat.write_text("".join(json.dumps(each) + "\n" for each in records))
    result: list[Outcome] = []
    for kind, documents in made.items():
        data = write_masks(folder / "data.parquet", documents)
        for messages in (None, chat):
            rows = folder / "rows.jsonl"
            audit(AuditOptions(data=data, model=options, messages=messages, rows=rows), auditor=auditor)
            named: dict[int, set[str]] = defaultdict(set)
            for line in map(json.loads, rows.read_text().splitlines()):
                if line["class"] != classes.DUPLICATE:
                    named[line["row"]].add(line["class"])
            result += [
                Outcome(name, kind, messages is not None, frozenset(named[row])) for row in range(len(documents))
            ]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("templates", nargs="*", default=TEMPLATES)
    parser.add_argument("--conversations", type=int, default=40)
    given = parser.parse_args()
    table: dict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    lost: Counter[tuple[str, str, bool]] = Counter()
    for name in given.templates:
        with tempfile.TemporaryDirectory() as folder:
            for template, kind, messages, named in outcomes(name, Path(folder), given.conversations):
                counted = table[kind or "clean", messages]
                counted["all"] += 1
                counted["named"] += bool(named)
                if bool(named) != (kind is not None):
                    lost[template, kind or f"clean: {', '.join(sorted(named))}", messages] += 1
    print("| kind | documents | named alone | with messages |\n|---|---|---|---|")
    for kind in sorted({kind for kind, _ in table}):
        alone, both = table[kind, False], table[kind, True]
        print(f"| {kind} | {alone['all']} | {alone['named']} | {both['named']} |")
    for messages in (False, True):
        faults = [counted for (kind, with_them), counted in table.items() if kind != "clean" and with_them == messages]
        every, named = (sum(counted[name] for counted in faults) for name in ("all", "named"))
        print(f"{'with messages' if messages else 'alone'}: {named} of {every} faults named, {named / every:.1%}")
    for (template, kind, messages), number in sorted(lost.items()):
        print(f"{template}, {'with messages' if messages else 'alone'}: {kind} {number}")


if __name__ == "__main__":
    main()
