"""What every image must be: small, of this commit, without a user of power, a compiler or a secret."""

import json
import re
from functools import cache
from typing import Any

import pytest

from containers.conftest import BASE, NARROW, STEPS, Containers, checkout_sha, docker, image
from spanloom.tokenizers.o200k.asset import ASSET_SHA256
from support.each import each

Images = dict[str, dict[str, Any]]
ALL = [*STEPS, "train", "traces-api"]
COMPILERS = "command -v gcc cc make || true"
pytestmark = pytest.mark.containers


@cache
def compilers_of_the_base() -> str:
    return docker("run", "--rm", "--entrypoint", "sh", BASE, "-c", COMPILERS).stdout.strip()


@each("step", ALL)
def test_an_image_says_its_name_and_which_commit_it_is_of(step: str, images: Images, containers: Containers) -> None:
    environment = dict(variable.split("=", 1) for variable in images[step]["Config"]["Env"])
    assert environment["SPANLOOM_GIT_SHA"] == checkout_sha()
    assert environment["SPANLOOM_IMAGE"] == image(step)
    labels = images[step]["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == f"spanloom-{step}"
    assert labels["org.opencontainers.image.base.name"] == BASE
    assert checkout_sha() in containers.inside(step, "spanloom", "--version")


@each("step", ALL)
def test_an_image_runs_as_a_numeric_user_that_is_not_root(step: str, images: Images, containers: Containers) -> None:
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", images[step]["Config"]["User"])
    assert containers.inside(step, "id", "-u") == "65532"
    assert containers.run(step, "touch", "/opt/venv/x").returncode != 0


@each("step", ALL)
def test_no_compiler_no_pip_no_cache_in_an_image(step: str, containers: Containers) -> None:
    assert containers.inside(step, "sh", "-c", COMPILERS) == compilers_of_the_base()
    assert (
        containers.inside(step, "sh", "-c", "ls -d /opt/venv/bin/pip* /root/.cache/pip /src 2>/dev/null || true") == ""
    )


@each("step", ALL)
def test_no_secret_in_a_layer_or_the_configuration(step: str, images: Images, containers: Containers) -> None:
    history = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", image(step)).stdout
    texts = history + json.dumps(images[step]["Config"])
    assert not re.search(
        r"://[^/\s\"]+:[^/\s\"]+@|password|aws_secret|BEGIN [A-Z ]*KEY|index-url", texts, re.IGNORECASE
    )
    assert "run/pip.conf" not in containers.inside(step, "sh", "-c", "ls /run/pip.conf 2>/dev/null || true")


# Of each module: is its byte code there, and made for the time that its source has?
BYTE_CODE = """
import importlib.util, pathlib, struct, spanloom
for source in sorted(pathlib.Path(spanloom.__file__).parent.rglob("*.py")):
    flags, time = struct.unpack("<II", pathlib.Path(importlib.util.cache_from_source(source)).read_bytes()[4:12])
    print(flags, time == int(source.stat().st_mtime) == 315532800)
"""


@each("step", ["render-shard", "validate-alignment", "traces-api", "train"])
def test_files_of_an_image_have_one_time_and_byte_code_that_fits_it(step: str, containers: Containers) -> None:
    assert containers.inside(step, "find", "/opt/venv", "/opt/sbom.cdx.json", "-newermt", "@315532800") == ""
    lines = containers.inside(step, "python", "-c", BYTE_CODE).splitlines()
    assert set(lines) == {"0 True"}
    assert len(lines) > 100


WITH_TORCH = ("validate-alignment", "validate-shard", "assemble-validation", "score-teacher", "validate-teacher")


@each("step", [step for step in STEPS if step not in WITH_TORCH])
def test_a_data_image_is_at_most_450_mb_above_its_base(step: str, images: Images, containers: Containers) -> None:
    (base,) = json.loads(docker("image", "inspect", BASE).stdout)
    assert images[step]["Size"] - base["Size"] <= 450e6
    assert containers.run(step, "python", "-c", "import torch").returncode != 0


@each(
    "step", ["verify-tokenizer", "render-shard", "validate-alignment", "validate-shard", "generate-chat", "pack-chat"]
)
def test_images_that_tokenise_carry_the_verified_asset(step: str, containers: Containers) -> None:
    assert containers.inside(step, "sha256sum", "/opt/tokenizer/o200k_base.tiktoken").startswith(ASSET_SHA256)


def test_megatron_reads_in_the_images_that_need_it(containers: Containers) -> None:
    program = "import megatron.core.datasets.indexed_dataset, torch; print(torch.cuda.is_available())"
    for step in ("validate-alignment", "validate-shard", "train"):
        assert containers.inside(step, "python", "-W", "ignore", "-c", program).endswith("False")


def test_training_starts_in_its_image(containers: Containers) -> None:
    assert "--index-cache" in containers.inside("train", "python", "/opt/examples/training/gpt.py", "--help")
    assert (
        containers.inside("train", "python", "-c", "import tensorboard; print(tensorboard.__name__)") == "tensorboard"
    )


def test_a_teacher_can_be_loaded_in_its_image(containers: Containers) -> None:
    program = "import os, transformers; print(os.path.isfile('/opt/tokenizer/o200k_base.tiktoken'))"
    assert containers.inside("score-teacher", "python", "-W", "ignore", "-c", program) == "True"


def test_the_service_starts_in_its_image(containers: Containers) -> None:
    assert "--token-file" in containers.inside("traces-api", "spanloom", "traces", "serve", "--help")
    assert (
        containers.inside("traces-api", "python", "-c", "import fastapi, psycopg, uvicorn; print(psycopg.pq.__impl__)")
        == "binary"
    )
    refused = docker("run", *NARROW, image("traces-api"), check=False)  # no token, and open to others
    assert refused.returncode == 1
    assert "without a token" in refused.stderr


def test_kfp_is_in_no_image(containers: Containers) -> None:
    for step in ALL:
        assert containers.run(step, "python", "-c", "import kfp").returncode != 0
