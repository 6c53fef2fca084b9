# Every target sets up what it needs; all it takes is Python >= 3.11 and make. RUNTIME=docker uses the container.

RUNTIME ?= local
IMAGE ?= cudagraph-mode-artifact
VENV := .venv
PY := $(VENV)/bin/python

# The first of these that is new enough; a shim that cannot start counts as absent.
ifndef PYTHON
PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
endif
# 1 where a GPU answers: then vLLM is installed too. GPU=1 and GPU=0 overrule.
ifndef GPU
GPU := $(shell nvidia-smi -L >/dev/null 2>&1 && echo 1)
endif
WITH_GPU := $(filter 1,$(GPU))
BASE := $(VENV)/.$(if $(WITH_GPU),gpu,base)

# A user id that is missing from the image's /etc/passwd stops torch, so the image is built for this one; never root.
IMAGE_UID := $(or $(filter-out 0,$(shell id -u)),1000)
ifeq ($(RUNTIME),docker)
CONTAINER = docker run --rm --init $(if $(WITH_GPU),--gpus all --ipc host) \
	--volume $(IMAGE)-cache-$(IMAGE_UID):/cache \
	--volume "$(CURDIR)/results:/results" --volume "$(CURDIR)/traces:/traces" \
	--env ARTIFACT_IMAGE_DIGEST="$$(docker image inspect --format '{{.Id}}' $(IMAGE))"
ARTIFACT = $(CONTAINER) $(IMAGE)
FETCH = $(CONTAINER) --entrypoint python3 $(IMAGE) -m artifact.workloads.fetch
READY := docker
else
ARTIFACT := $(PY) -m artifact
FETCH := $(PY) -m artifact.workloads.fetch
READY := setup
endif

.DEFAULT_GOAL := help
.PHONY: help setup smoke all figures report tables claims guide ui check test soak coverage conformance traces docker image lock clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-12s %s\n", $$1, $$2}' Makefile

setup: $(BASE) ## .venv from the hashed lists, with vLLM where a GPU is (or GPU=1)

smoke: ## the quick study, its figures and its report: vLLM on a GPU, the simulator elsewhere
	@$(MAKE) --no-print-directory all STUDY=smoke

# Without a GPU there is nothing to measure, and the simulator shows the main study. `confirm` needs a trace of yours,
# `crosscheck` is run by its benchmark.
MEASURED := smoke calibrate saturation startup fallback hollow step_latency load_sweep load_sweep_aa load_sweep_8b \
	small_kv closed_loop sharegpt traces sizes sizes_8b sizes_8b_bursty sizes_8b_conv
STUDIES = $(or $(STUDY),$(if $(WITH_GPU),$(MEASURED),smoke load_sweep))

# A tracker that is away fails nothing: the results are in the store, and sync says so in a line.
all: $(READY) ## every study, or STUDY='ONE ANOTHER', figures and reports; ARGS= cuts the grid; stopped, it goes on
	@status=0; \
	$(if $(filter traces sizes,$(STUDIES)),$(FETCH) traces || status=$$?;) \
	for study in $(STUDIES); do \
		$(ARTIFACT) run study=$$study $(ARGS) || status=$$?; \
		$(ARTIFACT) figures figures.source=results figures.out=results/$$study/figures || status=$$?; \
		$(ARTIFACT) sync study=$$study || true; \
	done; \
	$(ARTIFACT) figures figures.out=results/figures || status=$$?; \
	for study in $(STUDIES); do $(ARTIFACT) report study=$$study || status=$$?; done; exit $$status

report: $(READY) ## one HTML page of STUDY's results, or of those of smoke
	$(ARTIFACT) report study=$(or $(STUDY),smoke)

figures: setup ## redraw every figure from the shipped measurements
	$(PY) -m artifact figures

tables: setup ## write the tables of ARTIFACT.md again, from the shipped measurements
	$(PY) paper_figures/tables.py

claims: setup ## check every claim against the shipped measurements
	$(PY) -m artifact claims

guide: setup ## write GUIDE.md from the shipped measurements
	$(PY) -m artifact guide

ui: setup ## browse the runs at http://127.0.0.1:5000
	$(PY) -m artifact ui

check: $(VENV)/.dev ## style, types, layers, container file, documented commands
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/hadolint Dockerfile
	$(PY) -m pytest tests/test_docs.py tests/conf

# One worker more than the two cores that CI has: some tests wait for a limit to pass.
test: $(VENV)/.dev ## every test, without a GPU
	$(PY) -m pytest -n 3 --dist loadfile

soak: $(VENV)/.dev ## a simulated study of 2,000 cells with faults, killed twenty times, against one left alone
	SOAK_CELLS=2000 SOAK_KILLS=20 $(PY) -m pytest tests/soak

coverage: $(VENV)/.dev ## which lines of artifact/ the tests reach; fails under 90 %
	$(PY) -m pytest -n 3 --dist loadfile --cov artifact --cov-report term-missing:skip-covered --cov-fail-under 90

conformance: $(VENV)/.dev ## our graph rules against vLLM's own code; VLLM=X.Y.Z for another version
	$(PY) -m tests.conformance $(if $(VLLM),--vllm $(VLLM))

traces: $(READY) ## download the public traces into traces/
	$(FETCH) traces

docker: ## build the container
	docker build --tag $(IMAGE) --build-arg UID=$(IMAGE_UID) \
		--build-arg COMMIT="$$(git describe --always --abbrev=40 --exclude '*' --dirty 2>/dev/null)" .
	mkdir -p results traces
	[ "$$(id -u)" != 0 ] || chown -R $(IMAGE_UID) results traces

# As with RUNTIME=docker, the commands alone go another way.
image: ## test Dockerfile without Docker or a GPU: build it on bare Debian, run smoke in it; TESTS=1: make test too
	docker/stand_in.sh build
	@$(MAKE) --no-print-directory all STUDY=smoke READY= ARTIFACT="docker/stand_in.sh run"
	$(if $(filter 1,$(TESTS)),docker/stand_in.sh test)

lock: $(VENV)/.dev ## resolve the hashed lists again from pyproject.toml
	for list in "gpu --extra gpu" "base -c requirements/gpu.txt" "dev --extra dev -c requirements/gpu.txt"; do \
		set -- $$list; name=$$1; shift; \
		$(VENV)/bin/uv pip compile pyproject.toml --universal --generate-hashes --python-version 3.11 \
			--extra build "$$@" --quiet -o requirements/$$name.txt || exit 1; \
	done

clean: ## remove the environment and the caches; results stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -path ./.cache -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/pip:
	$(if $(PYTHON),,$(error no Python >= 3.11 found: install one, or name it with PYTHON=/path/to/python))
	$(PYTHON) -m venv $(VENV) || { echo "make: no venv module; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(VENV)/.base $(VENV)/.gpu $(VENV)/.dev: $(VENV)/.%: requirements/%.txt | $(VENV)/bin/pip
	$(PY) -m pip install --quiet --require-hashes --requirement $<
	$(PY) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
