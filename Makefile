# make demo | make test | make docs | make torture
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

.PHONY: install test torture lint docs demo clean

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

# Longer versions of two tests of make test: hostile label files, and kills of
# compare, which writes ten checkpoints and is killed after a new one.
KILLED := test_a_killed_run_continues_from_its_last_checkpoint

torture: $(STAMP)
	MMSEG_MARGIN_FUZZ=10000 MMSEG_MARGIN_KILLS=8 OMP_NUM_THREADS=1 \
	  $(BIN)/python -m pytest -n 0 tests/torture \
	  tests/comparison/test_compare.py::$(KILLED)

TOOL := $(BIN)/python -m mmseg_margin
DEMO := work_dirs/demo-$(STACK)
DEMO_CONFIG := $(wildcard configs/light/*_ce_1xb4-300_instrument-parts-*.py)
MARGIN := $(DEMO)/margin/iter_300.pth
JACCARD := $(DEMO)/jaccard/iter_300.pth

# One thread for each process: two networks are trained at the same time. In
# the headings CONFIG stands for DEMO_CONFIG.
demo: export OMP_NUM_THREADS := 1
demo: $(STAMP)
	@printf '== A small data set: make_instrument_parts\n'
	@$(TOOL) make_instrument_parts
	@printf '\n== Its labels: class_stats CONFIG\n'
	@$(TOOL) class_stats $(DEMO_CONFIG)
	@printf '\n== Side by side: train CONFIG --loss margin, and --loss jaccard\n'
	@$(MAKE) --no-print-directory -j2 $(MARGIN) $(JACCARD)
	@printf '\n== The test of margin: test CONFIG CHECKPOINT\n'
	@$(TOOL) test $(DEMO_CONFIG) $(MARGIN) --work-dir $(DEMO)/margin/test
	@printf '== The test of jaccard: test CONFIG CHECKPOINT\n'
	@$(TOOL) test $(DEMO_CONFIG) $(JACCARD) --work-dir $(DEMO)/jaccard/test
	@printf '== Offsets for jaccard: fit_offsets CONFIG CHECKPOINT\n'
	@$(TOOL) fit_offsets $(DEMO_CONFIG) $(JACCARD) --force \
	  --work-dir $(DEMO)/jaccard/offsets
	@printf '\n== A picture: mosaic CONFIG CHECKPOINT CHECKPOINT\n'
	@$(TOOL) mosaic $(DEMO_CONFIG) $(MARGIN) $(JACCARD) \
	  --images 4 --out $(DEMO)/mosaic.png
	@printf '\n== With your own config\n'
	@printf '$(TOOL) train CONFIG --loss jaccard\n'
	@printf '$(TOOL) fit_offsets CONFIG CHECKPOINT\n'

# Two progress bars would overwrite each other, so the screen shows the first.
TRAIN = $(TOOL) train $(DEMO_CONFIG) --no-validate --work-dir $(@D) --loss
$(MARGIN): | $(STAMP)
	@$(TRAIN) margin
$(JACCARD): | $(STAMP)
	@mkdir -p $(@D)
	@$(TRAIN) jaccard >$(@D)/screen.txt 2>&1 || { cat $(@D)/screen.txt; exit 1; }

# What make has built, by name: data sets and trainings of yours stand in the
# same folders.
PARTS := data/instrument_parts
clean:
	rm -rf .venv .venv-openmmlab build dist site mmseg_margin.egg-info
	rm -rf work_dirs/demo-onedl work_dirs/demo-openmmlab
	if [ -f $(PARTS)/settings.json ]; then \
	  rm -rf $(PARTS)/images $(PARTS)/labels $(PARTS)/settings.json; \
	  rmdir $(PARTS) 2>/dev/null || true; fi
