# Two commands on a fresh machine: `make demo` runs the main job, `make test` passes the whole suite.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test learn lint bench setup clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,envpool,box2d,gguf]'
	touch $(STAMP)

demo: setup
	$(BIN)/proxima experiment --scenario sine_wave --generate-data

test: setup lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

# movie_critic whole, which the suite has no room for.
learn: setup
	PROXIMA_WHOLE=1 $(BIN)/python -m pytest tests/test_learning_language.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
