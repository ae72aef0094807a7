# Everything sets itself up from nothing: python3 (3.11 or newer) and make are enough.
#
#   make demo        train a small network and watch it learn
#   make test        the one command: linters, types, import contracts, tests on a seeded sample
#   make test-all    the same at full size
#   make test-peers  compare with PyTorch and JAX (installs both, in an environment of their own)
#   make bench       measure against PyTorch and JAX
#   make docs        write the made pages anew: ops, errors, kinks, ulps and tape.svg in docs/
#   make lint        the linters alone; `make fix` lets ruff repair what it can
#   make clean       remove environments and caches

PYTHON ?= python3
WORKERS ?= 2
# The seed that chooses which cases `make test` runs; try another number.
RETROGRAD_TEST_SAMPLE ?= 1
export RETROGRAD_TEST_SAMPLE
export PIP_DISABLE_PIP_VERSION_CHECK = 1

RUN := .venv/bin/python
PEERS := .venv-peers/bin/python

.DEFAULT_GOAL := test
.PHONY: demo test test-all test-peers bench docs lint fix clean

demo: .venv/.ready
	$(RUN) examples/digits.py

test: lint
	$(RUN) -m pytest -n $(WORKERS)

test-all: lint
	RETROGRAD_TEST_ALL=1 $(RUN) -m pytest -n $(WORKERS)

test-peers: .venv-peers/.ready
	$(PEERS) -m pytest -m peers

bench: .venv-peers/.ready
	$(PEERS) -m benchmarks.run

docs: .venv/.ready-dev
	$(RUN) docs/make_ops.py
	$(RUN) docs/make_errors.py
	$(RUN) docs/make_kinks.py
	$(RUN) docs/make_tape.py
	$(RUN) docs/make_ulps.py

lint: .venv/.ready-dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	.venv/bin/lint-imports --no-logo

fix: .venv/.ready-dev
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

clean:
	rm -rf .venv .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Environments: a stamp in each, older than pyproject.toml means install again.

comma := ,

define environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
  "retrograd needs Python 3.11 or newer; try: make PYTHON=python3.11")'
@echo "setting up $(1) (once)"
@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
@$(1)/bin/python -m pip install -qq -e '$(2)'
@touch $@
endef

.venv/.ready: pyproject.toml
	$(call environment,.venv,.)

.venv/.ready-dev: pyproject.toml
	$(call environment,.venv,.[dev])
	@touch .venv/.ready

.venv-peers/.ready: pyproject.toml
	$(call environment,.venv-peers,.[dev$(comma)peers])
