# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv first, which takes seconds.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
export NO_MKDOCS_2_WARNING := 1 # news of the documentation's theme
# uv does not read pip's settings, so a folder of local wheels that pip knows of is handed on.
UV := UV_FIND_LINKS="$${UV_FIND_LINKS:-$${PIP_FIND_LINKS:-}}" $(BIN)/uv pip install --quiet --python $(BIN)/python

.PHONY: demo test check release-check lowest mutants bench methods tuning results records pages docs clean

demo: $(VENV)/.demo
	$(BIN)/bomd demo
	@echo
	@echo "bomd is installed in $(VENV): call it as $(BIN)/bomd, or once in each terminal: source $(BIN)/activate"

test: $(VENV)/.dev $(VENV)/.timm check
	$(BIN)/pytest -n 2

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site

# Would a release work for somebody else? The wheel in an environment of its own, away from this folder: two minutes. Part
# of `make test`, too.
release-check: $(VENV)/.dev
	$(BIN)/python scripts/release_check.py

# The oldest versions that pyproject.toml declares, in an environment of their own, and the fast tests on them. PyTorch is
# the one of constraints.txt, of which a CPU build exists; older ones are not tested.
LOWEST := build/lowest
LOWEST_TESTS ?= tests
lowest: $(VENV)/bin/uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(UV:$(BIN)/python=$(LOWEST)/bin/python) --constraint constraints.txt torch
	$(UV:$(BIN)/python=$(LOWEST)/bin/python) --constraint constraints.txt --resolution lowest-direct --editable '.[dev]'
	$(LOWEST)/bin/pytest -n 2 -m "not slow" -p no:cacheprovider $(LOWEST_TESTS)

# Small errors planted in clean/, describe/ and measure/, one at a time: do the tests of each module notice? What was
# noticed in unchanged code is not tried again; then put the line that it prints into CONTRIBUTING.md.
mutants: $(VENV)/.dev
	OMP_NUM_THREADS=1 nice $(BIN)/python scripts/mutants.py

# The CPU's timings into results/speed.csv and docs/speed.md; on a GPU: python -m evidence.bench gpu --results results/speed.csv
bench: $(VENV)/.dev
	$(BIN)/python -m evidence.bench cpu --results results/speed.csv
	$(BIN)/python -m evidence.pages.speed

# Every method on phantoms, in 12 and in 30 epochs: minutes on a GPU, hours on two cores; what is finished is not done
# again.
methods: $(VENV)/.dev
	for epochs in 12 30; do \
		name=methods-demo$$(test $$epochs = 12 || echo -$$epochs); \
		$(BIN)/bomd benchmark methods-demo --methods all --jobs $(JOBS) --no-report \
			--set name=$$name --set fit.epochs=$$epochs \
			--cell noise.rows=0.0 --cell 'noise.rows=0.2 noise.labels=0.2' --cell 'noise.rows=0.4 noise.labels=0.4' \
			--cell 'noise.rows=0.6 noise.labels=0.6' --results results/$$name.jsonl.xz || exit 1; \
	done
	$(BIN)/python -m evidence.pages.methods

# The three settings that every method may try before that, on phantoms of another seed; writes the recipe methods-demo.
tuning: $(VENV)/.dev
	$(BIN)/python -m evidence.studies.tuning --jobs $(JOBS)

# Every number and picture in the README and docs that needs no data: about twenty minutes on 2 cores.
results: $(VENV)/.demo
	$(BIN)/bomd benchmark demo --methods bce,bomd,bomd-plus --seeds 0,1,2 --results results/demo.jsonl.xz
	$(BIN)/bomd benchmark demo --methods bomd --seeds 0,1,2 --set name=demo-short --set bomd.epochs=5 \
		--results results/demo-short.jsonl.xz
	$(BIN)/bomd benchmark demo --methods bce --seeds 0,1,2 --set name=demo-clean --set noise.rows=0.0 \
		--results results/demo-clean.jsonl.xz
	$(BIN)/python -m evidence.pages.contact_sheet docs/images/phantom.webp
	$(BIN)/python -m evidence.pages.readme
	$(BIN)/python -m evidence.pages.results
	$(BIN)/python -m evidence.pages.notebook

# Records that a benchmark left as .jsonl are added to those that are kept, compressed.
records: $(VENV)/.demo
	$(BIN)/python -m evidence.records

# Every table and page that follows from the records and the code, without any run.
pages: $(VENV)/.dev
	$(BIN)/python -m evidence.pages

# The documentation; with DATA=folder of the label files the counts of the datasets are taken anew as well.
docs: $(VENV)/.dev
	$(BIN)/python -m evidence.pages.datasets $(DATA)
	$(BIN)/python -m evidence.pages.how_it_works
	$(BIN)/python -m evidence.pages
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site

$(VENV)/bin/uv:
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "Python 3.11 to 3.13 is needed; set PYTHON=python3.11 or the like."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv

$(VENV)/.demo: $(VENV)/bin/uv pyproject.toml constraints.txt src/bomd/version.py
	$(UV) --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/bin/uv pyproject.toml constraints.txt src/bomd/version.py
	$(UV) --constraint constraints.txt --editable '.[dev]'
	touch $@ $(VENV)/.demo

# timm and its torchvision, in a folder that one test alone looks into: beside the CPU build of PyTorch a torchvision that
# is merely there breaks other packages.
$(VENV)/.timm: $(VENV)/.dev
	$(UV) --constraint constraints.txt --no-deps --target $(VENV)/timm timm torchvision && touch $@ || \
		echo "timm could not be installed: its tests will be skipped."

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
