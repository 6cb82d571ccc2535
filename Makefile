# Everything a developer or a user types. `make help` lists it.

.DEFAULT_GOAL := help
# Hundreds of processes that tests start import what has been compiled once, wherever Python is told to compile everything anew.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup demo test check lint types behaviour unit floors swarm conformance bench records against clean

# The Python that the environment is made with: python3 where it is 3.11 to 3.13, else the newest of these that is there.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
KERNELS := $(VENV)/.kernels
CLASSES := $(VENV)/.classes
BROWSER := $(VENV)/.browser
KERNEL_SOURCES := $(shell find src/evenflow/kernels -name '*.py' 2>/dev/null)

# Twice as many as there are cores: tests wait for processes, browsers and servers, and leave a third of the cores idle else.
WORKERS = $(shell echo $$(($$(nproc 2>/dev/null || echo 2) * 2)))

# Those with tests on Spark: to collect all the others as well takes each worker ten seconds. They wait more than they compute.
ON_SPARK = tests/worlds $(shell grep -rl --include='test_*.py' --exclude-dir=worlds 'mark\.spark' tests)

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

setup: $(INSTALLED) ## Install everything into .venv, compile the kernels and lay Spark's classes out; cheap when done already
	@$(MAKE) --no-print-directory --silent -j2 $(KERNELS) $(CLASSES)

# pip compiles by one core what it installs. A file of a library that no Python can compile is nobody's concern here.
$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Evenflow needs Python 3.11, 3.12 or 3.13 on PATH; or say which: make setup PYTHON=/path/to/python"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib src || true
	@$(BIN)/python -m evenflow.world.java
	@touch $@

$(KERNELS): $(INSTALLED) $(KERNEL_SOURCES)
	$(BIN)/python -m evenflow.kernels
	@touch $@

$(CLASSES): $(INSTALLED)
	@$(BIN)/python -m evenflow.world.spark.cluster.classes || echo "Spark will start without them, at twice the cost"
	@touch $@

$(BROWSER): $(INSTALLED) tools/browser/package-lock.json
	$(BIN)/python tools/fetch_browser.py
	@touch $@

demo: setup ## The network-session monitor on an embedded four-executor Spark cluster
	$(BIN)/evenflow demo

check: lint types ## Lint, format and types

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	nice -n 19 $(BIN)/mypy

unit: setup $(BROWSER) ## The tests that need no Spark
	$(BIN)/python -m pytest -q -n auto --dist loadgroup -m 'not spark and not oracle'

# Types are judged beside the tests, in what these leave of two cores.
test: lint $(BROWSER) ## Everything that must hold before a commit
	@$(MAKE) --no-print-directory -j2 types behaviour

behaviour: setup $(BROWSER)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m 'not conformance and not spark'
	$(BIN)/python -m pytest -q -n 3 --dist loadgroup -m 'not conformance and spark' $(ON_SPARK)

conformance: setup ## What takes long: more scenarios on real executors, more seeds against batch Spark
	EVENFLOW_MANY=1 $(BIN)/python -m pytest -q -m 'conformance or laws'

floors: setup ## The unit tests with the lowest versions that pyproject.toml declares, in .venv-floors
	$(BIN)/python tools/floors.py

swarm: setup ## Faults in the simulator, and planted bugs that must be found: make swarm SEEDS=0..10000 JOBS=2
	$(BIN)/evenflow swarm --seeds $(or $(SEEDS),0..10000) --jobs $(or $(JOBS),2)
	$(BIN)/evenflow swarm --mutations --seeds 0..2000 --jobs $(or $(JOBS),2)

bench: setup ## Throughput and latency side by side with Structured Streaming
	$(BIN)/evenflow bench throughput
	$(BIN)/evenflow bench latency

records: setup ## Make the records of all experiments and benches again; on a machine that does nothing else, for some hours
	$(BIN)/python tools/records.py $(if $(ONLY),--only $(ONLY))

against: setup ## The present tree against another commit, by turns: make against REV=851ccbd
	$(BIN)/python tools/against.py $(REV)

clean: ## Remove what setup and the tools made
	rm -rf $(VENV) .venv-floors build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
