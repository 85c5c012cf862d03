"""Texts by paths are those of Jinja: of published templates, and of templates that hide what they read.

Some conversations are learned by rendering; those that are walked without were never rendered.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from spanloom.families.models.conversation import read_conversation
from spanloom.families.models.form import AsGiven, shaped
from spanloom.families.models.probe.form import find_form, variable_sets
from spanloom.tokenizers.chat_template import ChatTemplateError, load_chat_template
from spanloom.tokenizers.template_paths.expressions import Diverged, UnknownPath, Unloggable
from spanloom.tokenizers.template_paths.paths import Paths
from spanloom.tokenizers.template_paths.prefixes import NotLinear, Prefixes
from support.model_datasets import record
from support.model_material import DAY, ROOT, Pair, records
from support.nightly import drawn, nightly

Message = dict[str, Any]
Render = Callable[[Sequence[Message], Sequence[Any] | None, bool], str | None]
"""Messages, tools, whether the generation prompt is asked for → the text; None if the template raises."""

IN_CI = (
    "lcpp_deepseek-ai-DeepSeek-V3.2",
    "lcpp_meta-llama-Llama-3.1-8B-Instruct",
    "lcpp_moonshotai-Kimi-K2",
    "otc_glm-4.7-flash",
    "otc_qwen-3",
    "trl_gptoss",
    "trl_qwen2_5",
)


def counted(paths: Paths, render: Render, talks: Sequence[tuple[list[Message], Any]]) -> Counter[str]:
    """How the text of each prefix was found. Raises AssertionError for a text that is another one."""
    how: Counter[str] = Counter()
    for messages, tools in talks:
        for n in range(1, len(messages) + 1):
            prompt = messages[n - 1]["role"] != "assistant"
            expected = render(messages[:n], tools, prompt)
            found: str | None
            try:
                found, way = paths.text(messages[:n], tools, prompt=prompt), "walked"
            except UnknownPath:
                try:
                    found, way = paths.learn(messages[:n], tools, prompt=prompt), "learned"
                except (Unloggable, Diverged):
                    how["not by path"] += 1
                    continue
                except Exception:  # what a template raises is any of Python's and Jinja's
                    found, way = None, "raised"
            assert found == expected, f"{way}: {n} messages of {messages}"
            how[way] += 1
    return how


PUBLISHED = [
    path.stem if path.stem in IN_CI else nightly(path.stem) for path in sorted((ROOT / "templates").glob("*.jinja"))
]


@pytest.mark.parametrize("name", PUBLISHED or ["none"])
def test_texts_of_published_templates(name: str, model_material: list[Pair]) -> None:
    assert model_material
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    template = load_chat_template(ROOT / "templates" / f"{name}.jinja", special_tokens=special, now=DAY)
    sets = variable_sets(template, "auto", {})
    form = find_form(template, sets)
    given = [*records(), *map(record, range(drawn(nightly=60, otherwise=12)))]
    talks = []
    for each in (read_conversation(each, name="x") for each in given):
        messages = [shaped(message, form, AsGiven()) for message in each.messages]
        whole = [{key: value for key, value in message.items() if value is not None} for message in messages]
        talks.append((whole, list(each.tools) if each.tools else None))

    def render(messages: Sequence[Message], tools: Sequence[Any] | None, prompt: bool) -> str | None:
        try:
            return template.render(messages, tools=tools, add_generation_prompt=prompt, **sets[0])
        except ChatTemplateError:
            return None

    try:
        paths = Paths(template.text, {**special, **sets[0]}, DAY.strftime)
    except Unloggable:
        return
    how = counted(paths, render, talks)
    if name in IN_CI:
        assert how["walked"] > 2 * how["learned"] > 0


BODIES: Mapping[str, str] = {
    "joiner": "{% set sep = joiner('; ') %}{% for m in messages %}{{ sep() }}{{ m.content }}{% endfor %}",
    "cycler": "{% set c = cycler('a', 'b') %}{% for m in messages %}{{ c.next() }}{{ m.content }}{% endfor %}",
    "changed": "{% for m in messages %}{% if loop.changed(m.content) %}*{% endif %}{{ m.role }}{% endfor %}",
    "previtem": "{% for m in messages %}{% if loop.previtem and loop.previtem.content == m.content %}={% endif %}"
    "{{ m.content }}{% endfor %}",
    "nextitem": "{% for m in messages %}{{ m.content }}{% if loop.nextitem %}{{ loop.nextitem.role }}"
    "{% endif %}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0, last='') %}{% for m in messages %}"
    "{% if m.content == ns.last %}!{% endif %}"
    "{% set ns.last = m.content %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "length in a namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}"
    "{% set ns.n = ns.n + m.content | length %}{% endfor %}{% if ns.n > 40 %}long{% else %}short{% endif %}",
    "macro": "{% macro show(t) %}{% if t | length > 9 %}<{{ t }}>{% else %}{{ t }}{% endif %}{% endmacro %}"
    "{% for m in messages %}{{ show(m.content) }}{% endfor %}",
    "call": "{% macro box() %}[{{ caller() }}]{% endmacro %}{% for m in messages %}{% call box() %}{{ m.content }}"
    "{% endcall %}{% endfor %}",
    "set block": "{% for m in messages %}{% set t %}<{{ m.content }}>{% endset %}{{ t | upper }}{% endfor %}",
    "filter block": "{% for m in messages %}{% filter upper %}{{ m.content }}{% endfilter %}{% endfor %}",
    "last": "{{ messages[-1].content }}{% if messages[-1].content == messages[0].content %}same{% endif %}",
    "slice": "{% for m in messages[1:] %}{{ m.content[:3] }}|{{ m.content[-2:] }}{% endfor %}",
    "backwards": "{% for m in messages[::-1] %}{{ m.content }};{% endfor %}",
    "selectattr": "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join('+') }}",
    "groupby": "{% for role, some in messages | groupby('role') %}{{ role }}{{ some | length }}{% endfor %}",
    "unique": "{{ messages | map(attribute='content') | unique | join('/') }}",
    "sort": "{{ messages | map(attribute='content') | sort | join('/') }}",
    "batch": "{% for some in messages | batch(2) %}{{ some | length }}{% endfor %}",
    "break": "{% for m in messages %}{% if '?' in m.content %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "continue": "{% for m in messages %}{% if not m.content %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
    "filtered loop": "{% for m in messages if m.content | length > 5 %}{{ loop.index }}{{ m.content }}{% endfor %}",
    "else of a loop": "{% for m in messages if m.content == 'x' %}x{% else %}none{% endfor %}",
    "roles": "{% for m in messages %}{% if m.role in ['user', 'system'] %}u{% else %}{{ m['role'] }}"
    "{% endif %}{% endfor %}",
    "index": "{% for m in messages %}{% if loop.index0 % 2 == 0 %}{{ loop.revindex }}"
    "{% endif %}{{ m.content }}{% endfor %}",
    "neighbour": "{% for m in messages %}"
    "{% if loop.index0 and messages[loop.index0 - 1].role == m.role %}twice{% endif %}"
    "{{ m.content }}{% endfor %}",
    "dict": "{% set seen = dict() %}{% for m in messages %}{% set x = seen.update({m.content: 1}) %}"
    "{% endfor %}{{ seen }}",
    "list": "{% set seen = [] %}{% for m in messages %}{% set x = seen.append(m.content) %}"
    "{% endfor %}{{ seen | length }}",
}
"""Templates that read texts or state in a way of their own."""

_OF_A_TEXT = (
    "'x'.find(t)",
    "'yes' if t in 'hello there' else 'no'",
    "'hello' ~ t",
    "'a' + t",
    "'%s|%5.3s' % (t, t)",
    "'{}-{:>6}'.format(t, t)",
    "t | int(7)",
    "t | float(0.5)",
    "t | length",
    "t | wordcount",
    "t | upper",
    "t | title",
    "t | trim",
    "t | trim('h')",
    "t | replace('o', '0')",
    "t | indent(2)",
    "t | truncate(5, true)",
    "t | wordwrap(4)",
    "t | center(9)",
    "t | safe",
    "t | escape",
    "t | e ~ '<'",
    "t | striptags",
    "t | urlencode",
    "t | tojson",
    "t | first",
    "t | last",
    "t | list | join(',')",
    "t | reverse",
    "t | default('none', true)",
    "t * 2",
    "t.split('o') | length",
    "t.split()[-1] if t.split() else 'blank'",
    "t.partition(' ')[0]",
    "t.startswith(('h', 'a'))",
    "t.isdigit()",
    "t.strip().lower().capitalize()",
    "t.count('l')",
    "t.encode() | length",
    "t < 'm'",
    "t == 'hello'",
    "t is sameas 'hello'",
    "t is string",
    "t is in ['hello', 'a']",
    "{'hello': 1}[t]",
    "{'hello': 1}.get(t, 2)",
    "[t, 'a'] | sort | join",
    "(t, 'a') | max",
    "{t: 1} | items | list",
    "t[0] if t else ''",
    "t[::-1]",
    "t[1:4]",
    "('a', 'b')[t | length % 2]",
    "t | map('upper') | join",
    "t | select('equalto', 'l') | list | length",
    "not t",
    "t and t.strip()",
    "t or 'empty'",
    "'blank' if not t.strip() else t",
    "messages | length > t | length",
)
BODIES = {
    **BODIES,
    **{of: f"{{% for m in messages %}}{{% set t = m.content %}}({{{{ {of} }}}}){{% endfor %}}" for of in _OF_A_TEXT},
}

TEXTS = ("hello", "", " ", "a", "Hello there, all of you", "hello\n", "12", "3.5", "<b>&", "ls -l?", "hello", "ÄÖ lo")


def talks_of_texts() -> Iterator[tuple[list[Message], None]]:
    for first in range(len(TEXTS)):
        for count in (1, 2, 3, 5):
            roles = ["user", "assistant"] * 3
            texts = [TEXTS[(first + at * count) % len(TEXTS)] for at in range(count)]
            yield [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)], None


@pytest.mark.parametrize("name", sorted(BODIES))
def test_a_template_that_hides_what_it_reads_has_no_wrong_text(name: str) -> None:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)  # Jinja's own escapes HTML
    compiled = environment.from_string(BODIES[name])

    def render(messages: Sequence[Message], tools: Sequence[Any] | None, prompt: bool) -> str | None:
        try:
            return compiled.render(messages=messages, tools=tools, documents=None, add_generation_prompt=prompt)
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError):
            return None

    try:
        paths = Paths(BODIES[name], {})
    except Unloggable:
        return
    counted(paths, render, list(talks_of_texts()))


def test_all_prefixes_have_the_leaves_of_each_walked_alone(model_material: list[Pair]) -> None:
    assert model_material
    same = 0
    for name in ("otc_qwen-3", "otc_glm-4.7-flash", "lcpp_ibm-granite-granite-4.0"):
        template = load_chat_template(ROOT / "templates" / f"{name}.jinja", special_tokens={}, now=DAY)
        sets = variable_sets(template, "auto", {})
        form, paths = find_form(template, sets), Paths(template.text, sets[0], DAY.strftime)
        for seed in range(0, drawn(nightly=400, otherwise=40), 4):
            given = [each for more in range(4) for each in record(seed + more, tools=False)["messages"]]
            talk = read_conversation({"messages": [each for each in given if each["role"] != "system"]}, name="x")
            messages = [shaped(message, form, AsGiven()) for message in talk.messages]
            prefixes = Prefixes(paths, messages, None, lambda leaf: leaf)
            for n in range(1, len(messages) + 1):
                prompt = messages[n - 1]["role"] != "assistant"
                try:
                    found = prefixes.prefix(n, prompt=prompt)
                except (UnknownPath, NotLinear):
                    paths.learn(messages[:n], None, prompt=prompt)
                    prefixes = Prefixes(paths, messages, None, lambda leaf: leaf)
                    continue
                loops = found.states.loops
                state = found.states.before(len(loops) - 1)
                after = [found.states[at] for at in range(len(loops) - 1)]
                alone = []
                for place in loops[-1].places(n):
                    values = (messages[:n], messages[place], place, n, state, None, after)
                    alone.append(leaf := paths.leaf(loops[-1].body, *values))
                    state = {**state, **(paths.state_of(leaf)(*values) if leaf.sets else {})}
                assert list(found.leaves) == alone
                same += 1
    assert same > 100
