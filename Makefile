# Two commands on a fresh machine: `make demo` runs the main job, `make test` passes the whole suite.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# One environment, filled as far as a target needs: `plain` has what control and trading use, `full` the rest too.
PLAIN := $(VENV)/.installed-plain
FULL := $(VENV)/.installed-full
# Files are compiled when first imported: most never are, and compiling them all takes longer than copying them.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt

.PHONY: demo check test learn lint bench results fuzz chaos docs setup clean

setup: $(FULL)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(PLAIN): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable .
	touch $@

$(FULL): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[test]'
	touch $@ $(PLAIN)

demo: $(PLAIN)
	$(BIN)/proxima experiment --scenario sine_wave --generate-data

# A worker that crashes is not started again: the run then ends with that failure instead of waiting for ever.
# Files are handed out in the order of tests/conftest.py, the longest first.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# Before a commit: lint, types, and the tests that train nothing.
QUICK := tests/core tests/nets tests/scenario tests/report tests/train/test_atomic.py \
	tests/train/test_convergence.py tests/train/test_loop.py tests/test_architecture.py tests/test_docs.py \
	tests/test_extras.py tests/test_files.py tests/test_layers.py tests/test_package.py tests/test_yaml.py

check: lint
	$(PYTEST) -m 'not slow' --ignore tests/scenario/test_shipped.py $(QUICK)

test: lint
	$(PYTEST)

# movie_critic whole, which the suite has no room for.
learn: setup
	PROXIMA_WHOLE=1 $(BIN)/python -m pytest tests/domains/language/test_learning.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Everything that is read, damaged at random; every kind of run, killed at random and resumed. Minutes each.
fuzz: setup
	$(BIN)/python fuzz/run.py

chaos: setup
	$(BIN)/python fuzz/chaos.py

bench: setup
	$(BIN)/python benchmarks/run.py

# Every shipped scenario that is not finished yet, but for the long ones; then the table in docs/results.md.
results: setup
	$(BIN)/python benchmarks/results.py

# docs/ as a site, in site/; look at it with `python3 -m http.server --directory site`.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
