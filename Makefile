# Everything one types here. `make` alone lists it. ARGS="..." is handed on to start, demo, test, bench, package and fault.
.DEFAULT_GOAL := help
.PHONY: help setup start demo test sim browser-test check bench man package fault docs format lock clean

BIN := .venv/bin
BROKER_LOCK := requirements-broker.lock
BROKER := .venv/.broker
READY := .venv/.ready
COMPILED := .venv/.compiled
CHECK_PYTHON := -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
# The system's own first: those are built with optimisations that others often lack, and serve a request in 10 % less time.
PYTHON ?= $(eval PYTHON := $(shell for p in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do \
  $$p $(CHECK_PYTHON) && echo $$p && break; done))$(PYTHON)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(READY) $(COMPILED) ## .venv with everything: a broker, Spark, tests, checks

start: $(COMPILED) ## run Leadline; stop it with Ctrl-C
	@$(BIN)/leadline start $(ARGS)

demo: $(READY) $(COMPILED) ## the data pipeline at work, in a minute or two; then look at its report
	@$(BIN)/leadline demo $(ARGS)

# The same order of sets in each run: a seed of the simulation takes the same steps.
test: $(READY) $(COMPILED) ## all tests
	PYTHONHASHSEED=0 $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(ARGS)

sim: $(COMPILED) ## simulate whole clusters with faults, from new seeds, for MINUTES (6)
	$(BIN)/leadline sim --minutes $(or $(MINUTES),6) --jobs 2 $(ARGS)

# A browser is no part of the lock: the driver goes into a folder of its own, and Chromium comes from the system or $$CHROMIUM.
BROWSER := .browser
browser-test: $(READY) $(COMPILED) ## the console and a report in a real browser; needs Chromium (apt-get install chromium)
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || { echo 'browser-test needs Chromium: apt-get install chromium, or CHROMIUM=/path' >&2; exit 1; }
	@[ -d $(BROWSER)/playwright ] || { $(INSTALL); install --target $(BROWSER) playwright==1.65.0; }
	PYTHONPATH=$(BROWSER) $(BIN)/python -m pytest -p no:xdist tests/browser/check_*.py $(ARGS)

check: $(READY) ## lint, format, types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(READY) $(COMPILED) ## measure the speed
	$(BIN)/python -m tests.bench $(ARGS)

man: $(COMPILED) ## the man page, from the help of all commands: build/leadline.1
	@mkdir -p build && $(BIN)/python -m leadline.cli.completion.man_page >build/leadline.1

package: man $(READY) ## build the wheel and the sdist into dist/, install each into an empty environment and try it
	@$(BIN)/python -m tests.package $(ARGS)

fault: $(READY) $(COMPILED) ## break a cluster of real processes in every way, and see that nothing is lost; needs root
	@$(BIN)/python -m tests.fault $(ARGS)

# The generator has an environment and a lock of its own: neither a broker nor a test needs it.
DOCS := .docs
docs: $(DOCS)/.ready ## the documentation as a site: build/docs/index.html
	@$(DOCS)/bin/python -m sphinx -q -W --keep-going -c docs/site -d build/doctrees docs build/docs
	@echo 'Open build/docs/index.html in a browser.'

$(DOCS)/.ready: docs/requirements.lock
	@"$(PYTHON)" $(CHECK_PYTHON) || { echo 'The site needs Python 3.11 or newer with its module venv; PYTHON=... tells where it is.' >&2; exit 1; }
	@echo 'Setting up $(DOCS), once: up to a minute, for the download of some 20 MB.' >&2
	@"$(PYTHON)" -m venv --clear $(DOCS)
	@$(DOCS)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r docs/requirements.lock
	@touch $@

format: $(READY) ## let ruff put the code in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# All but gssapi, which is built from source, and needs libkrb5-dev: its tests have a lock and a folder of their own.
EXTRAS := avro console iceberg oauth protobuf spark testing
GSSAPI_LOCK := requirements-gssapi.lock
LOCK := uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 \
  --custom-compile-command 'make lock'
lock: ## renew all lock files; needs uv
	$(LOCK) --upgrade --group dev $(foreach it,$(EXTRAS),--extra $(it)) --output-file requirements.lock pyproject.toml
	$(LOCK) --group build --extra console --extra oauth --constraint requirements.lock --output-file $(BROKER_LOCK) pyproject.toml
	$(LOCK) --upgrade --group docs --output-file docs/requirements.lock
	$(LOCK) --upgrade --group gssapi --output-file $(GSSAPI_LOCK)

clean: ## remove .venv and all caches
	rm -rf src/leadline/records/*.so .venv .browser .docs .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests -name __pycache__ -type d -exec rm -rf {} +

# With uv where that is present and works, else with pip: the system's, or one of the environment's own. Each adds what is
# missing. Neither compiles modules that nobody may import.
define INSTALL
if [ -t 2 ]; then quiet_uv= quiet_pip=; else quiet_uv=--quiet quiet_pip=-qq; fi; \
pip() { if "$(PYTHON)" -m pip --version >/dev/null 2>&1; then "$(PYTHON)" -m pip --python $(BIN)/python "$$@"; \
  else $(BIN)/python -m ensurepip >/dev/null && $(BIN)/python -m pip "$$@"; fi; }; \
install() { command -v uv >/dev/null && UV_SYSTEM_CERTS=1 uv pip install $$quiet_uv --python $(BIN)/python "$$@" || \
  pip --disable-pip-version-check install $$quiet_pip --no-compile "$$@"; }
endef
COUNT := grep -c '^[a-z].*=='

# What a broker needs: a small part of requirements.lock, in the same versions. When a lock file changes, the environment is
# built anew as a whole, so that it never holds more than the lock files say.
$(BROKER): $(BROKER_LOCK) requirements.lock pyproject.toml
	@"$(PYTHON)" $(CHECK_PYTHON) || { echo 'Leadline needs Python 3.11 or newer with its module venv; PYTHON=... tells where it is.' >&2; exit 1; }
	@set -e; $(INSTALL); \
	echo 'Setting up .venv for a broker, once: a few seconds, for the download of some 20 MB.' >&2; \
	echo '1/3 a virtual environment of $(PYTHON)' >&2; \
	"$(PYTHON)" -m venv --clear --without-pip .venv; \
	echo "2/3 the $$($(COUNT) $(BROKER_LOCK)) packages that $(BROKER_LOCK) names" >&2; \
	install --require-hashes -r $(BROKER_LOCK); \
	echo '3/3 Leadline itself' >&2; \
	install --no-deps --no-build-isolation --editable .
	@touch $@

# The rest: Spark, and what tests and checks need.
$(READY): $(BROKER)
	@set -e; $(INSTALL); \
	echo "Adding the rest of the $$($(COUNT) requirements.lock) packages that requirements.lock names, once:" \
	  'this takes a minute or more, for the download of some 700 MB, most of it Spark.' >&2; \
	install --require-hashes -r requirements.lock
	@touch $@

# Without a C compiler it says so in one line, and Leadline runs in pure Python.
$(COMPILED): $(BROKER) hatch_build.py src/leadline/records/compiled_walker.c
	@$(BIN)/python hatch_build.py
	@touch $@
