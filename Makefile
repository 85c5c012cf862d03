# Every verb of the project. `make help` lists them; CI runs these and nothing else.

PYTHON ?= python3
VENV ?= .venv
# PyTorch's CPU builds. Set it empty to take torch from your own index: make setup TORCH_INDEX=
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
DEMO ?= data/demo
# Where `make bench` leaves its results, tables (Markdown) and plot
BENCH_OUT ?= build/bench
# For example: make test PYTEST_ARGS="-k split"; without -n auto it runs in one process
PYTEST_ARGS ?= -n auto
BENCH_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ASSET := data/tokenizer/o200k_base.tiktoken

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types check format bench wheel clean

help: ## List these verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.installed $(ASSET) ## Virtual environment with pinned dependencies, and the verified tokenizer asset

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Spanloom needs Python 3.11 or newer, {sys.executable} is {v.major}.{v.minor}: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	@echo "installing torch (CPU build) and the pinned dependencies …"
	@if $(PYTHON) -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=5)' "$(TORCH_INDEX)/torch/" 2>/dev/null; \
	then extra="--extra-index-url $(TORCH_INDEX)"; \
	else echo "no answer from $(TORCH_INDEX): torch comes from your own index, perhaps with CUDA (several GB)"; fi; \
	$(PIP) install -qq $$extra -c constraints.txt torch
	$(PIP) install -qq -c constraints.txt -e '.[megatron,dev]'
	@touch $@

$(ASSET): | $(VENV)/.installed
	@$(BIN)/spanloom fetch-tokenizer --destination $(ASSET)

demo: setup ## From nothing to a validated dataset: sample → conversations → tokens, mask, spans → validation
	@rm -rf $(DEMO)
	$(BIN)/spanloom sample --out $(DEMO)/raw
	$(BIN)/spanloom convert-synth --raw $(DEMO)/raw --out $(DEMO)/synth_harmony
	$(BIN)/spanloom build --source $(DEMO)/synth_harmony --out $(DEMO)/synth_kd --valid-fraction 0.1 --allow-unknown-sha
	@printf '%s\n' "" \
	  "The dataset lies in $(DEMO)/synth_kd. What next:" \
	  "  $(BIN)/spanloom manifest show $(DEMO)/synth_kd" \
	  "  $(BIN)/spanloom validate $(DEMO)/synth_kd --source $(DEMO)/synth_harmony --deep 240" \
	  "  docs/format.md says what lies where; the README says how to build SYNTH itself"

test: setup ## All tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: setup ## ruff and the import rules of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup ## mypy, strict
	$(BIN)/mypy

check: lint types test ## What CI runs

format: setup ## Let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## Measure the build, its stages, encoders and other routes; BENCH_ARGS=--quick for a short try
	$(PIP) install -qq -c constraints.txt -e '.[bench]'
	@rm -rf $(BENCH_OUT) && mkdir -p $(BENCH_OUT)
	PYTHONPATH=tests $(BIN)/python -m bench --json $(BENCH_OUT)/performance.json $(BENCH_ARGS)
	PYTHONPATH=tests $(BIN)/python -m bench.page $(BENCH_OUT)/performance.json > $(BENCH_OUT)/performance.md
	@echo "results, tables and plot: $(BENCH_OUT)/performance.{json,md,svg}"

wheel: setup ## A wheel that carries its git SHA, in dist/
	$(PIP) wheel -q --no-deps --wheel-dir dist .

clean: ## Remove the environment, caches and the demo (the tokenizer asset stays)
	rm -rf $(VENV) $(DEMO) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
