# Two commands do everything on a machine with Python >= 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Numba does not notice when a function that a cached kernel calls has changed, so the cache is kept by contents.
KERNELS := $(shell cat src/dualplan/_kernels/*.py | cksum | cut -d' ' -f1)
export NUMBA_CACHE_DIR := $(CURDIR)/$(VENV)/numba/$(KERNELS)

# Each worker begins with a half of the tests, in the order of files, and so shares little to compile
# with the other.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo quick test test-all coverage durations lint types docs lock bench clean

# a network whose states cannot be listed, from its file: the best policy in a minute, as a table and as a page; then
# one that is small enough for the exact answer
demo: $(VENV)/ready
	@rm -rf runs/demo runs/demo-small
	$(BIN)/dualplan solve examples/six_class.toml --time 60s --out runs/demo
	@echo "Published for this network: 14.130 ± 0.208, by a neural network that was trained for it (PPO, Dai & Gluzman 2022)."
	$(BIN)/dualplan report runs/demo
	@echo "A small network, where the answer is exact:"
	@$(BIN)/dualplan solve four-queue --set buffers=9 --time 20s --out runs/demo-small | grep -e found: -e optimal:

# while working: the tests that take up to a third of a second, together about a minute
quick: $(VENV)/ready
	$(PYTEST) -q -m "quick and not slow"

# all but the tests marked slow
test: lint types
	$(PYTEST) -m "not slow"

# all of them
test-all: lint types
	$(PYTEST)

# which lines of the library `make test` runs; compiled kernels are left out, since they run unseen
coverage: $(VENV)/ready
	$(PYTEST) -q -m "not slow" --cov --cov-report=term

# which tests are quick is read from the last list of those that are not
durations: $(VENV)/ready
	$(PYTEST) -q --durations=0 | $(BIN)/python tests/longer.py

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready
	$(BIN)/mypy

# the pages of docs/ and the reference, into site/; a link that leads nowhere is an error
docs: $(VENV)/docs
	$(BIN)/mkdocs build

$(VENV)/docs: docs/requirements.lock $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.lock
	@touch $@

bench: $(VENV)/ready
	$(BIN)/python benchmarks/simulation.py

$(VENV)/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("dualplan needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Renew the lock file after a change of dependencies (needs uv).
lock:
	uv pip compile pyproject.toml --group dev --extra gymnasium --extra dask --universal --python-version 3.11 \
		--generate-hashes --no-header -o requirements.lock
	uv pip compile --group docs -c requirements.lock --universal --python-version 3.11 \
		--generate-hashes --no-header -o docs/requirements.lock

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
