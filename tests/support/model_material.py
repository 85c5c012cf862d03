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

STAND_IN = "qwen-3"
"""The tokenizer whose pieces stand in for one that is not there."""

_SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
"""Of models without a config here."""

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

_CHATML = ("<|im_end|>", "<|endoftext|>")
_STAND_INS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # templates whose tokenizer is not there, stop tokens; the first line that matches counts
    (r"lcpp_Apertus.*", ("<|assistant_end|>", "<|tools_suffix|>")),
    (r"lcpp_(unsloth-)?Apriel.*", ("<|end|>",)),
    (r"lcpp_ByteDance.*", ("<seed:eos>",)),
    (r"lcpp_Cohere.*|trl_cohere.*", ("<|END_OF_TURN_TOKEN|>",)),
    (r"lcpp_GigaChat.*", ("<|message_sep|>",)),
    (r"lcpp_Kimi-K3", ("<|end_of_msg|>",)),
    (r"lcpp_MiniMax-M1|otc_minimax-(m1|text).*", ("<end_of_sentence>",)),
    (r"lcpp_MiniMax-M2|otc_minimax", ("[e~[",)),
    (r"lcpp_NVIDIA-Nemotron-Nano-v2", ("<SPECIAL_12>",)),
    (r"lcpp_Reka.*", ("<sep>",)),
    (r"otc_deepseek-v2|lcpp_llama-cpp-rwkv.*|trl_llava.*", ("</s>",)),
    (r"otc_deepseek-vl2-small", ("<|EOT|>",)),
    (r"lcpp_Spark.*|.*deep[sS]eek.*", ("<｜end▁of▁sentence｜>",)),
    (r"lcpp_(fireworks|meetkai|meta).*|lenml_llama.*|trl_llama3.*", ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")),
    (r"lcpp_google-gemma-2.*|lenml_gemma3|trl_gemma3?(_training)?", ("<end_of_turn>",)),
    (r"lcpp_google-gemma-4.*|trl_gemma4.*|trl_diffusion_gemma.*", ("<turn|>", "<|tool_response>")),
    (r"lcpp_ibm-granite.*", ("<|end_of_text|>",)),
    (r"lcpp_inclusion.*", ("<|role_end|>",)),
    (r"lcpp_microsoft-Phi.*|trl_phi.*", ("<|end|>", "<|endoftext|>")),
    (r".*muse[-_]glimmer.*", ("<|eot|>",)),
    (r"lcpp_poolside.*", ("</assistant>",)),
    (r"lcpp_tencent.*", ("<｜hy_eos:opensource｜>",)),
    (r"lcpp_upstage.*", ("<|end|>", "<|calls|>")),
    (r"otc_glm.*", ("<|endoftext|>", "<|user|>", "<|observation|>")),
    (r"trl_(idefics|smolvlm).*", ("<end_of_utterance>",)),
    (r".*", _CHATML),
)
_MARKERS = re.compile(
    r"<\|[^|<>\s{}'\"]+\|?>|<[a-z_]+\|>|<｜[^｜<>]+｜>|\]~!?b?\[?\]?|\[e~\[|<SPECIAL_\d+>|<(?:start|end|beginning)_of_\w+>"
    r"|<seed:\w+>|</?(?:assistant|user|system|role)>|\[/?[A-Z_]{3,}\]|<sep>"
)
"""What is a control token in templates whose tokenizer is not there."""


@dataclass(frozen=True)
class Pair:
    """A tokenizer, a template for it, and its stop tokens.

    `markers`: texts that the template writes and the tokenizer lacks. It is a stand-in, and gets them as its control
    tokens.
    """

    tokenizer: str
    template: str
    stops: tuple[str, ...]
    markers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the model's folder."""
        return self.template if self.markers else self.tokenizer


def pairs() -> list[Pair]:
    """All pairs whose files are there, by tokenizer. Empty where the folder is not there."""
    return [
        Pair(tokenizer, template, stops)
        for tokenizer, pattern, stops in _FAMILIES
        if (ROOT / "tokenizers" / f"{tokenizer}.json.gz").is_file()
        for template in _templates()
        if re.fullmatch(pattern, template)
    ]


def stand_ins() -> list[Pair]:
    """The templates without a tokenizer here, each with the pieces of Qwen3 and its own control tokens."""
    if not (ROOT / "tokenizers" / f"{STAND_IN}.json.gz").is_file():
        return []
    paired = {pair.template for pair in pairs()}
    made = []
    for template in _templates():
        if template not in paired:
            stops = next(stops for pattern, stops in _STAND_INS if re.fullmatch(pattern, template))
            text = (ROOT / "templates" / f"{template}.jinja").read_text()
            markers = sorted({*_MARKERS.findall(text), *stops, *_SPECIAL_TOKENS.values()})
            made.append(Pair(STAND_IN, template, stops, tuple(markers)))
    return made


def _templates() -> list[str]:
    return sorted(path.stem for path in (ROOT / "templates").glob("*.jinja"))


def models_of(pairs_of_one: Sequence[Pair], folder: Path, day: datetime = DAY) -> Iterator[tuple[Pair, Model]]:
    """The models of some pairs. A tokenizer is loaded once for the pairs of it that follow each other.

    `day`: what templates take for today.
    """
    model, name = None, None
    for pair in pairs_of_one:
        if model is None or name != pair.name:
            written = write_pair(pair, folder / pair.name)
            model, name = load_model(written, stops=pair.stops, date=day), pair.name
        template = load_chat_template(
            ROOT / "templates" / f"{pair.template}.jinja", special_tokens=model.template.special_tokens, now=day
        )
        yield pair, replace(model, name=pair.template, template=template)


def write_pair(pair: Pair, folder: Path) -> Path:
    """The pair as a model's folder."""
    folder.mkdir(exist_ok=True)
    data = gzip.decompress((ROOT / "tokenizers" / f"{pair.tokenizer}.json.gz").read_bytes())
    if pair.markers:
        tokenizer = json.loads(data)
        added, pieces = tokenizer["added_tokens"], tokenizer["model"]["vocab"]
        for marker in sorted(set(pair.markers) - {each["content"] for each in added}):
            number = pieces.get(marker, max(each["id"] for each in added) + 1)
            added.append({**added[0], "id": number, "content": marker, "special": True})
        data = json.dumps(tokenizer).encode()
    (folder / "tokenizer.json").write_bytes(data)
    config = ROOT / "configs" / f"{pair.tokenizer}.json"
    values = json.loads(config.read_text()) if config.is_file() and not pair.markers else _SPECIAL_TOKENS
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    (folder / "chat_template.jinja").write_bytes((ROOT / "templates" / f"{pair.template}.jinja").read_bytes())
    return folder


def records() -> list[dict[str, Any]]:
    """The conversations that lie beside the templates."""
    return [json.loads(line) for line in (ROOT / "conversations.jsonl").read_text().splitlines()]
