# make setup | demo | test | test-fast | test-oldest | test-versions | test-package | docs | linkcheck | fuzz | fuzz-files |
# endurance | kills | native-sanitize | check | coverage | figure: everything goes through .venv, made from pyproject.toml and
# constraints.txt; test-oldest, test-versions and test-package make separate environments.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin
export OMP_WAIT_POLICY := passive
# A process that imports torch takes seconds longer if the bytecode of an earlier one was not kept.
unexport PYTHONDONTWRITEBYTECODE
STAMP := .venv/.ready
# Python compiles what is imported; pip would compile every file, which takes twice as long as the rest.
INSTALL := install --quiet --no-compile

.PHONY: setup demo test test-fast test-oldest test-versions test-package docs linkcheck fuzz fuzz-files endurance kills native-sanitize check lint types coverage figure clean

setup: $(STAMP)

# torch first and by itself: a pinned version takes the CPU build where one is at hand, a range never does.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip $(INSTALL) "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip $(INSTALL) --constraint constraints.txt --editable ".[boost,onnx,serve,track,tune,docs,dev]"
	touch $(STAMP)

demo: setup
	$(BIN)/windtunnel demo

# Two workers; tests/conftest.py keeps tests that share fitted pipelines on one of them, and starts slow files first.
# Each has one thread; tests of threads set their number.
XDIST := --numprocesses 2 --dist loadgroup --no-loadscope-reorder
test test-fast test-oldest test-versions: export OMP_NUM_THREADS := 1
test: setup
	$(BIN)/python -m pytest $(XDIST)

# The daily loop, under a minute: quick files of every layer, without tests over the whole case table.
FAST := $(addprefix tests/, encode modules/test_hard_trees.py modules/test_soft_trees.py estimators/test_two_hot.py \
	translators/trees/test_lightgbm.py translators/linear/test_linear.py translators/preprocessing/test_scalers.py \
	pipeline/test_graph.py program/test_few_rows.py objectives compiler/test_hardening.py export/test_artefact.py \
	trainers/data/test_data.py trainers/residual/test_tree_block_weights.py api/test_translate.py api/test_report.py \
	api/test_bad_input.py experiment/test_config.py)
test-fast: setup
	$(BIN)/python -m pytest $(XDIST) -m "not slow and not whole_table" $(FAST)

# The parity of the case table in separate environments: with the oldest versions of the source libraries, or with the
# Python and torch of your choice: make test-versions PYTHON=python3.13 TORCH=2.11.0; with NEWEST=1 the newest of all
# other libraries that pyproject.toml accepts, some of which have no release for older Pythons.
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)
OLDEST := .venv-oldest
VERSIONS := .venv-$(notdir $(PYTHON))-torch-$(TORCH)$(if $(NEWEST),-newest)
$(OLDEST)/.ready: CONSTRAINTS := constraints-oldest.txt
$(OLDEST)/.ready $(VERSIONS)/.ready: pyproject.toml constraints.txt constraints-oldest.txt
	$(PYTHON) -m venv $(@D)
	echo "torch==$(TORCH)" | cat - $(CONSTRAINTS) > $(@D)/first.txt
	awk -F '==' 'NR == FNR { first[$$1]; print; next } !($$1 in first)' \
		$(@D)/first.txt $(if $(NEWEST),/dev/null,constraints.txt) > $(@D)/constraints.txt
	$(@D)/bin/pip $(INSTALL) torch==$(TORCH)
	$(@D)/bin/pip $(INSTALL) --constraint $(@D)/constraints.txt --editable ".[boost,onnx,dev]"
	touch $@

test-oldest: $(OLDEST)/.ready
test-versions: $(VERSIONS)/.ready
# Files and training do not depend on the versions of the source libraries.
test-oldest: OTHERS := and not test_files_that and not test_fit_learns
test-oldest test-versions:
	$(<D)/bin/python -m pytest $(XDIST) -W ignore::FutureWarning -k "not parity_in_float32 and not warm_start $(OTHERS)" \
		tests/api/test_translate.py tests/pipeline $(addprefix tests/translators/,test_unusual_pipelines.py composites \
		linear preprocessing trees)

# The sdist, a wheel built from it, and what a new user does first, in an empty environment without extras.
PACKAGE := .venv-package
test-package:
	rm -rf $(PACKAGE)
	$(PYTHON) -m venv $(PACKAGE)
	$(PACKAGE)/bin/pip $(INSTALL) --constraint constraints.txt --target $(PACKAGE)/build hatchling
	PYTHONPATH=$(PACKAGE)/build $(PACKAGE)/bin/python -m hatchling build --target sdist --directory $(PACKAGE)/dist
	$(PACKAGE)/bin/pip wheel --quiet --no-deps --wheel-dir $(PACKAGE)/dist $(PACKAGE)/dist/*.tar.gz
	$(PACKAGE)/bin/pip $(INSTALL) "$$(grep '^torch==' constraints.txt)"
	$(PACKAGE)/bin/pip $(INSTALL) --constraint constraints.txt $(PACKAGE)/dist/*.whl
	$(PACKAGE)/bin/pip check
	$(PACKAGE)/bin/pip list
	cd $(PACKAGE) && PYTHONSAFEPATH=1 bin/python -W ignore ../tests/support/installed.py

# As many new random pipelines as EXAMPLES says; make test runs 60, always the same.
EXAMPLES ?= 5000
fuzz: setup
	WINDTUNNEL_FUZZ=$(EXAMPLES) $(BIN)/python -m pytest tests/api/test_fuzz.py

# As many changed files as FILES says, none of which may take five seconds; make test changes 2,000, always the same.
FILES ?= 50000
fuzz-files: setup
	WINDTUNNEL_FUZZ_FILES=$(FILES) $(BIN)/python -m pytest -o faulthandler_timeout=600 tests/export/test_fuzz_files.py \
		tests/serving/test_app.py -k changed

# So many calls from 16 threads, on each of three models; make test has 4,000.
CALLS ?= 100000
endurance: setup
	WINDTUNNEL_CALLS=$(CALLS) $(BIN)/python -m pytest --durations 3 tests/compiler/native/test_endurance.py

# Ten kills each of joint training, streamed training and sweeps on two processes, at random moments; make test has none.
KILLS ?= 10
kills: setup
	WINDTUNNEL_KILLS=$(KILLS) $(BIN)/python -m pytest -m slow --capture=no tests/trainers/loop/test_kills.py

# The C library, and exported C files with hostile rows, with AddressSanitizer and UndefinedBehaviorSanitizer; Python has
# to load their libraries first. Little freed memory is held back, as tests measure what a process keeps.
SANITIZERS = $(foreach name,asan ubsan stdc++,$(shell $(CC) -print-file-name=lib$(name).so))
SANITIZE := -g -fsanitize=address,undefined -fno-sanitize-recover=all
native-sanitize: setup
	LD_PRELOAD="$(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=8 UBSAN_OPTIONS=print_stacktrace=1 \
	WINDTUNNEL_NATIVE_FLAGS="-DWT_PORTABLE $(SANITIZE)" WINDTUNNEL_C_FLAGS="$(SANITIZE)" WINDTUNNEL_FUZZ_FILES=$(FILES) \
	$(BIN)/python -m pytest tests/compiler/native tests/export/test_fuzz_files.py::test_hostile_rows_in_c

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy

check: lint types test

coverage: setup
	$(BIN)/python -m docs.coverage

figure: setup
	$(BIN)/python -m docs.gains
	$(BIN)/python -m docs.figures
	$(BIN)/python -m benchmarks.accuracy --output benchmarks/results/accuracy --report docs/accuracy.md > /dev/null
	$(BIN)/python -m benchmarks.paper --output benchmarks/results/paper --report docs/joint_training.md

# The site, in docs/_build/html: runs the examples; a warning is an error.
docs: setup
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build/html

# The addresses of other sites; needs the internet.
linkcheck: setup
	$(BIN)/sphinx-build --builder linkcheck --quiet docs docs/_build/linkcheck

clean:
	rm -rf .venv .venv-* demo-output docs/_build docs/_figures docs/tutorials docs/api/generated
