# `make serve` and `make test` need nothing but Python >= 3.10; everything goes into .venv.
# Set-up: PYTHON=path of an interpreter, TORCH=cpu|cuda, TORCH_INDEX=mirror of PyTorch's index, V=1 for all output.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev setup-bench serve test test-fast test-gpu test-all check lint lock format docs docs-serve bench chaos overload fuzz soak invariance \
	regression sbom dist bento image image-test version release-check release-ready release-names release-notes chart docs-version \
	demo-model demo-model-report clean

export BENTOML_DO_NOT_TRACK = True

PORT ?= 3000
HOST := 127.0.0.1
TESTS ?= tests
WORKERS ?= 3

VENV := .venv

# Glibc keeps freed memory: training on CPUs is faster, and its result the same.
ALLOCATOR := MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=68719476736 MALLOC_TOP_PAD_=268435456 THP_MEM_ALLOC_ENABLE=1

BIN := $(VENV)/bin

##@ For users; TORCH=cpu or TORCH=cuda chooses the build of torch

help: ## Show this
	@awk -F ':.*## ' '/^##@ / {print "\n" substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-18s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: setup ## Serve: MODEL= PORT= HOST= DEVICE= DTYPE= ARGS=--setting
	@exec $(BIN)/python -m gliner_bento.cli serve --port '$(PORT)' --host '$(HOST)' \
		$(if $(MODEL),--model '$(MODEL)') $(if $(DEVICE),--device '$(DEVICE)') $(if $(DTYPE),--dtype '$(DTYPE)') $(ARGS)

setup: ## Make .venv for serving, as the others do: PYTHON= V=1
	@tools/setup serve

test: setup-dev ## Run the tests: TESTS=path ARGS= WORKERS=3
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(TESTS) $(ARGS)

test-fast: setup-dev ## Run unit tests that take little time: before a commit
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'not (gpu or long or slow)' tests/unit $(ARGS)

bench: setup-$(if $(URL),dev,bench) ## Compare with other servers, 50 minutes: URL= ARGS=
	$(BIN)/python -m $(if $(URL),gliner_bento.cli bench '$(URL)',benchmark) $(ARGS)

# The generated pages are part of the repository; writing them takes the development tools, building the site does not.
docs: ## Build the site that a server then has at /docs
	@tools/setup docs
	@if [ -e $(VENV)/.dev ]; then $(BIN)/python -m tools.pages && $(BIN)/python tools/dependencies.py licenses; fi
	$(BIN)/python -m tools.docs_site build

dist: docs ## Build sdists and wheels of both packages in dist/
	tools/distributions $(BIN)/python

bento: docs sbom ## Build a bento with the model and the docs
	$(BIN)/bentoml build

# The image has its own torch: TORCH is not for .venv here.
image: IMAGE_TORCH := $(TORCH)
image: override export TORCH :=
image: bento ## Build a container image of it: ENGINE=podman ARGS=
	@export SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)}"; \
	TORCH='$(IMAGE_TORCH)' LABELS="$$($(BIN)/python -m tools.release labels)" deploy/docker/build "$$($(BIN)/bentoml get gliner-bento:latest --output path)" $(ARGS)

sbom: setup ## Write a bill of materials (CycloneDX): PACKAGES=
	$(BIN)/python tools/dependencies.py sbom sbom.cdx.json $(PACKAGES)

clean: ## Remove all that make made
	rm -rf $(VENV) build dist gliner_bento/gateway/pages/docs sbom.cdx.json *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ For maintainers (CONTRIBUTING.md)

setup-dev: ## Add to .venv what tests and checks need
	@tools/setup dev

setup-bench: # The same with what the benchmark compares with
	@tools/setup bench

test-gpu: setup-dev ## Run the tests that need a GPU: TORCH=cuda ARGS=
	$(BIN)/python -m pytest -m gpu tests/contract $(ARGS)

check: lint test ## Lint and test

lint: setup-dev ## Style, types, dependency rules, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.pages --check
	$(BIN)/python tools/dependencies.py licenses --check

format: setup-dev ## Format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-all: override ARGS += --hypothesis-profile searching
test-all: check ## Also slow tests, and a fresh clone with each Python
	$(BIN)/python -m pip install --quiet --constraint requirements-dev.lock \
		--editable '.[dataframes,haystack,ray,spacy]' langchain-openai langchain llama-index-core llama-index-llms-openai
	$(BIN)/python -m pytest -m slow $(TESTS) $(ARGS)
	@if command -v podman && command -v mmdebstrap; then $(BIN)/python -m deploy.containers image --out build/image; \
	else echo "no podman, or no mmdebstrap: image not tested"; fi
	$(BIN)/python tools/first_answer.py --every-python

lock: ## Renew the locks: ARGS=--upgrade
	tools/lock '$(or $(PYTHON),python3)' $(ARGS)

docs-serve: ## Show the docs while they are written: ADDRESS=
	@tools/setup docs
	$(BIN)/python -m tools.docs_site serve $(ADDRESS)

chaos: setup-dev ## Faults under load with known answers, 12 minutes: ARGS=
	$(BIN)/python -m reliability chaos $(ARGS)

overload: setup-dev ## Ten times the capacity for a minute: ARGS=
	$(BIN)/python -m reliability overload $(ARGS)

fuzz: setup-dev ## 50,000 odd requests, sockets, 10,000 documents: ARGS=
	$(BIN)/python -m reliability fuzz $(ARGS)

soak: setup-dev ## Mixed requests, known answers, faults: MINUTES=30 ARGS=
	$(BIN)/python -m reliability soak $(if $(MINUTES),--minutes '$(MINUTES)') $(ARGS)

invariance: setup-dev ## Compare answers alone and under load byte by byte
	$(BIN)/python -m reliability invariance $(ARGS)

regression: setup-dev ## Compare speed with an earlier commit: AGAINST= ARGS=
	$(BIN)/python -m reliability regression --against '$(AGAINST)' $(ARGS)

image-test: setup-dev ## Build and try the image with podman, 10 minutes: ARGS=
	$(BIN)/python -m deploy.containers image $(ARGS)

version: ## Set the version in all files: NEW=
	python3 -m tools.release version $(NEW)

release-check: setup-dev ## Try what needs no account, one table: ARGS=--quick
	$(BIN)/python -m tools.release check $(ARGS)

release-ready: ## Fail at a placeholder, or another tag: TAG=v0.2.0
	python3 -m tools.release ready $(TAG)

release-names: ## Print registry and version, for the workflow
	@python3 -m tools.release names

release-notes: ## Print the changelog's section of this version
	@python3 -m tools.release notes

chart: ## Package the Helm chart in dist/
	"$$(python3 tools/kubernetes_tools.py)/helm" package deploy/helm/gliner-bento --destination dist

docs-version: docs ## Put the site into a folder of versions: FOLDER=
	$(BIN)/python -m tools.release docs '$(FOLDER)'

demo-model: setup ## Train the bundled model: DATA=folder
	@[ -n "$(DATA)" ] || { echo "make demo-model DATA=folder" >&2; exit 2; }
	$(ALLOCATOR) $(BIN)/python -m training train --data '$(DATA)'

demo-model-report: setup ## Score the bundled model: DATA= MODEL= ARGS=
	$(BIN)/python -m training report $(if $(DATA),--data '$(DATA)') $(if $(MODEL),--model '$(MODEL)') $(ARGS)
