# Set-up, tests, checks and benchmarks of a checkout. `make` alone lists the targets.
#
# All targets share one virtual environment, .venv. A stamp file in it records which lock file was
# installed last, so the second run of a target does no set-up work.

SHELL := /bin/sh
PYTHON ?= python3
ARGS ?=
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Node comes from a wheel in .venv; its directory goes first so that npm finds that Node.
# Node trusts the certificates that the operating system trusts, as pip and git do.
NPM_CI := NODE_USE_SYSTEM_CA=1 PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
CODE := $(wildcard src tests benchmarks tools examples)
# A worker process that runs out of tests takes over some of another's. Each starts its own servers,
# so a file may be split between them.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=15
# System programs: apt-get installs them where it can; tests that lack one are skipped.
DEBIAN := $(BIN)/python -m tools.debian
TEST_SETUP := $(VENV)/.dev-stamp tests/conformance/node_modules/.stamp tests/reference/node_modules/.stamp

.DEFAULT_GOAL := help
.PHONY: help install serve test test-all coverage lint format docs build bench lock clean

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.run-stamp ## Set up what is needed to run the server, in .venv

serve: $(VENV)/.run-stamp ## Run the server on ./data (more options: make serve ARGS="--port 9000")
	$(BIN)/tailrace serve --data-dir ./data $(ARGS)

test: $(TEST_SETUP) ## Run the tests to pass before each push (some: make test PYTEST_ARGS="-k name")
	$(PYTEST) --ignore=tests/spark/cluster $(PYTEST_ARGS)

# Spark clusters get the machine to themselves. The second run happens even if the first one fails.
# Status 5, no tests, is no failure: PYTEST_ARGS may select tests of one run only.
test-all: $(TEST_SETUP) tests/ecosystem/node_modules/.stamp ## Run every test: all kinds of servers, long kills, clusters (installs Debian packages)
	@$(DEBIAN) chromium nginx wrk
	@status=0; \
	$(PYTEST) -n 0 --all-tests tests/spark/cluster $(PYTEST_ARGS) || test $$? -eq 5 || status=1; \
	$(PYTEST) --all-tests --ignore=tests/spark/cluster $(PYTEST_ARGS) || test $$? -eq 5 || status=1; \
	exit $$status

coverage: $(TEST_SETUP) ## Run the tests of `make test`, and print their branch coverage
	@rm -f .coverage .coverage.*
	@status=0; $(PYTEST) --ignore=tests/spark/cluster --cov --cov-report= $(PYTEST_ARGS) || status=$$?; \
	$(BIN)/coverage report --skip-covered --skip-empty; exit $$status

lint: $(VENV)/.dev-stamp ## Check style, types and the imports between layers
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy --strict $(CODE)
	$(BIN)/lint-imports

format: $(VENV)/.dev-stamp ## Rewrite the code in the agreed style
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

docs: $(VENV)/.dev-stamp ## Write docs/api.md and the table of docs/spark.md from the code
	$(BIN)/python -m tools.api_reference
	$(BIN)/python -m tools.options_table

build: $(VENV)/.dev-stamp ## Build the wheel and the sdist into dist/
	rm -rf dist
	$(BIN)/python -m hatchling build

bench: $(VENV)/.dev-stamp benchmarks/reference/node_modules/.stamp ## Run the benchmarks (options: make bench ARGS="...")
	@$(DEBIAN) nginx wrk
	$(BIN)/python -m benchmarks $(ARGS)

# The run lock constrains the dev lock: tests see the same versions as users do.
UV_COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --generate-hashes \
	--python-version 3.11 --no-emit-index-url --no-emit-find-links --no-config --quiet \
	--custom-compile-command "make lock" --extra server --extra arrow
lock: $(VENV)/.venv-stamp ## Compile requirements/*.txt from pyproject.toml
	@test -x $(BIN)/uv || $(PIP) install --quiet uv
	$(UV_COMPILE) --group build --upgrade --output-file requirements/run.txt
	$(UV_COMPILE) --extra all --group dev --upgrade --constraint requirements/run.txt --output-file requirements/dev.txt

clean: ## Remove the virtual environment, node_modules and tool caches (not ./data)
	rm -rf $(VENV) tests/conformance/node_modules tests/reference/node_modules tests/ecosystem/node_modules build dist
	rm -rf benchmarks/reference/node_modules benchmarks/clients/node_modules benchmarks/clients/.venv-official
	rm -rf .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up ------------------------------------------------------------------------------------

$(VENV)/.venv-stamp:
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	  echo "make: '$(PYTHON)' was not found. Install Python 3.11 or later, or name it:" >&2; \
	  echo "  make PYTHON=/path/to/python3.12 <target>" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: Tailrace needs Python 3.11 or later; '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1)." >&2; \
	  echo "Name a later one: make PYTHON=/path/to/python3.12 <target>" >&2; exit 1; }
	@echo "Creating $(VENV) with $$("$(PYTHON)" -V 2>&1)"
	@rm -rf $(VENV)
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "make: '$(PYTHON)' could not create a virtual environment (see above)." >&2; \
	  echo "On Debian or Ubuntu install the package python3-venv, or name another Python:" >&2; \
	  echo "  make PYTHON=/path/to/python3.12 <target>" >&2; exit 1; }
	@touch $@

$(VENV)/.run-stamp: $(VENV)/.venv-stamp requirements/run.txt pyproject.toml
	@echo "Installing the server's locked dependencies"
	@$(PIP) install --quiet --require-hashes -r requirements/run.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev-stamp: $(VENV)/.run-stamp requirements/dev.txt
	@echo "Installing the locked development tools"
	@$(PIP) install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

%/node_modules/.stamp: %/package.json %/package-lock.json $(VENV)/.dev-stamp
	@echo "Installing the locked Node packages of $*"
	@cd $* && $(NPM_CI)
	@touch $@
