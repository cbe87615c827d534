# Needs only python3 >= 3.11: everything is installed into .venv, from lock files that pin every hash.
PYTHON ?= python3
PYTEST_ARGS ?=
WHEEL ?=
WORKERS ?= 4
VENV := .venv
BIN := $(VENV)/bin
CODE := $(wildcard ingestor spark_jobs tests bench .ci/release.py)

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "  Variables: PYTHON=python3.12 (makes .venv), PYTEST_ARGS='-k name' (for test and soak), WORKERS=0 (of test)"

.PHONY: setup
setup: $(VENV)/.project $(VENV)/.dev $(VENV)/.jar ## Install everything into .venv: ingestor, Spark, test tools

.PHONY: demo
demo: $(VENV)/.project $(VENV)/.ingest ## Ingest, kill, restart and audit on an embedded Kafka; parse on Spark
	@$(BIN)/ingestor demo

# Spark only if there is a Java.
ifneq ($(shell command -v java),)
demo: $(VENV)/.spark $(VENV)/.jar
endif

.PHONY: test
test: setup $(if $(WHEEL),installed) ## Run every test that CI runs (WHEEL=1: against the built wheel, as CI does)
	@$(AGAINST) $(BIN)/pytest -m "not soak" -n $(WORKERS) $(if $(WHEEL),-o pythonpath=$(APART)) $(PYTEST_ARGS)

# Tests the wheel without importing the sources: Python's path has neither this folder nor a script's, and what is needed
# beside the wheel is linked into its own folder. `make setup` installs the sources again.
APART := build/apart
AGAINST = $(if $(WHEEL),env INGESTOR_WHEEL=1 PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$(APART))
.PHONY: installed
installed: wheel
	@rm -rf $(APART) $(VENV)/.project && mkdir -p $(APART) && ln -s ../../tests ../../bench $(APART)
	@$(PIP) uninstall --quiet --yes txn-ingestor
	@$(PIP) install --quiet --no-deps --no-index --find-links dist txn-ingestor

.PHONY: soak
soak: setup ## Run the long tests
	@$(BIN)/pytest -m soak $(PYTEST_ARGS)

.PHONY: lint
lint: setup ## Check format, style, types, and which module imports which
	@$(BIN)/ruff format --check --output-format concise $(CODE)
	@$(BIN)/ruff check --output-format concise $(CODE)
	@$(BIN)/mypy $(CODE)
	@$(BIN)/lint-imports --no-cache --no-logo

.PHONY: bench
bench: setup ## Measure throughput, CPU and memory
	@$(BIN)/python -m bench

.PHONY: bench-check
bench-check: setup ## Compare short benchmarks with the stored baseline
	@$(BIN)/python -m bench check

.PHONY: mutants
mutants: setup ## Break the code on purpose and check that tests fail
	@$(BIN)/python -m tests.mutants

.PHONY: model
model: setup ## Check the protocol's TLA+ model, and find a counterexample for each break of it
	@$(BIN)/python -m tests.model

.PHONY: wheel
wheel: setup ## Build wheel and sdist into dist/
	@rm -f dist/txn_ingestor-*
	@$(BIN)/hatchling build

.PHONY: release
release: setup ## Build a release into dist/: sdist, wheels, SBOMs, checksums; needs a clean commit, and no network
	@$(BIN)/python .ci/release.py

# dev first: the other locks are constrained by it, so that installing one after another never changes a version.
COMPILE = $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command 'make lock' $(LOCK_ARGS)
.PHONY: lock
lock: setup ## Renew requirements/ from pyproject.toml (LOCK_ARGS=--upgrade for newer versions)
	@$(COMPILE) pyproject.toml --all-extras --group build --output-file requirements/dev.txt
	@$(COMPILE) pyproject.toml --extra spark --constraint requirements/dev.txt --output-file requirements/spark.txt
	@$(COMPILE) pyproject.toml --constraint requirements/dev.txt --output-file requirements/ingest.txt
	@$(COMPILE) --group build --constraint requirements/dev.txt --output-file requirements/build.txt
	@wc -l requirements/*.txt

.PHONY: clean
clean: ## Remove everything that make has created, .venv too
	@rm -rf $(NATIVE) $(VENV) build dist .bench .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# --- .venv: a stamp file marks each finished step; make repeats a step when a dependency is newer ---

PIP := $(BIN)/python -m pip --disable-pip-version-check
# Prints the slow steps: downloads of a megabyte and more, and builds.
PROGRESS := awk '/^ *Downloading .* MB\)/ || /^ *Building wheel/ {print; fflush()}'

$(VENV)/.venv:
	@command -v "$(PYTHON)" >/dev/null || \
	  { echo "$(PYTHON) is not installed. Install Python 3.11 or newer, or name one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, $(PYTHON) is $$("$(PYTHON)" -V 2>&1)." \
	    "Install one and name it: make PYTHON=python3.12 ..." >&2; exit 2; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments (module venv or ensurepip is missing)." \
	    "Install it (Debian, Ubuntu: apt install python3-venv), or name another Python: make PYTHON=..." >&2; exit 2; }
	@echo "Making $(VENV) with $$("$(PYTHON)" -V)"
	@"$(PYTHON)" -m venv --clear $(VENV)
	@touch $@

# Builds are not isolated: isolation would fetch build backends without checking hashes.
$(VENV)/.build: requirements/build.txt $(VENV)/.venv
	@$(PIP) install --quiet --require-hashes -r $<
	@touch $@

# The log stores with which Spark and ingestors share a table. Without a JDK the step prints that and succeeds.
$(VENV)/.jar: $(wildcard spark_jobs/java/ingestor/*.java) spark_jobs/build.py \
		| $(if $(filter demo,$(MAKECMDGOALS)),$(VENV)/.spark,$(VENV)/.dev)
	@$(BIN)/python -m spark_jobs.build
	@touch $@

# With the native library if there is a C compiler.
NATIVE := ingestor/kafka/native/libintake.so
$(VENV)/.project: pyproject.toml $(wildcard ingestor/kafka/native/*.c) $(VENV)/.build
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@test -e $(NATIVE) || echo "No C compiler (cc): records are read as Python objects, which costs more CPU."
	@touch $@

$(VENV)/.dev $(VENV)/.spark $(VENV)/.ingest: $(VENV)/.%: requirements/%.txt $(VENV)/.build
	@echo "Installing $< (the first time this downloads and takes a while)"
	@$(PIP) install --progress-bar off --no-build-isolation --require-hashes -r $< | $(PROGRESS)
	@touch $@
