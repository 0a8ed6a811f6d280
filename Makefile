# The one front door. Needs Python 3.11 or later, make and a package index; uses uv where there is one.
#
#   make PYTHON=python3.13 test     chooses the interpreter
#   make T=tests/unit test          narrows the tests; ARGS="-x -k inbox" is handed to pytest

PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	    if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	    then echo $$candidate; break; fi; done)
UV := $(shell command -v uv 2>/dev/null)

VENV   := .venv
BIN    := $(VENV)/bin
COMPAT := .venv-compat
PROVIDERS := .venv-providers
PY     := $(BIN)/python
PYTEST := $(PY) -m pytest
T      ?=
ARGS   ?=

CODE     := $(wildcard trio_agents tests benchmarks)
EXAMPLES := $(wildcard docs/conf.py)

.DEFAULT_GOAL := help
.PHONY: help setup test test-slow test-all test-providers coverage compat check format lint types layers docs fix \
        demo bench build test-wheel lock news clean
.DELETE_ON_ERROR:

help:           ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- environments -------------------------------------------------------------------------------

setup: $(VENV)/.ready   ## create .venv with the pinned tools and the package, editable

# $(call install,VENV,LOCK): the pinned packages, then this package on top of them
define install
	$(if $(UV),$(UV) pip install --quiet --python $(1)/bin/python --require-hashes -r $(2), \
	    $(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(2))
endef

define editable
	$(if $(UV),$(UV) pip install --quiet --python $(1)/bin/python --no-deps --no-build-isolation -e ., \
	    $(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .)
endef

define venv
	@if [ -z "$(PYTHON)" ]; then \
	    echo "no Python 3.11 or later found on PATH: install one, or name it: make PYTHON=/path/to/python3 setup" >&2; \
	    exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "PYTHON=$(PYTHON) is not Python 3.11 or later" >&2; exit 1; }
	@[ -x $(1)/bin/python ] || echo "creating $(1) with $(PYTHON)"
	@[ -x $(1)/bin/python ] || $(PYTHON) -m venv $(1) || { rm -rf $(1); \
	    echo "$(PYTHON) cannot make an environment; some systems pack that apart (python3-venv)" >&2; exit 1; }
endef

$(VENV)/.locked: requirements.lock
	$(call venv,$(VENV))
	$(call install,$(VENV),requirements.lock)
	@touch $@

$(VENV)/.ready: pyproject.toml $(VENV)/.locked
	$(call editable,$(VENV))
	@touch $@

$(COMPAT)/.locked: tests/compat/requirements.lock
	$(call venv,$(COMPAT))
	$(call install,$(COMPAT),tests/compat/requirements.lock)
	@touch $@

$(COMPAT)/.ready: pyproject.toml $(COMPAT)/.locked
	$(call editable,$(COMPAT))
	@touch $@

$(PROVIDERS)/.locked: tests/providers/requirements.lock tests/providers/weights.lock
	$(call venv,$(PROVIDERS))
	$(call install,$(PROVIDERS),tests/providers/requirements.lock)
	$(call install,$(PROVIDERS),tests/providers/weights.lock --no-deps)
	@touch $@

$(PROVIDERS)/.ready: pyproject.toml $(PROVIDERS)/.locked
	$(call editable,$(PROVIDERS))
	@touch $@

# --- tests --------------------------------------------------------------------------------------

test: setup     ## the fast lane
	$(PYTEST) $(T) $(ARGS)

test-slow: setup  ## what the fast lane leaves out, its sweeps sampled (--sweep-seed=N repeats a run)
	$(PYTEST) --run-slow -m slow $(T) $(ARGS) || [ $$? -eq 5 ]  # 5: the part named by T has none

test-all: setup   ## every test, every sweep in full, and the two environments apart
	$(PYTEST) --run-slow --sweep-all $(T) $(ARGS)
	$(MAKE) compat test-providers

coverage: setup   ## the fast lane with branch coverage
	$(PY) -m coverage run -m pytest $(T) $(ARGS)
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

compat: setup $(COMPAT)/.ready  ## with trio-typing, in an environment of its own
	$(COMPAT)/bin/python -m pytest tests/compat --run-compat -p no:randomly

test-providers: setup $(PROVIDERS)/.ready  ## a real model and a fake provider of others, in an environment of its own
	$(PROVIDERS)/bin/python -m pytest tests/providers --run-providers -p no:randomly

# --- checks -------------------------------------------------------------------------------------

check: format lint types layers test docs  ## everything a change must pass

format: setup   ## is the code formatted?
	$(BIN)/ruff format --check $(CODE) $(EXAMPLES)

lint: setup     ## ruff, and flake8-async for the rules ruff lacks
	$(BIN)/ruff check $(CODE) $(EXAMPLES)
	$(PY) -m tests.meta.async_rules $(CODE)

types: setup    ## mypy for the bodies, pyright for the exported surface
	$(BIN)/mypy $(CODE)
	PATH="$(CURDIR)/$(BIN):$$PATH" pyright --ignoreexternal --verifytypes trio_agents
	$(if $(wildcard tests/typing),PATH="$(CURDIR)/$(BIN):$$PATH" pyright tests/typing)

layers: setup   ## import-linter
	$(BIN)/lint-imports --no-cache --no-logo

docs: setup     ## the documentation, warnings are errors
	$(PY) -m sphinx --fail-on-warning --keep-going --quiet --nitpicky -d docs/_build/doctrees docs docs/_build/html
	@echo "docs/_build/html/index.html"

fix: setup      ## format, and mend what can be mended
	$(BIN)/ruff format $(CODE) $(EXAMPLES)
	$(BIN)/ruff check --fix $(CODE) $(EXAMPLES)

# --- programs -----------------------------------------------------------------------------------

demo: setup     ## the main job, end to end, without a network
	$(PY) -m trio_agents demo

bench: setup    ## the benchmarks (ARGS="--only turns", see benchmarks/README.md)
	$(BIN)/trio-agents bench $(ARGS)

# --- releases -----------------------------------------------------------------------------------

build: setup    ## the wheel, in dist/
	$(BIN)/hatchling build --target wheel --directory dist

test-wheel: setup  ## install the wheel alone somewhere else, and look at it there
	$(PY) tests/wheel/check_wheel.py

# Extras are kept: pip before 23.3 does not take the pin of NAME for what asks for NAME[EXTRA].
LOCK := pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links --no-strip-extras
LOCK_EXTRAS := --extra mcp --extra openai --extra zstd

lock:           ## pin the newest tools (UPGRADE=--upgrade), naming no index
	@if [ -z "$(UV)" ] && [ ! -x .venv-lock/bin/uv ]; then \
	    $(PYTHON) -m venv .venv-lock && .venv-lock/bin/python -m pip install --quiet uv; fi
	$(or $(UV),.venv-lock/bin/uv) $(LOCK) $(UPGRADE) $(LOCK_EXTRAS) --group dev pyproject.toml -o requirements.lock
	$(or $(UV),.venv-lock/bin/uv) $(LOCK) $(UPGRADE) --extra trio-typing --group compat pyproject.toml \
	    -o tests/compat/requirements.lock
	$(or $(UV),.venv-lock/bin/uv) $(LOCK) $(UPGRADE) --extra local --extra openai --group providers pyproject.toml \
	    -o tests/providers/requirements.lock

news: setup     ## the changelog entry that docs/news makes
	$(BIN)/towncrier build --draft

clean:          ## remove what the targets made, the environments too
	rm -rf $(VENV) $(COMPAT) $(PROVIDERS) .venv-lock dist build docs/_build htmlcov .coverage .hypothesis \
	    .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find trio_agents tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
