# The two commands: `make demo` and `make test`. Each needs only Python 3.11-3.13 and a package
# index; the first run makes .venv, the next starts at once. CONTRIBUTING.md lists the others.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) $(UPGRADE)
PYTEST = $(BIN)/python -m pytest
# Whole files in as many processes as there are cores, up to four.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadfile
# The schema fuzzer gives all its tests one name, which xdist would count as one test.
SCHEMA := tests/serve/test_schema.py

.PHONY: demo test test-deep test-all test-lowest test-newest fuzz torture check bench docs format clean

demo: $(VENV)/core
	$(BIN)/glasshead demo

# What a newcomer and every change runs: every part, within six minutes on two cores.
test: $(VENV)/browser
	$(PYTEST) $(PARALLEL) -m "not deep" --ignore $(SCHEMA)

# What takes longer: the rest of the browser tests, the pages' blocks, site, wheel, load, claims,
# GPU kernels in Triton's interpreter. The second half runs even if the first fails.
test-deep: $(VENV)/dev $(VENV)/browser
	status=0; \
	$(PYTEST) $(PARALLEL) -m deep --ignore $(SCHEMA) || status=1; \
	$(MAKE) fuzz SEED=1 || status=1; \
	exit $$status

test-all: test test-deep

# The same tests with the lowest versions that pyproject.toml allows, and with the newest there are.
# torch keeps its pinned version: a newer one would bring gigabytes of CUDA packages.
test-lowest:
	$(MAKE) test VENV=.venv-lowest CONSTRAINTS=constraints-lowest.txt

test-newest:
	mkdir -p build
	grep '^torch==' constraints.txt > build/constraints-newest.txt
	$(MAKE) test VENV=.venv-newest CONSTRAINTS=build/constraints-newest.txt UPGRADE="--upgrade --upgrade-strategy eager"

# Property tests and the schema fuzz with new examples. `make fuzz SEED=7` repeats a run.
ifndef SEED
SEED := $(shell $(PYTHON) -c "import secrets; print(secrets.randbelow(2**32))")
endif
FUZZ = --hypothesis-profile fuzz --hypothesis-seed $(SEED)
fuzz: $(VENV)/dev
	@echo "seed $(SEED); to repeat this run: make fuzz SEED=$(SEED)"
	status=0; \
	$(PYTEST) $(PARALLEL) -m hypothesis --ignore $(SCHEMA) $(FUZZ) || status=1; \
	$(PYTEST) $(SCHEMA) $(FUZZ) || status=1; \
	exit $$status

# A training process killed 100 times, and 360 damages to files: a quarter of an hour.
torture: $(VENV)/test
	GLASSHEAD_KILLS=100 GLASSHEAD_DAMAGES=360 GLASSHEAD_MUTATIONS=500 \
		$(PYTEST) tests/training/test_kill.py tests/test_torture.py tests/test_mutations.py

check: $(VENV)/check node_modules/.package-lock.json
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(BIN)/python -m tools.messages  # prints the messages that have no Chinese, and what to do
	npm run --silent lint
	npm run --silent types

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m docs._build.architecture

# The site in English and Chinese: build/site/index.html opens without a server or a network.
docs: $(VENV)/dev
	$(BIN)/python -m docs._build.architecture
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo build/site/index.html

# Every area beside its peers, then what growing costs; figures go into docs/results.md.
bench: $(VENV)/bench
	$(BIN)/python -m bench
	$(BIN)/python -m bench.growth

$(VENV)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; ok = (3, 11) <= v <= (3, 13); ok or sys.exit("Python %d.%d found; 3.11 to 3.13 needed\n\nhint: make PYTHON=python3.12 ..." % v)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Each extra includes the core; dev includes test and check.
$(VENV)/core: $(VENV)/python pyproject.toml $(CONSTRAINTS)
	$(PIP) --editable .
	@touch $@

$(VENV)/test: $(VENV)/python pyproject.toml $(CONSTRAINTS)
	$(PIP) --editable ".[test]"
	@touch $(VENV)/core $@

$(VENV)/check: $(VENV)/python pyproject.toml $(CONSTRAINTS)
	$(PIP) --editable ".[check]"
	@touch $(VENV)/core $@

$(VENV)/dev: $(VENV)/python pyproject.toml $(CONSTRAINTS)
	$(PIP) --editable ".[dev]"
	@touch $(VENV)/core $(VENV)/test $(VENV)/check $@

# A browser for the tests of the page: one that is installed, Debian's, or Playwright's own.
$(VENV)/browser: $(VENV)/test
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	     && apt-get install -y -qq --no-install-recommends chromium fonts-noto-cjk >/dev/null; } \
	|| $(BIN)/python -m playwright install chromium \
	|| echo "no browser could be installed: the tests of the page will be skipped"
	@touch $@

# bertviz and Joey NMT ask for older libraries than ours (by way of boto3; protobuf) and do without.
$(VENV)/bench: $(VENV)/dev
	$(PIP) --editable ".[dev,bench]" \
	|| echo "peers could not be installed: the benchmarks name them and leave them out"
	$(PIP) --no-deps bertviz joeynmt subword-nmt importlib-metadata zipp lazy-importer \
	|| echo "bertviz and Joey NMT could not be installed: the benchmarks leave them out"
	@touch $@

# ESLint and TypeScript check the page's JavaScript, in the versions of package-lock.json.
node_modules/.package-lock.json: package.json package-lock.json
	@command -v npm >/dev/null || { printf "npm not found: 'make check' needs it for ESLint and TypeScript\n\nhint: install Node.js 20.19 or newer, with npm\n" >&2; exit 1; }
	npm ci --no-audit --no-fund --loglevel error
	@touch $@

clean:
	rm -rf $(VENV) node_modules
