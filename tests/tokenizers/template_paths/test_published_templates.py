"""Published templates: texts by path are those of plain Jinja, for conversations that were not learned."""

from pathlib import Path

import pytest

from support import model_material
from support.compared_paths import compared
from support.model_datasets import record

TEMPLATES = sorted((model_material.ROOT / "templates").glob("*.jinja"))
FEW = (
    *("otc_qwen-3", "otc_qwen-2.5", "lcpp_GLM-4.7-Flash", "lcpp_openai-gpt-oss-120b", "otc_deepseek-v3.1"),
    *("lcpp_Kimi-K2-Instruct", "lcpp_MiniMax-M2", "lcpp_HuggingFaceTB-SmolLM3-3B", "lcpp_ByteDance-Seed-OSS"),
    *("lcpp_meta-llama-Llama-3.1-8B-Instruct", "lcpp_Mistral-Small-3.2-24B-Instruct-2506", "lcpp_LFM2-8B-A1B"),
)


pytestmark = pytest.mark.usefixtures("model_material")


@pytest.mark.parametrize("name", FEW)
def test_texts_by_path_are_those_of_plain_jinja(name: str) -> None:
    text = (model_material.ROOT / "templates" / f"{name}.jinja").read_text()
    outcomes = compared(text, [*model_material.records()[:15], *map(record, range(45))])
    assert outcomes.different == []
    assert outcomes.counts["walked"] > 0
    assert outcomes.counts["diverged"] == 0


@pytest.mark.nightly
@pytest.mark.parametrize("path", TEMPLATES or [Path("none")], ids=lambda path: path.stem)
def test_texts_of_all_templates_by_path(path: Path) -> None:
    outcomes = compared(path.read_text(), [*model_material.records(), *map(record, range(170))])
    assert outcomes.different == []
    assert sum(outcomes.counts.values()) >= 400
