# make setup | demo | test | fuzz | check | coverage | figure: everything goes through .venv,
# made from pyproject.toml and constraints.txt.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
BIN := .venv/bin
export OMP_WAIT_POLICY := passive
STAMP := .venv/.ready

.PHONY: setup demo test fuzz check lint types coverage figure clean

setup: $(STAMP)

# torch first and by itself: a pinned version takes the CPU build where one is at hand, a range never does.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[boost,onnx,track,tune,dev]"
	touch $(STAMP)

demo: setup
	$(BIN)/windtunnel demo

# Two at a time; a file's tests stay together, as they share what was fitted for them.
test: setup
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

# As many random pipelines as EXAMPLES says, new ones each time; the tests run 300, always the same.
EXAMPLES ?= 5000
fuzz: setup
	WINDTUNNEL_FUZZ=$(EXAMPLES) $(BIN)/python -m pytest tests/api/test_fuzz.py

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

clean:
	rm -rf .venv demo-output
