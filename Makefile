# `make serve` and `make test` need nothing but Python >= 3.10; everything goes into .venv.
# Set-up: PYTHON=path of an interpreter, TORCH=cpu|cuda, TORCH_INDEX=mirror of PyTorch's index, V=1 for all output.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev setup-bench serve test test-all check lint lock format docs docs-serve bench chaos overload fuzz soak invariance \
	regression sbom bento image image-test demo-model demo-model-report clean

export BENTOML_DO_NOT_TRACK = True

PORT ?= 3000
HOST := 127.0.0.1
TESTS ?= tests
WORKERS ?= 2

VENV := .venv

# Glibc keeps freed memory: training on CPUs is faster, and its result the same.
ALLOCATOR := MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=68719476736 MALLOC_TOP_PAD_=268435456 THP_MEM_ALLOC_ENABLE=1

BIN := $(VENV)/bin

help: ## What can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

setup: ## Make .venv for serving (the others do it when it is needed); TORCH=cpu|cuda PYTHON= V=1
	@tools/setup serve

setup-dev: ## The same with what tests and checks need
	@tools/setup dev

setup-bench: # The same with what the benchmark compares with
	@tools/setup bench

serve: setup ## Serve a model; PORT= HOST= MODEL= DEVICE= DTYPE= ARGS=--any-setting
	@exec $(BIN)/python -m gliner_bento.cli serve --port '$(PORT)' --host '$(HOST)' \
		$(if $(MODEL),--model '$(MODEL)') $(if $(DEVICE),--device '$(DEVICE)') $(if $(DTYPE),--dtype '$(DTYPE)') $(ARGS)

test: setup-dev ## Run the tests; TESTS=path ARGS=pytest's WORKERS=processes
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(TESTS) $(ARGS)

check: lint test ## Both of these

test-all: check ## The same, slow tests, and a fresh clone to its first answer with each Python that is found, 20 minutes
	$(BIN)/python -m pip install --quiet --constraint requirements-dev.lock \
		--editable '.[dataframes,haystack,ray,spacy]' langchain-core llama-index-core
	$(BIN)/python -m pytest -m slow $(TESTS)
	@if command -v podman; then $(BIN)/python -m reliability image --out build/image; else echo "no podman: image not tested"; fi
	$(BIN)/python tools/first_answer.py --every-python

lock: ## Renew the locks; ARGS=--upgrade or ARGS="--upgrade-package NAME"
	tools/lock '$(or $(PYTHON),python3)' $(ARGS)

lint: setup-dev ## Style, types, dependency rules, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m gliner_bento.cli docs --check
	$(BIN)/python tools/dependencies.py licenses --check

format: setup-dev ## Format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The generated pages are part of the repository; writing them takes the development tools, building the site does not.
docs: ## Build the site that a server has at /docs; where `make test` has run, write the generated pages first
	@if [ -e $(VENV)/.dev ]; then $(BIN)/python -m gliner_bento.cli docs && $(BIN)/python tools/dependencies.py licenses; fi
	@PYTHON='$(PYTHON)' tools/docs build

docs-serve: ## Show the documentation while it is written; ADDRESS=localhost:8000
	@PYTHON='$(PYTHON)' tools/docs serve $(ADDRESS)

bench: setup-$(if $(URL),dev,bench) ## Compare with the peers, 50 minutes; URL= of a running server; ARGS=--quick ...
	$(BIN)/python -m $(if $(URL),gliner_bento.cli bench '$(URL)',benchmark) $(ARGS)

chaos: setup-dev ## Faults under a load with known answers, 10 minutes; ARGS="--seconds 10 --faults sigterm"
	$(BIN)/python -m reliability chaos $(ARGS)

overload: setup-dev ## Send ten times the capacity for a minute; ARGS="--factor 10 --seconds 60"
	$(BIN)/python -m reliability overload $(ARGS)

fuzz: setup-dev ## Send 50,000 odd requests over every route; ARGS="--requests 50000 --seed 0"
	$(BIN)/python -m reliability fuzz $(ARGS)

soak: setup-dev ## Mixed requests with known answers, and faults, for MINUTES= (30)
	$(BIN)/python -m reliability soak $(if $(MINUTES),--minutes '$(MINUTES)') $(ARGS)

invariance: setup-dev ## Compare answers alone and under load byte by byte, in each precision
	$(BIN)/python -m reliability invariance $(ARGS)

regression: setup-dev ## Compare throughput and latency with an earlier commit: AGAINST=
	$(BIN)/python -m reliability regression --against '$(AGAINST)' $(ARGS)

sbom: setup ## Write a bill of materials (CycloneDX) of what a server installs to sbom.cdx.json
	$(BIN)/python tools/dependencies.py sbom sbom.cdx.json

bento: setup sbom ## Build the bento into BentoML's store
	$(BIN)/bentoml build

# The image has its own torch: TORCH is not for .venv here.
image: IMAGE_TORCH := $(TORCH)
image: override export TORCH :=
image: bento ## Build a container image of the bento, with docker or podman; TORCH=cuda ENGINE=podman ARGS=--no-cache
	@TORCH='$(IMAGE_TORCH)' deploy/docker/build "$$($(BIN)/bentoml get gliner-bento:latest --output path)" $(ARGS)

image-test: setup-dev ## Build the image on Debian with podman and try it under restrictions, 10 minutes
	$(BIN)/python -m reliability image $(ARGS)

demo-model: setup ## Train the bundled model; DATA=folder
	@[ -n "$(DATA)" ] || { echo "make demo-model DATA=folder" >&2; exit 2; }
	$(ALLOCATOR) $(BIN)/python -m training train --data '$(DATA)'

demo-model-report: setup ## Score the bundled model on the probe suite; DATA=folder adds the development split; MODEL=folder
	$(BIN)/python -m training report $(if $(DATA),--data '$(DATA)') $(if $(MODEL),--model '$(MODEL)') $(ARGS)

clean: ## Remove all that make made
	rm -rf $(VENV) build dist gliner_bento/gateway/pages/docs *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
