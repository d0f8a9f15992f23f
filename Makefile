# make demo   make a small environment, solve a bundled instance, show the timeline and the proof
# make test   lint, types and tests
# make test-core  the tests of the rooms that use extras once more without them, but for the slow ones
# make coverage  what share of each room the tests reach; COVERED=tests/checking limits it to some tests
# make docs   the site of the documentation, in out/site/html; installs what only this needs
# make bench  how fast it starts, loads, checks, plans and proves
# make gate   plans and bounds of sixty small solves against stored values; before a change of solvers lands
# make faults hostile input, faults and limits: what docs/reliability.md promises, tried in ten minutes
# make constraints  the newest versions that go together, into constraints.txt; installs what only this needs
# make test-lowest  the fast tests with the lowest versions that pyproject.toml admits, without PyTorch and Ray
# make dist   the source archive and the wheel, in out/dist
# make release VERSION=0.3.0  sets version and date, commits, and makes the tag that the forge publishes
# make peers  other solvers and ours on the set rack, side by side; installs what only this needs

VENV ?= .venv
CORE ?= .venv-core
LOWEST ?= .venv-lowest
# Where the extras make a difference; that every module of the other rooms loads without them is one of these tests.
CORE_TESTS = tests/cli tests/executor tests/solvers tests/sweeps tests/views $(wildcard tests/test_*.py)
PYTHON ?= python3
BIN := $(VENV)/bin
DEMO ?= server/demo
OUT ?= out
COVERED ?= tests

.PHONY: install demo docs test test-core coverage test-lowest bench gate faults constraints dist release peers clean

install: $(VENV)/.installed

# Zig's C compiler, where the system has none.
ifeq ($(shell command -v cc gcc clang),)
export CC = $(abspath $(BIN))/python -m ziglang cc
ZIG = $(PIP) ziglang
endif
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(ZIG)

# What the demo needs, without PyTorch; `install` makes it larger.
$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	test -e $(VENV)/.installed || $(PIP) -e '.[plot]'
	touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[plot,torch,chakra,ray,serve,dev]'
	touch $@

demo: $(VENV)/.demo
	mkdir -p $(OUT)
	$(BIN)/jigsaw solve $(DEMO) --time-limit 20 --timeline -o $(OUT)/demo.plan.json
	$(BIN)/jigsaw check $(DEMO) $(OUT)/demo.plan.json
	$(BIN)/jigsaw plot $(DEMO) $(OUT)/demo.plan.json -o $(OUT)/demo.html

test: install
	$(BIN)/python setup.py --quiet build_ext --inplace
	$(BIN)/python -c "from jigsaw_opt.solvers.engines.compiled import library; assert library()"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadgroup

$(CORE)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

test-core: $(CORE)/.installed
	$(CORE)/bin/python -m pytest -n 2 -rs -m "not slow" $(CORE_TESTS)

test-lowest: | $(BIN)/python
	$(PIP) uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct -e '.[plot,chakra,serve,test]'
	$(LOWEST)/bin/python -m pytest -n 2 -m "not slow"

# Measures and fails nothing. Lines that run only in child processes or in compiled functions are not counted.
coverage: install
	-$(BIN)/python -m pytest -n 2 --dist loadgroup --cov --cov-report= $(COVERED)
	$(BIN)/python tests/coverage_by_room.py

docs: $(VENV)/.demo
	$(PIP) -e '.[docs]'
	$(BIN)/python docs/site/build.py

bench: install
	$(BIN)/python benchmarks/speeds.py

gate: install
	$(BIN)/python benchmarks/gate.py

faults: install
	$(BIN)/python benchmarks/faults.py

# For every system and Python version that pyproject.toml admits, whichever this is run on.
constraints: | $(BIN)/python
	$(PIP) uv
	$(BIN)/uv pip compile pyproject.toml --quiet --upgrade --universal --all-extras --no-header --no-annotate -o constraints.txt

dist: | $(BIN)/python
	$(PIP) build cython setuptools
	$(BIN)/python -m build --no-isolation --outdir $(OUT)/dist

release: | $(BIN)/python
	$(BIN)/python .github/release.py cut $(VERSION)

peers: install
	$(PIP) -r benchmarks/peers/requirements.txt
	$(BIN)/python benchmarks/peers/compare.py rack --time-limit 30 --threads 2 -o $(OUT)/peers-rack.jsonl

clean:
	rm -rf $(VENV) $(CORE) $(LOWEST) $(OUT) .pytest_cache .mypy_cache .ruff_cache
