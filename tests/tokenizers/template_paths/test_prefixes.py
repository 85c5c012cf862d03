"""The leaves of all prefixes of a conversation write what Jinja writes for each."""

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from spanloom.tokenizers.chat_template import load_chat_template
from spanloom.tokenizers.template_paths.expressions import UnknownPath, Unloggable
from spanloom.tokenizers.template_paths.paths import Paths
from spanloom.tokenizers.template_paths.prefixes import NotLinear, Prefixes
from support.drawn_chats import drawn_record
from support.nightly import drawn, nightly

DAY = datetime(2025, 1, 1)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
FOLDER = Path(os.environ.get("SPANLOOM_MODELS") or Path(__file__).parents[3] / "../shared/models") / "templates"
TEMPLATES = sorted(FOLDER.glob("*.jinja"))
IN_CI = ("otc_qwen-3", "otc_glm-4.7-flash", "lcpp_meta-llama-Llama-3.1-8B-Instruct", "otc_deepseek-v3.1")
BY_NIGHT = [path if path.stem in IN_CI else nightly(path) for path in TEMPLATES]
"""All templates; those of `IN_CI` by day."""

Message = dict[str, Any]


def conversation(seed: int) -> tuple[list[Message], list[Any] | None]:
    record = drawn_record(seed)
    messages = [{key: value for key, value in each.items() if value is not None} for each in record["messages"]]
    return messages, record.get("tools")


@pytest.mark.usefixtures("model_material")
@pytest.mark.parametrize("path", BY_NIGHT or [Path("none")], ids=lambda path: path.stem)
def test_leaves_of_all_prefixes_write_the_texts_of_jinja(path: Path) -> None:
    template = load_chat_template(path, special_tokens=TOKENS, now=DAY)
    try:
        paths = Paths(template.text, template.special_tokens, DAY.strftime)
    except Unloggable:
        return
    equal = 0
    for seed in range(drawn(60, 12)):
        messages, tools = conversation(seed)
        messages += [each for each in messages if each["role"] != "system"] * 2
        texts: dict[tuple[int, bool], str] = {}
        for n in range(1, len(messages) + 1):
            for prompt in (True, False):
                try:
                    texts[n, prompt] = paths.learn(messages[:n], tools, prompt=prompt)
                except Exception:  # the template raises, or has no paths
                    continue
        walked = Prefixes(paths, messages, tools)
        for (n, prompt), text in texts.items():
            try:
                assert written(walked, n, prompt=prompt) == text
                equal += 1
            except (UnknownPath, NotLinear):
                continue
    if path.stem in IN_CI:
        assert equal > 60


def written(walked: Prefixes, n: int, *, prompt: bool) -> str:
    """The text of a prefix by its leaves."""
    paths, messages, tools = walked.paths, walked.messages, walked.tools
    prefix = walked.prefix(n, prompt=prompt)
    states = prefix.states
    main = len(states.loops) - 1
    pieces = []
    for part in prefix.top.out:
        if part[0] != "loop":
            pieces.append(paths.compiler.of(part)(messages, None, None, n, None, tools, states))
        elif part[1] == main:
            state = states.before(main)
            for place, leaf in enumerate(prefix.leaves, prefix.first):
                values = (messages, messages[place], place, n, state, tools, states)
                pieces.append(paths.text_of(leaf)(*values))
                if leaf.sets:
                    state = {**state, **paths.state_of(leaf)(*values)}
    return "".join(pieces)
