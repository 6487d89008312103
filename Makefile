# make demo | make test | make compare | make torture
# (STACK=openmmlab for upstream)
STACK ?= onedl
PYTHON ?= python3

VENV := $(if $(filter onedl,$(STACK)),.venv,.venv-$(STACK))
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
REQUIREMENTS := requirements/$(STACK).txt
# Built wheels outlive a clone, because mmcv takes about 15 minutes to build.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mmseg_margin
WHEELS := $(CACHE)/wheels
PIP := $(BIN)/python -m pip install --quiet --find-links $(WHEELS)

.PHONY: install test torture lint demo compare clean

install: $(STAMP)

$(STAMP): $(REQUIREMENTS) requirements/dev.txt setup.py
	@test -f $(REQUIREMENTS) || { echo "STACK is onedl or openmmlab, not '$(STACK)'."; exit 1; }
	@echo "Installing the $(STACK) stack into $(VENV) ..."
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(WHEELS)
	$(MAKE) --no-print-directory $(STACK)-prerequisites
	$(PIP) -r $(REQUIREMENTS)
	$(PIP) --no-deps -e .
	@touch $@

.PHONY: onedl-prerequisites openmmlab-prerequisites
onedl-prerequisites:

# mmcv compiles against the installed torch, hence without build isolation.
openmmlab-prerequisites:
	$(PIP) $$(grep -E '^(torch|setuptools|numpy)==' $(REQUIREMENTS)) wheel ninja
	@ls $(WHEELS)/mmcv-*.whl >/dev/null 2>&1 || { \
	  echo "Building mmcv once, about 15 minutes ..."; \
	  $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation \
	    -w $(WHEELS) $$(grep '^mmcv==' $(REQUIREMENTS)); }

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup

# The long version of what make test does for a minute: hostile files, full
# disks, and kills at random moments. It says at the end what was tried.
TORTURE := tests/torture tests/stats/test_cache.py tests/tooling/test_cli.py \
  tests/tooling/test_resume.py tests/evaluation/submission/test_folder.py

torture: $(STAMP)
	MMSEG_MARGIN_FUZZ=10000 MMSEG_MARGIN_FUZZ_STATISTICS=1000 \
	  MMSEG_MARGIN_KILLS=100 MMSEG_MARGIN_CLAIMS=60 OMP_NUM_THREADS=1 \
	  $(BIN)/python -m pytest -n 0 $(TORTURE)

DEMO := work_dirs/demo-$(STACK)
DEMO_CONFIG := $(wildcard configs/demo/*_margin_*.py)

COMPARE_CONFIG := $(wildcard configs/demo/*_r18-tiny_ce_*.py)

demo: $(DEMO)/trained
	$(BIN)/python tools/test.py $(DEMO_CONFIG) \
	  $$(cat $(DEMO)/last_checkpoint) --work-dir $(DEMO)/test --metrics tail
	$(BIN)/python tools/mosaic.py $(DEMO_CONFIG) \
	  $$(cat $(DEMO)/last_checkpoint) --out $(DEMO)/mosaic.png

$(DEMO)/trained: $(STAMP)
	$(BIN)/python tools/make_instrument_parts.py
	$(BIN)/python tools/train.py $(DEMO_CONFIG) --work-dir $(DEMO) --resume
	@touch $@

# A quick look: three objectives, one seed. docs/results has the whole one.
RECOMMENDED := margin:form=softmax,log_base=e,focus=2,class_weight=0.2
compare: $(STAMP)
	$(BIN)/python tools/make_instrument_parts.py
	$(BIN)/python tools/compare.py $(COMPARE_CONFIG) --jobs 2 --seeds 1 \
	  --losses ce lovasz $(RECOMMENDED) \
	  --out work_dirs/compare-$(STACK)

clean:
	rm -rf .venv .venv-openmmlab work_dirs data build *.egg-info
