# `make serve` and `make test` need nothing but Python >= 3.10; everything goes into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup serve test check lint format docs bench bento image demo-model clean

export BENTOML_DO_NOT_TRACK = True

PORT ?= 3000
HOST := 127.0.0.1
TESTS ?= tests
WORKERS ?= 2

# The first interpreter that runs, is new enough and can make a virtual environment (a shim may exist and not run).
# The locks are for 3.11; with any other version the ranges of pyproject.toml are installed.
PYTHON ?= $(firstword $(foreach python,python3.11 python3 python3.12 python3.13 python3.10,$(shell \
	$(python) -c 'import sys, ensurepip, venv; print("$(python)" if sys.version_info >= (3, 10) else "")' 2>/dev/null)))
VENV := .venv

# Glibc keeps freed memory: training on CPUs is faster, and its result the same.
ALLOCATOR := MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=68719476736 MALLOC_TOP_PAD_=268435456 THP_MEM_ALLOC_ENABLE=1

BIN := $(VENV)/bin
SETUP := $(VENV)/.installed
PEERS := $(VENV)/.peers-installed

help: ## What can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

setup: $(SETUP) ## Make .venv (the others do it when it is needed)

$(SETUP): requirements.lock requirements-dev.lock pyproject.toml
	@python="$(PYTHON)"; [ -n "$$python" ] || { echo "make: no Python >= 3.10 with venv found; set PYTHON=" >&2; exit 1; }; \
	echo "setting up $(VENV) with $$($$python --version)"; $$python -m venv $(VENV)
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then \
		$(BIN)/python -m pip install -r requirements-dev.lock && \
		$(BIN)/python -m pip install --no-deps --no-build-isolation --editable .; \
	else \
		$(BIN)/python -m pip install --editable '.[client,dev]'; \
	fi
	@touch $@

serve: $(SETUP) ## Serve a model; PORT= HOST= MODEL= DEVICE= DTYPE=
	@exec $(BIN)/python -m gliner_bento.cli serve --port '$(PORT)' --host '$(HOST)' \
		$(if $(MODEL),--model '$(MODEL)') $(if $(DEVICE),--device '$(DEVICE)') $(if $(DTYPE),--dtype '$(DTYPE)')

test: $(SETUP) ## Run the tests; TESTS=path ARGS=pytest's WORKERS=processes
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(TESTS) $(ARGS)

check: lint test ## What CI runs

lint: $(SETUP) ## Style, types, dependency rules, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m gliner_bento.cli docs --check

format: $(SETUP) ## Format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(SETUP) ## Write the generated pages
	$(BIN)/python -m gliner_bento.cli docs

bench: $(if $(URL),$(SETUP),$(PEERS)) ## Compare with the peers, 50 minutes; URL= of a running server; ARGS=--quick ...
	$(BIN)/python -m $(if $(URL),gliner_bento.cli bench '$(URL)',benchmark) $(ARGS)

# Installed packages keep their versions: the peers must not change what is measured. PolyLoRA is installed without its
# dependency Triton (1 GB), which it does not need on CPUs; with a GPU, torch has installed it.
$(PEERS): $(SETUP)
	$(BIN)/python -m pip list --format=freeze --exclude-editable > $(VENV)/held.txt
	$(BIN)/python -m pip install --constraint $(VENV)/held.txt --editable '.[bench]'
	$(BIN)/python -m pip install --no-deps polylora==0.1.1
	@touch $@

bento: $(SETUP) ## Build the bento into BentoML's store
	$(BIN)/bentoml build

image: bento ## Build a container image of the newest bento
	$(BIN)/bentoml containerize gliner-bento:latest

demo-model: $(SETUP) ## Train the bundled model; DATA=folder
	@[ -n "$(DATA)" ] || { echo "make demo-model DATA=folder" >&2; exit 2; }
	$(ALLOCATOR) $(BIN)/python -m training --data '$(DATA)'

clean: ## Remove all that make made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
