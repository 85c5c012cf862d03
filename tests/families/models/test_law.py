"""Drawn conversations for six models: each row that validation renders again has the tokens and labels of the build."""

import os
from pathlib import Path

import pytest

import spanloom
from support.model_datasets import record, stored, write_conversations
from support.model_material import Pair, write_pair
from support.nightly import nightly

DRAWN = int(os.environ.get("SPANLOOM_CHAT_LAW", "30"))
"""Conversations of each model; `make law` takes 10,000."""
MODELS = (
    "trl_qwen2_5",
    nightly("otc_qwen-3"),
    nightly("otc_glm-4.7-flash"),
    nightly("lcpp_deepseek-ai-DeepSeek-V3.2"),
    nightly("lcpp_unsloth-mistral-Devstral-Small-2507"),
    nightly("lcpp_openai-gpt-oss-120b"),
)


@pytest.mark.slow
@pytest.mark.parametrize("template", MODELS)
def test_a_second_program_makes_the_same_of_all(template: str, model_material: list[Pair], tmp_path: Path) -> None:
    (pair,) = [each for each in model_material if each.template == template]
    records = [record(seed) for seed in range(DRAWN)]
    source = write_conversations(tmp_path / "source", [[stored(each) for each in records]])
    result = spanloom.build(
        source=source,
        out=tmp_path / "root",
        model=write_pair(pair, tmp_path / "model"),
        stop=pair.stops,
        date="2025-01-01",
        inline_think=True,
        max_rejects="50%",  # the template of gpt-oss writes some histories otherwise than its prompts
        valid_fraction=0,
        shards=1,
        deep=DRAWN,
        allow_unknown_sha=True,
    )
    assert result.report.clean
    checked = result.report.checked
    assert checked["rows rendered again"] + checked.get("refused rows judged again", 0) == DRAWN
    assert checked["rows rendered again"] > (0.5 if "gpt-oss" in template else 0.8) * DRAWN
