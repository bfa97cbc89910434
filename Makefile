# Everything one types here. `make` alone lists it. ARGS="..." is handed on to start, demo, test and bench.
.DEFAULT_GOAL := help
.PHONY: help setup start demo test check bench format lock clean

BIN := .venv/bin
READY := .venv/.ready
COMPILED := .venv/.compiled
CHECK_PYTHON := -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
# The system's own first: those are built with optimisations that others often lack, and serve a request in 10 % less time.
PYTHON ?= $(shell for p in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do \
  $$p $(CHECK_PYTHON) && echo $$p && break; done)

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: $(COMPILED) ## .venv with all that the lock file names

start: $(COMPILED) ## run Leadline; stop it with Ctrl-C
	@$(BIN)/leadline start $(ARGS)

demo: $(COMPILED) ## the data pipeline at work, in a minute or two; then look at its report
	@$(BIN)/leadline demo $(ARGS)

test: $(COMPILED) ## all tests
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(READY) ## lint, format, types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(COMPILED) ## measure the speed
	$(BIN)/python -m tests.bench $(ARGS)

format: $(READY) ## let ruff put the code in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock: ## renew requirements.lock; needs uv
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 --upgrade \
	  --custom-compile-command 'make lock' --group dev --all-extras --output-file requirements.lock pyproject.toml

clean: ## remove .venv and all caches
	rm -rf src/leadline/records/*.so .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests -name __pycache__ -type d -exec rm -rf {} +

# Built anew as a whole, so that it never holds more than the lock says. With uv where that is present and works, else with pip.
$(READY): requirements.lock pyproject.toml
	@"$(PYTHON)" $(CHECK_PYTHON) || { echo 'Leadline needs Python 3.11 or newer with its module venv; PYTHON=... tells where it is.' >&2; exit 1; }
	@set -e; \
	if [ -t 2 ]; then quiet_uv= quiet_pip=; else quiet_uv=--quiet quiet_pip=-qq; fi; \
	install() { \
	  command -v uv >/dev/null && UV_SYSTEM_CERTS=1 uv pip install $$quiet_uv --python $(BIN)/python "$$@" || \
	  $(BIN)/python -m pip install $$quiet_pip --disable-pip-version-check "$$@"; \
	}; \
	echo 'Setting up .venv, once: this takes a minute or more, for the download of some 700 MB.' >&2; \
	echo '1/3 a virtual environment of $(PYTHON)' >&2; \
	"$(PYTHON)" -m venv --clear .venv; \
	echo "2/3 the $$(grep -c '^[a-z].*==' requirements.lock) packages that requirements.lock names" >&2; \
	install --require-hashes -r requirements.lock; \
	echo '3/3 Leadline itself' >&2; \
	install --no-deps --no-build-isolation --editable .
	@touch $@

# Without a C compiler it says so in one line, and Leadline runs in pure Python.
$(COMPILED): $(READY) hatch_build.py src/leadline/records/compiled_walker.c
	@$(BIN)/python hatch_build.py
	@touch $@
