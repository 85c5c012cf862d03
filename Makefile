# The commands that people type. `make help-all` lists those of tests/tests.mk and docker/docker.mk too; CI runs these alone.

PYTHON ?= python3
VENV ?= .venv
# PyTorch's CPU builds. Set it empty to take torch from your own index: make setup TORCH_INDEX=
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Set, `make setup` takes what has its hash in locks/ and nothing else, as CI does. The locks are for Linux and CPython 3.11.
LOCKED ?=
# Another megatron-core than that of constraints.txt, for `make setup` and the images: MEGATRON=0.19.2
MEGATRON ?=
DEMO ?= data/demo
# For example: make test PYTEST_ARGS="-k split"; without -n auto it runs in one process. A file's tests stay together, so
# that what they share is made once.
PYTEST_ARGS ?= -n auto --dist loadfile --no-loadscope-reorder
# What `make check` compares with: the last commit, or `SINCE=main` for all that a branch changed
SINCE ?= HEAD
# Images: where they are named to live, what pip may need while they are built (a pip.conf, kept by no layer).
REGISTRY ?= ghcr.io/spanloom
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
GIT_SHA ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)$(shell test -z "$$(git status --porcelain -- src pyproject.toml 2>/dev/null)" || echo -dirty)
PIP_CONF ?=
# What the images are built on; with a digest (`make base-image` prints it) it is that very image.
BASE_IMAGE ?= python:3.11-slim
# Where the pipeline runs: make compile COMPILE_ARGS="--pvc datasets --toleration cloud.google.com/gke-spot=true:NoSchedule"
COMPILE_ARGS ?=
# Tasks of each stage with one for each shard (SYNTH KD, chess), 1 to 64; set, `make compile` writes under dist/. Without it: four.
SHARDS ?=
KFP_ENDPOINT ?=
PIPELINE ?= pipelines/synth_kd.yaml
RUN_ARGS ?=
# Login, namespace and the like: make submit SUBMIT_ARGS="--namespace team-a --token-file token" (python -m pipelines.submit --help)
SUBMIT_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# On a terminal pip shows bars; a log gets a line for each package, so that nobody waits without a word.
QUIET := $(shell test -t 2 || echo --progress-bar off)
ASSET := data/tokenizer/o200k_base.tiktoken

.DEFAULT_GOAL := help

# PyTorch's CPU index where it answers, else nothing: then torch comes from pip's own index.
probe_torch = $(PYTHON) -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=5)' "$(TORCH_INDEX)/torch/" 2>/dev/null
# With another megatron-core a Python is fine that Megatron does not declare, and Triton is needed, which torch for CPUs lacks.
constraints = $(if $(MEGATRON),$(VENV)/constraints.txt,constraints.txt)
# What `make setup LOCKED=1` installs, in one go; packages that have no wheel are built with locks/build.txt alone. Without
# a look at what they depend on: pip refuses hashes where one package asks for another with an extra.
locked = $(foreach lock,torch data megatron train service docs dev,-r locks/$(lock).txt)
# SERIAL=1 builds one image after another.
SERIAL ?=
bake = export BASE_IMAGE=$(BASE_IMAGE) REGISTRY=$(REGISTRY) VERSION=$(VERSION) GIT_SHA=$(GIT_SHA) PIP_CONF=$(PIP_CONF) MEGATRON=$(MEGATRON); \
	$(if $(PIP_CONF),export BUILDX_BAKE_ENTITLEMENTS_FS=0;) export TORCH_INDEX=$$($(probe_torch) && echo "$(TORCH_INDEX)"); SERIAL=$(SERIAL) docker/bake.sh

.PHONY: help help-all setup demo chat-demo teacher-demo test lint types check docs wheel images smoke compile submit clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

help-all: ## List all commands: nightly tests, benchmarks, images, releases
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.installed $(ASSET) ## Virtual environment with pinned dependencies, and the verified tokenizer asset

$(VENV)/.installed: pyproject.toml constraints.txt $(if $(LOCKED),$(wildcard locks/*.txt))
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Spanloom needs Python 3.11 or newer, {sys.executable} is {v.major}.{v.minor}: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	@$(if $(MEGATRON),sed 's/^megatron-core==.*/megatron-core==$(MEGATRON)/' constraints.txt > $(constraints))
	@echo "installing torch (CPU build) and the pinned dependencies into $(VENV): 2 GB; minutes, on a busy machine up to half an hour …"
ifdef LOCKED
	$(PIP) install $(QUIET) --require-hashes -r locks/build.txt
	@if $(probe_torch); then extra="--extra-index-url $(TORCH_INDEX)"; fi; \
	$(PIP) install $(QUIET) $$extra --no-build-isolation --no-deps --require-hashes $(locked)
	$(if $(MEGATRON),$(PIP) install $(QUIET) --no-deps --ignore-requires-python --require-hashes -r locks/megatron-$(MEGATRON).txt)
	$(PIP) install $(QUIET) --no-index --no-deps --no-build-isolation -e .
	$(if $(MEGATRON),,$(PIP) check)
else
	@if $(probe_torch); then extra="--extra-index-url $(TORCH_INDEX)"; \
	else echo "no answer from $(TORCH_INDEX): torch comes from your own index, perhaps with CUDA (several GB)"; fi; \
	$(PIP) install $(QUIET) $$extra -c $(constraints) torch
	$(PIP) install $(QUIET) -c $(constraints) $(if $(MEGATRON),--ignore-requires-python triton) -e '.[megatron,dev]' hatchling
endif
	@touch $@

$(ASSET): | $(VENV)/.installed
	@$(BIN)/spanloom fetch-tokenizer --destination $(ASSET)

demo: setup ## From nothing to a validated dataset: sample → conversations → tokens, mask, spans → validation
	@rm -rf $(DEMO)/raw $(DEMO)/synth_harmony $(DEMO)/synth_kd
	$(BIN)/spanloom sample --out $(DEMO)/raw
	$(BIN)/spanloom convert-synth --raw $(DEMO)/raw --out $(DEMO)/synth_harmony --dataset "Spanloom sample"
	$(BIN)/spanloom build --source $(DEMO)/synth_harmony --out $(DEMO)/synth_kd --valid-fraction 0.1 --allow-unknown-sha
	@printf '%s\n' "" \
	  "Dataset: $(DEMO)/synth_kd. What next:" \
	  "  $(BIN)/spanloom inspect $(DEMO)/synth_kd --language de" \
	  "  $(BIN)/spanloom manifest show $(DEMO)/synth_kd" \
	  "  $(BIN)/spanloom validate $(DEMO)/synth_kd --source $(DEMO)/synth_harmony --deep 240" \
	  "  docs/format.md describes the files; the README shows how to build from your own chat file" \
	  "" \
	  "Now open $(DEMO)/synth_kd/report.html in a browser."

chat-demo: setup ## Chat data with reasoning, tools and several turns: JSON Lines → conversations → a validated dataset
	@rm -rf $(DEMO)/chat_source $(DEMO)/chat
	$(BIN)/spanloom convert docs/examples/chat.jsonl --out $(DEMO)/chat_source --yes
	$(BIN)/spanloom build --source $(DEMO)/chat_source --out $(DEMO)/chat --valid-fraction 0.3 --allow-unknown-sha
	$(BIN)/spanloom inspect $(DEMO)/chat --id tides-1#0

# A folder with weights, tokenizer and chat template; without it a small model is taught first.
TEACHER ?=
teacher = $(or $(TEACHER),$(DEMO)/teacher/sample/model)
teacher-demo: setup ## A sample scored by a small teacher (TEACHER=DIR: your own), inspected, and ten steps of a student; 1 to 3 minutes
	@rm -rf $(DEMO)/teacher
	$(BIN)/spanloom model sample --out $(DEMO)/teacher/sample
	$(BIN)/spanloom convert $(DEMO)/teacher/sample/chat.jsonl --out $(DEMO)/teacher/source --yes --quiet
	$(BIN)/spanloom build --source $(DEMO)/teacher/source --model $(teacher) --out $(DEMO)/teacher/dataset --valid-fraction 0.1 --max-rejects 50% --allow-unknown-sha --quiet
	$(if $(TEACHER),,$(BIN)/python docs/examples/training/distil.py teach $(DEMO)/teacher/dataset $(teacher))
	$(BIN)/spanloom teacher score $(DEMO)/teacher/dataset --model $(teacher) --top-k 8 --out $(DEMO)/teacher/signals
	$(BIN)/spanloom teacher validate $(DEMO)/teacher/signals --dataset $(DEMO)/teacher/dataset
	$(BIN)/spanloom teacher stats $(DEMO)/teacher/signals --dataset $(DEMO)/teacher/dataset
	$(BIN)/spanloom inspect $(DEMO)/teacher/dataset --teacher $(DEMO)/teacher/signals --html $(DEMO)/teacher/page.html
	$(BIN)/python docs/examples/training/distil.py learn $(DEMO)/teacher/dataset $(DEMO)/teacher/signals
	@echo "Now open $(DEMO)/teacher/page.html in a browser, and click on a token."

test: setup ## All tests. Compiled tests are kept: to compile them takes each worker 15 s
	@echo 'all tests take half an hour or more on two cores; a part: make test PYTEST_ARGS="tests/dataset -n auto"'
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --durations=20 --durations-min=10 $(PYTEST_ARGS)

lint: setup ## ruff, the import rules, the Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/hadolint docker/Dockerfile

types: setup ## mypy, strict
	$(BIN)/mypy

check: setup ## Before each commit, in a minute: format, lint, types and the quick tests of what changed; for a branch SINCE=main
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .
	$(BIN)/lint-imports
	$(BIN)/mypy
	@tests=$$($(BIN)/python tests/support/changed_tests.py $(SINCE)) && set -x && \
	$(BIN)/python -m pytest -q -m "not slow" tests/test_layout.py tests/docs/test_words.py $$tests

docs: setup ## The documentation site, in build/site: strict, a broken link or anchor is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/site/index.html"

wheel: setup ## A wheel that carries its git SHA, in dist/
	$(PIP) wheel -q --no-deps $(if $(LOCKED),--no-index --no-build-isolation) --wheel-dir dist .

images: $(ASSET) ## The container images: one a step, one to train in, one that serves traces
	@$(bake)

smoke: $(ASSET) ## All steps in their containers over an object store, held against a build on this machine
	@$(bake) smoke
	@REGISTRY=$(REGISTRY) VERSION=$(VERSION) GIT_SHA=$(GIT_SHA) docker/smoke.sh $(abspath $(BIN))/spanloom $(CURDIR)/data/smoke

compile: setup ## The pipelines as YAML; with REGISTRY=… a copy under dist/ with the digests that `make push` wrote
ifeq ($(origin REGISTRY),file)
	$(BIN)/python -m pipelines.compile $(if $(SHARDS),--out dist --shards $(SHARDS)) $(COMPILE_ARGS)
else
	$(BIN)/python -m pipelines.compile --out dist --lock dist/images.json $(if $(filter-out unknown,$(GIT_SHA)),--git-sha $(GIT_SHA)) $(if $(SHARDS),--shards $(SHARDS)) $(COMPILE_ARGS)
endif

submit: setup ## Run the pipeline: make submit KFP_ENDPOINT=… [PIPELINE=dist/synth_kd.yaml] RUN_ARGS="source_uri=gs://… dataset_root=gs://…"
	@test -n "$(KFP_ENDPOINT)" || { echo 'name the cluster: make submit KFP_ENDPOINT=http://…'; exit 2; }
	$(BIN)/python -m pipelines.submit --endpoint "$(KFP_ENDPOINT)" --pipeline $(PIPELINE) $(SUBMIT_ARGS) $(RUN_ARGS)

clean: ## Remove the environment, caches and what the demo and the smoke made (the tokenizer asset stays)
	rm -rf $(VENV) $(NEXT_VENV) $(DEMO) data/smoke data/smoke.log data/smoke.s3.json data/smoke-train data/pipeline-local dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

include tests/tests.mk docker/docker.mk
