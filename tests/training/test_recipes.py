"""The recipes of docs/training/ run as they stand there, on the dataset of `make demo`.

Changed for a test is what a test cannot have: the model's name, Megatron's flags for GPUs, and the time for rows of 256
or 512 logits over 201,088 tokens.
"""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from support import warm
from support.demo_datasets import demo  # noqa: F401  a fixture
from support.hugging_face_rank import tiny_llama, tokenizer
from support.megatron_lm import CPU, REPOSITORY, figures, launcher


def recipe(name: str) -> list[str]:
    """The code blocks below a heading."""
    text = "".join(page.read_text() for page in sorted((REPOSITORY / "docs/training").glob("*.md")))
    section = re.search(rf"^## Recipe: {name}\n(.*?)^##", text, re.DOTALL | re.MULTILINE)
    assert section, name
    return re.findall(r"^```\w+\n(.*?)^```", section[1], re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(demo: Path, tmp_path: Path) -> Path:  # noqa: F811
    """Where the recipes are pasted: the demo lies where `make demo` leaves it."""
    (tmp_path / "data/demo").mkdir(parents=True)
    (tmp_path / "data/demo/synth_kd").symlink_to(demo)
    return tmp_path


def run(folder: Path, command: list[str], **environment: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def commands(block: str) -> list[list[str]]:
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]


def forked(folder: Path, module: str, *arguments: object) -> str:
    done = warm.run(module, *arguments, cwd=folder, env={**os.environ})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def spanloom(folder: Path, command: list[str]) -> None:
    assert command[0] == "spanloom"
    forked(folder, *command)


def script(folder: Path, block: str) -> str:
    (folder / "recipe.py").write_text(block)
    return forked(folder, "support.script", folder / "recipe.py")


@pytest.mark.parametrize("which", ["0.16.1", "0.19.0"])
def test_megatron_lm(folder: Path, megatron_lm: Path, which: str) -> None:
    version = launcher(megatron_lm, which)
    (block,) = recipe("Megatron-LM")
    blend, train = commands(block)
    spanloom(folder, blend)
    assert train[0] == "torchrun"
    at, there = train.index("-m"), train.index("--megatron-lm")
    assert train[at + 1] == "spanloom.training.pretrain_gpt"
    ours = [*train[1:at], str(REPOSITORY / "tests/support/pretrain_gpt_rank.py"), *train[at + 2 : there]]
    # What a CPU needs, and a smaller model on shorter samples; of two flags Megatron takes the last.
    small = (
        "--seq-length 64 --num-layers 1 --hidden-size 16 --num-attention-heads 2 --global-batch-size 2 --train-iters 2"
    )
    small += " --eval-interval 2 --eval-iters 1 --position-embedding-type learned_absolute"
    ours += [*train[there + 2 :], *small.split(), *CPU.split()]
    command = [str(version.python), "-m", "torch.distributed.run", "--standalone", *ours]
    output = run(folder, command, **version.environment)
    logged = figures(output)
    assert len(logged) == 4
    assert all(float(each["analysis tokens"]) > 0 and float(each["weighted loss"]) > 0 for each in logged)
    # The embedding is gpt-oss's.
    assert re.search(r"padded_vocab_size \.+ (201088|None)", output)
    if which == "0.16.1":
        assert "(tensor, pipeline) model parallel rank (0, 0)" in output


def test_plain_pytorch(folder: Path) -> None:
    (block,) = recipe("plain PyTorch")
    for given, small in (("(201_088, 32)", "(201_088, 2)"), ("(32, 201_088)", "(2, 201_088)"), ("=256", "=64")):
        assert block.count(given) == 1
        block = block.replace(given, small)
    shown = script(folder, block)
    assert re.fullmatch(r"(step \d: loss \d+\.\d{3}, tokens {'analysis': \d+, 'final': \d+}\n){3}", shown)


@pytest.mark.nightly  # `make test` trains with TRL on exports of two families
def test_any_model(folder: Path) -> None:
    export, block = recipe("any model")
    spanloom(folder, *commands(export))
    model = folder / "tiny"
    tiny_llama(vocab_size=201_088).save_pretrained(model)
    tokenizer().save_pretrained(model)
    for given, small in (('"openai/gpt-oss-20b"', repr(str(model))), ("max_length=None", "max_length=96")):
        assert block.count(given) == 1
        block = block.replace(given, small)
    assert "'eval_loss'" in script(folder, block)


@pytest.mark.nightly  # `make test` trains with TRL on exports of two families
def test_trl(folder: Path) -> None:
    export, block = recipe("TRL")
    spanloom(folder, *commands(export))
    model = folder / "tiny"
    tiny_llama(vocab_size=201_088).save_pretrained(model)
    tokenizer().save_pretrained(model)
    assert block.count('MODEL = "openai/gpt-oss-20b"') == 1
    block = block.replace('"openai/gpt-oss-20b"', repr(str(model)))
    assert block.count("max_length=512") == 1
    shown = script(folder, block.replace("max_length=512", "max_length=96"))
    for name in ("'analysis_loss'", "'final_tokens'", "'eval_loss'", "'eval_analysis_loss'"):
        assert name in shown


def test_several_datasets(folder: Path) -> None:
    (block,) = recipe("several datasets")
    made = ("--out", "data/demo/chat", "--valid-fraction", "0.3", "--allow-unknown-sha")
    chat = str(REPOSITORY / "docs/examples/chat.jsonl")
    spanloom(folder, ["spanloom", "convert", chat, "--out", "data/demo/chat_source", "--yes"])
    spanloom(folder, ["spanloom", "build", "--source", "data/demo/chat_source", *made])
    for name in ("synth_kd", "chat"):
        spanloom(folder, ["spanloom", "export", f"data/demo/{name}", "--to", "trl", "--out", f"data/demo/trl_{name}"])
    count = """
torch.manual_seed(0)
chats = set(map(tuple, exports[1]["input_ids"]))
print(sum(tuple(row) in chats for row in rows["input_ids"]), len(rows))
print(sum(index >= len(parts[0]) for index in sampler), sum(len(batch["tokens"]) for batch in loader))
"""
    chats, mixed, drawn, samples = map(int, script(folder, block + count).split())
    assert 0 < chats < mixed
    assert 140 < drawn < 260, "a fifth of 1,000 draws, within five standard deviations"
    assert samples == 1000
