# `make serve` and `make test` are all that a fresh machine needs: each makes its environment in .venv first.
PYTHON ?= python3
PORT ?= 8000
BIN := .venv/bin

.PHONY: serve test check format clean

serve: .venv/serve.installed
	$(BIN)/python -m server --port $(PORT)

test: .venv/dev.installed
	$(MAKE) check

# what has to hold before a change lands
check:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

format:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build *.egg-info

.venv/%.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@
