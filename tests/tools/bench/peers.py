"""Other ways to the same tokens, over the same conversations: the record route, Megatron's tool, Hugging Face.

In: a small and a big source. Out: trials of the form that `speed` has, and what of the result equals the record route.
They are slower than `spanloom build`, so their sources are smaller; the rates are marginal all the same.
"""

import json
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.conversations.source.folder import open_source, parts_of, read_rows
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.render.routes import load_renderer
from spanloom.families.harmony.tokenizer import EOD
from tools.bench import chat_template
from tools.bench.pieces import write_tokenizer_json
from tools.bench.processes import run
from tools.bench.speed import Trial, build_command, environment, run_build, trial_of

RECORD = "build --renderer harmony"
MEGATRON_TIKTOKEN = "preprocess_data, tiktoken"
MEGATRON_HF = "preprocess_data, HF tokenizers"
CHAT = "HF apply_chat_template"
PEERS = {
    RECORD: (),
    MEGATRON_TIKTOKEN: ("tiktoken", "megatron"),
    MEGATRON_HF: ("tokenizers", "megatron"),
    CHAT: ("tokenizers", "transformers"),
}
"""Name → what must be installed for it."""
LACKS = {
    RECORD: "nothing: it is `spanloom build`, rendered by openai-harmony throughout",
    MEGATRON_TIKTOKEN: "starts from text rendered beforehand (untimed); no mask, spans, split, checks, validation",
    MEGATRON_HF: "the same",
    CHAT: "no spans, split, checks, validation, Megatron files; a template for these conversations alone",
}


def measure(
    sources: list[tuple[Path, int]], work: Path, tokenizer: Path, repeats: range, say: Callable[[str], None]
) -> dict[str, Any]:
    """Every peer that is installed over both sources, once a repeat, in turns."""
    folder = work / "peers"
    folder.mkdir(exist_ok=True)
    able = [name for name, needs in PEERS.items() if all(find_spec(package) for package in needs)]
    for name in PEERS.keys() - able:
        say(f"{name} is left out: it needs {' and '.join(PEERS[name])} (pip install -e '.[bench]')")
    if find_spec("tokenizers"):
        write_tokenizer_json(tokenizer, folder / "o200k_harmony.json", specials=True)
    wanted = {source: _prepare(source, folder, tokenizer) for source, _ in sources}
    trials: list[Trial] = []
    equal: dict[str, dict[str, bool]] = {}
    for repeat in repeats:
        for name in able:
            for source, rows in sources:
                trial, arrays = _trial(name, repeat, source, rows, folder, tokenizer)
                say(f"run {repeat + 1}, {name}, {rows:,} rows: {trial.tokens:,} tokens in {trial.seconds:.1f} s")
                trials.append(trial)
                for which, found in arrays.items():
                    so_far = equal.setdefault(name, {})
                    so_far[which] = so_far.get(which, True) and np.array_equal(found, wanted[source][which])
    return {"trials": trials, "equal": equal, "skipped": sorted(PEERS.keys() - able)}


def _trial(
    name: str, repeat: int, source: Path, rows: int, folder: Path, tokenizer: Path
) -> tuple[Trial, dict[str, np.ndarray]]:
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    if name == RECORD:
        finished, totals = run_build(build_command(source, out, tokenizer, 1, "--renderer", "harmony"), out)
        tokens = sum(split["tokens"] for split in totals["splits"].values())
        return trial_of(name, repeat, rows, tokens, finished), {}
    vocabulary = ("--tokenizer-json", str(folder / "o200k_harmony.json"))
    if name == CHAT:
        command = [sys.executable, "-m", "tools.bench.chat_template", str(source), str(out), *vocabulary]
    else:
        kind = "tiktoken" if name == MEGATRON_TIKTOKEN else "hf"
        text = _rendered_text(source, folder)
        command = [sys.executable, "-m", "tools.bench.preprocess", str(text), str(out), *vocabulary]
        command += ["--tokenizer", str(tokenizer), "--kind", kind]
    finished = run(command, environment())
    trial = trial_of(name, repeat, rows, json.loads(finished.stdout)["tokens"], finished)
    if name == CHAT:
        tokens_found, mask = chat_template.read_arrays(out)
        arrays = {"tokens": tokens_found, "mask": mask}
    else:
        arrays = {"tokens": np.fromfile(out / "text_document.bin", dtype=np.int32)}
    shutil.rmtree(out)
    return trial, arrays


def _rendered_text(source: Path, folder: Path) -> Path:
    return folder / f"{source.name}.jsonl"


def _prepare(source: Path, folder: Path, tokenizer: Path) -> dict[str, np.ndarray]:
    """Renders the source, untimed: as text for Megatron's tool, and as arrays to hold the peers against.

    Through the fast renderer: `speed.check_equal` holds it against openai-harmony, and every build audits it.
    """
    renderer = load_renderer("fast", tokenizer)
    tokens, masks = [], []
    with _rendered_text(source, folder).open("w", encoding="utf-8") as stream:
        for shard in open_source(source).shards:
            for part in parts_of(shard):
                for batch in read_rows(shard, part):
                    texts = batch.messages_json.to_pylist()
                    documents = renderer.render([parse_conversation(text) for text in texts]).documents
                    for document in np.split(documents.tokens, np.cumsum(documents.lengths)[:-1]):
                        assert document[-1] == EOD
                        text = renderer.encoding.decode(document[:-1].tolist())
                        stream.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                    tokens.append(documents.tokens)
                    masks.append(documents.loss_mask)
    return {"tokens": np.concatenate(tokens), "mask": np.concatenate(masks)}
