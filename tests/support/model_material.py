"""True tokenizers, templates and conversations beside the checkout: which belong together.

In: the folder that `SPANLOOM_MODELS` names. Out: pairs of a tokenizer and a template, with the stop tokens that the
models' own files declare.
"""

import gzip
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from spanloom.families.models.model import Model, load_model
from spanloom.tokenizers.chat_template import load_chat_template

ROOT = Path(os.environ.get("SPANLOOM_MODELS") or Path(__file__).parents[2] / "../shared/models")

DAY = datetime(2025, 1, 1)
"""What templates take for today."""

_FAMILIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # tokenizer, templates, stop tokens
    ("qwen-2.5", r"otc_qwen-2\.5|trl_qwen2_5(_training)?|lcpp_Qwen-Qwen2\.5.*", ("<|im_end|>", "<|endoftext|>")),
    (
        "qwen-3",
        r"otc_qwen-3|lcpp_Qwen-Qwen3-.*|lcpp_Qwen3-Coder|trl_qwen3(_training)?|trl_qwen3_instruct_2507(_training)?",
        ("<|im_end|>", "<|endoftext|>"),
    ),
    ("deepseek-r1", r"otc_deepseek-r1|otc_deepseek-v3|lcpp_llama-cpp-deepseek-r1", ("<｜end▁of▁sentence｜>",)),
    ("deepseek-v3.1", r"otc_deepseek-v3\.1|lcpp_deepseek-ai-DeepSeek-V3\.[12]", ("<｜end▁of▁sentence｜>",)),
    ("glm-4-32b-0414", r"otc_glm-4-32b-0414|otc_glm-4-9b-0414", ("<|endoftext|>", "<|user|>", "<|observation|>")),
    (
        "glm-4.7-flash",
        r"otc_glm-4\.7-flash|lcpp_GLM-4\.7-Flash|otc_glm-5(\.1)?",
        ("<|endoftext|>", "<|user|>", "<|observation|>"),
    ),
    ("gptoss", r"lcpp_openai-gpt-oss-120b|trl_gptoss(_training)?", ("<|return|>", "<|call|>", "<|endoftext|>")),
    ("tekken_nemo", r"lcpp_mistralai-Mi.*|lcpp_Mistral-.*|lcpp_unsloth-mistral-.*", ("</s>",)),
)


@dataclass(frozen=True)
class Pair:
    """A tokenizer, a template for it, and its stop tokens."""

    tokenizer: str
    template: str
    stops: tuple[str, ...]


def pairs() -> list[Pair]:
    """All pairs whose files are there, by tokenizer. Empty where the folder is not there."""
    templates = sorted(path.stem for path in (ROOT / "templates").glob("*.jinja"))
    return [
        Pair(tokenizer, template, stops)
        for tokenizer, pattern, stops in _FAMILIES
        if (ROOT / "tokenizers" / f"{tokenizer}.json.gz").is_file()
        for template in templates
        if re.fullmatch(pattern, template)
    ]


def models_of(pairs_of_one: Sequence[Pair], folder: Path, day: datetime = DAY) -> Iterator[tuple[Pair, Model]]:
    """The models of some pairs. A tokenizer is loaded once for the pairs of it that follow each other.

    `day`: what templates take for today.
    """
    model, name = None, None
    for pair in pairs_of_one:
        if model is None or name != pair.tokenizer:
            written = write_pair(pair, folder / pair.tokenizer)
            model, name = load_model(written, stops=pair.stops, date=day), pair.tokenizer
        template = load_chat_template(
            ROOT / "templates" / f"{pair.template}.jinja", special_tokens=model.template.special_tokens, now=day
        )
        yield pair, replace(model, name=pair.template, template=template)


def write_pair(pair: Pair, folder: Path) -> Path:
    """The pair as a model's folder."""
    folder.mkdir(exist_ok=True)
    packed = ROOT / "tokenizers" / f"{pair.tokenizer}.json.gz"
    (folder / "tokenizer.json").write_bytes(gzip.decompress(packed.read_bytes()))
    config = ROOT / "configs" / f"{pair.tokenizer}.json"
    values = json.loads(config.read_text()) if config.is_file() else {"bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    (folder / "chat_template.jinja").write_bytes((ROOT / "templates" / f"{pair.template}.jinja").read_bytes())
    return folder


def records() -> list[dict[str, Any]]:
    """The conversations that lie beside the templates."""
    return [json.loads(line) for line in (ROOT / "conversations.jsonl").read_text().splitlines()]
