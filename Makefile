# The two commands: `make demo` and `make test`. Each needs only Python 3.11-3.13,
# a C++ compiler and a package index; the first run makes .venv, the next starts at once.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test torture check bench docs format clean

demo: .venv/core
	$(BIN)/glasshead demo

# The fuzzer gives all its tests one name, which side by side would count as one test.
ALONE := tests/serve/test_schema.py

test: .venv/browser
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(ALONE:%=--ignore %)
	$(BIN)/python -m pytest $(ALONE)

# The long version: a training process killed 100 times, some ten minutes.
torture: .venv/dev
	GLASSHEAD_KILLS=100 $(BIN)/python -m pytest tests/train/test_kill.py

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m docs._build.architecture

# The site in English and Chinese: build/site/index.html opens without a server or a network.
docs: .venv/dev
	$(BIN)/python -m docs._build.architecture
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo build/site/index.html

# Every area beside its peers, then what growing costs; figures go into docs/results.md.
bench: .venv/bench
	$(BIN)/python -m bench
	$(BIN)/python -m bench.growth

.venv/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; ok = (3, 11) <= v <= (3, 13); ok or sys.exit("Python %d.%d found; 3.11 to 3.13 needed\n\nhint: make PYTHON=python3.12 ..." % v)'
	$(PYTHON) -m venv .venv
	@touch $@

.venv/core: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable .
	@touch $@

.venv/dev: .venv/core
	$(PIP) --editable ".[dev]"
	@touch $@

# A browser for the tests of the page: one that is there, Debian's, or Playwright's own.
.venv/browser: .venv/dev
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	     && apt-get install -y -qq --no-install-recommends chromium fonts-noto-cjk >/dev/null; } \
	|| timeout 300 $(BIN)/python -m playwright install chromium \
	|| echo "no browser could be installed: the tests of the page will be skipped"
	@touch $@

# bertviz and Joey NMT ask for older libraries than ours (by way of boto3; protobuf) and do without.
.venv/bench: .venv/dev
	$(PIP) --editable ".[dev,bench]" \
	|| echo "peers could not be installed: the benchmarks name them and leave them out"
	$(PIP) --no-deps bertviz joeynmt subword-nmt importlib-metadata zipp lazy-importer \
	|| echo "bertviz and Joey NMT could not be installed: the benchmarks leave them out"
	@touch $@

clean:
	rm -rf .venv
