# Two commands do it all: `make run` talks with a local model, `make test` runs the whole suite.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: setup run test test-all lint format bench clean

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

test-all: setup
	$(BIN)/pytest -n $(JOBS) -m slow

bench: setup
	@for b in $$(grep -l '"goals"' bench/*.py); do echo; $(BIN)/python -m bench.$$(basename $$b .py) || exit 1; done

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python tools/unasync.py

clean:
	rm -rf $(VENV) build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
