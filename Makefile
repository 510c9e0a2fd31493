# Everything sets itself up: python3 (>= 3.11), pip and make are enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: all demo test check cov bench crash fmt clean
all: check test

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "batchinfer needs Python 3.11 or newer; say: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fast,dev]'
	@touch $@

demo: $(STAMP)   ## run the main job on sample_data against the simulated provider
	@BIN=$(BIN) sh sample_data/demo.sh

test: $(STAMP)   ## the test suite (< 5 minutes on 2 cores)
	$(BIN)/python -m pytest -q -n auto

check: $(STAMP)  ## format, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

cov: $(STAMP)    ## the suite with branch coverage
	$(BIN)/python -m pytest -q -n auto --cov --cov-report=term

crash: $(STAMP)  ## kill -9 at random moments, and the other long proofs
	$(BIN)/python -m pytest -q -m slow --timeout 1800

bench: $(STAMP)  ## the whole job beside a bare client loop, in one run
	$(BIN)/python tests/bench.py

fmt: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
