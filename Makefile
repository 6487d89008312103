# make demo | make test | make docs | make compare | make torture
# (STACK=openmmlab for upstream)
STACK ?= onedl
PYTHON ?= python3

VENV := $(if $(filter onedl,$(STACK)),.venv,.venv-$(STACK))
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
REQUIREMENTS := requirements/$(STACK).txt
PIP := $(BIN)/python -m pip install --quiet
# Without a cache folder that can be written, everything stays in .venv: what
# pip downloads, the wheel of mmcv, the label statistics.
CACHE = "$${XDG_CACHE_HOME:-$$HOME/.cache}"
ifneq ($(shell mkdir -p $(CACHE) 2>/dev/null && test -w $(CACHE) && echo yes),yes)
export XDG_CACHE_HOME := $(CURDIR)/$(VENV)/cache
endif

.PHONY: install test torture lint docs demo compare clean

install: $(STAMP)

$(STAMP): $(REQUIREMENTS) requirements/dev.txt requirements/docs.txt setup.py
	@test -f $(REQUIREMENTS) || { echo "STACK is onedl or openmmlab, not '$(STACK)'."; exit 1; }
	@echo "Installing the $(STACK) stack into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(MAKE) --no-print-directory $(STACK)-prerequisites
	@$(PIP) -r $(REQUIREMENTS)
	@$(PIP) --no-deps -e .
	@touch $@

.PHONY: onedl-prerequisites openmmlab-prerequisites
onedl-prerequisites:

# mmcv compiles against the installed torch, hence without build isolation. Its
# operators are never on a hot path here, so they are built without debug
# information and with little optimisation. The wheel outlives a clone.
openmmlab-prerequisites: WHEELS = $(CACHE)/mmseg_margin/wheels
openmmlab-prerequisites:
	$(PIP) $$(grep -E '^(torch|setuptools|numpy)==' $(REQUIREMENTS)) wheel ninja
	@mkdir -p $(WHEELS)
	@ls $(WHEELS)/mmcv-*.whl >/dev/null 2>&1 || { \
	  echo "Building mmcv once, about 4 minutes on two cores ..."; \
	  CFLAGS='-g0 -O1' $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation \
	    -w $(WHEELS) $$(grep '^mmcv==' $(REQUIREMENTS)); }
	$(PIP) --find-links $(WHEELS) $$(grep '^mmcv==' $(REQUIREMENTS))

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

# The documentation, into site/; a dead link or an unknown name is an error.
docs: $(STAMP)
	$(BIN)/mkdocs build --strict

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup

# The long version of what make test does for a minute: hostile files, full
# disks, and kills at random moments. It says at the end what was tried.
TORTURE := tests/torture tests/stats/test_cache.py tests/tooling/test_cli.py \
  tests/tooling/test_resume.py tests/tooling/test_submission.py

torture: $(STAMP)
	MMSEG_MARGIN_FUZZ=10000 MMSEG_MARGIN_FUZZ_STATISTICS=1000 \
	  MMSEG_MARGIN_KILLS=100 MMSEG_MARGIN_CLAIMS=60 MMSEG_MARGIN_FLIPS=1000 \
	  MMSEG_MARGIN_STOPS=100 OMP_NUM_THREADS=1 \
	  $(BIN)/python -m pytest -n 0 $(TORTURE)

DEMO := work_dirs/demo-$(STACK)
DEMO_CONFIG := $(wildcard configs/demo/*_margin_*.py)

COMPARE_CONFIG := $(wildcard configs/demo/*_r18-tiny_ce_*.py)

demo: $(DEMO)/trained
	@$(BIN)/python tools/test.py $(DEMO_CONFIG) \
	  "$$(cat $(DEMO)/last_checkpoint)" --work-dir $(DEMO)/test --metrics tail
	@$(BIN)/python tools/mosaic.py $(DEMO_CONFIG) \
	  "$$(cat $(DEMO)/last_checkpoint)" --out $(DEMO)/mosaic.png

$(DEMO)/trained: $(STAMP)
	@$(BIN)/python tools/make_instrument_parts.py
	@$(BIN)/python tools/train.py $(DEMO_CONFIG) --work-dir $(DEMO) --resume
	@touch $@

# A quick look: four objectives, one seed. docs/results has the whole one.
compare: $(STAMP)
	@$(BIN)/python tools/make_instrument_parts.py
	$(BIN)/python tools/compare.py $(COMPARE_CONFIG) --jobs 2 --seeds 1 \
	  --losses ce lovasz margin jaccard \
	  --out work_dirs/compare-$(STACK)

# What make has built, by name: data sets and trainings of yours stand in the
# same folders.
PARTS := data/instrument_parts
clean:
	rm -rf .venv .venv-openmmlab build dist site mmseg_margin.egg-info
	rm -rf work_dirs/demo-onedl work_dirs/demo-openmmlab
	rm -rf work_dirs/compare-onedl work_dirs/compare-openmmlab
	if [ -f $(PARTS)/settings.json ]; then \
	  rm -rf $(PARTS)/images $(PARTS)/labels $(PARTS)/settings.json; \
	  rmdir $(PARTS) 2>/dev/null || true; fi
