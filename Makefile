# make demo | test | devices | check | suites | bench | clean. Everything runs in .venv, which the first target makes.
# PYTHON=python3.12 chooses the interpreter; any from 3.11 on will do.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test devices check suites bench clean venv ruff types floors

PY := .venv/bin/python
READY := .venv/.ready
FOUND := build/check/rlx
SOURCES := $(shell find rlx linalg sparse splat nn -name '*.py' -o -name '*.pyi' -o -name py.typed)

venv: $(READY)

# The packages are installed from this checkout (editable): sources may change, metadata makes it anew.
$(READY): pyproject.toml setup.py .ci/venv
	.ci/venv .venv $(PYTHON)
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[demo,test,check,bench]'
	touch $@

demo: $(READY)
	$(PY) -m rlx demo

# pytest first, then the checks. -n: two workers are what a small machine has; more would time-share.
test: $(READY)
	mkdir -p build
	$(PY) -m pytest -n auto --maxprocesses 2 --dist loadfile 2>&1 | tee build/pytest.log
	$(MAKE) check

# The conformance suite on every device that runs without a GPU, and where each op went.
DEVICES := opencl,vulkan,webgpu,gpu,opengl
devices: $(READY)
	mkdir -p build
	rm -f build/ran.jsonl
	$(PY) -m pytest -q -n auto --maxprocesses 2 --dist loadgroup --devices $(DEVICES) \
	    --record-coverage build/ran.jsonl tests/conformance tests/device
	$(PY) -m rlx coverage --from build/ran.jsonl

# All three run even if one fails: a person mends all that is wrong at once.
check:
	$(MAKE) --no-print-directory --keep-going ruff types floors

ruff: $(READY)
	.venv/bin/ruff check --output-format concise .

# Type checkers do not follow the package-dir mapping of an editable tree, so the wheel is what is checked.
types: $(READY) $(FOUND)/.built
	cd build/check && MYPYPATH= ../../.venv/bin/mypy --config-file ../../pyproject.toml \
	    --cache-dir ../mypy --python-executable ../../$(PY) -p rlx

$(FOUND)/.built: $(SOURCES) $(READY)
	rm -rf build/check build/lib build/bdist.* && mkdir -p build/check
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	    --target build/check .
	touch $@

# Import floors, cycles, device names, forbidden words; and, for information, what importing rlx costs.
floors: $(READY)
	$(PY) tests/house/import_time.py
	$(PY) -m pytest -q -p no:cacheprovider tests/house

# Other projects' tests against rlx (tens of minutes); docs/numpy.md records the results.
suites: $(READY)
	$(PY) tests/external/suites.py

bench: $(READY)
	$(PY) -m rlx bench

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
