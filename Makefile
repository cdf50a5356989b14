# The entrances of the repository. `make help` lists them.
JOBS ?= $(shell nproc)
export TANDEM_VENV ?= $(CURDIR)/.venv
CMAKE_BUILD := cmake --build -j $(JOBS) --preset

.DEFAULT_GOAL := build
.PHONY: build wheel demo test check fuzz bench opdb models format lint clean help deps dev replay

help:    ## this list
	@grep -hE '^[a-z]+: .*##|^[a-z]+: +##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

deps:    ## packages of the distribution that the build needs
	@scripts/install-deps.sh

build: deps ## the tandem command, build/bin/tandem (optimised)
	@cmake --preset release --log-level=WARNING
	@$(CMAKE_BUILD) release

wheel: deps ## build/dist/tandem-*.whl for the Python of .venv, and what it links (seconds after make build)
	@scripts/install-deps.sh --python
	@scripts/wheel.sh

demo: deps ## a network trained and run by the compiler, no Python needed
	@scripts/demo.sh

test: ## everything: both builds, all suites, Python tests, source checks (an hour on 2 cores)
	@scripts/test.sh

check: build ## the fast tests on the optimised build (2 minutes)
	@ctest --test-dir build/release -L 'fast|tools' -j $(JOBS) --output-on-failure

dev: deps ## the build with assertions and sanitizers, build/dev
	@cmake --preset dev --log-level=WARNING
	@$(CMAKE_BUILD) dev

fuzz: build ## damaged inputs and random graphs under sanitizers, FUZZ_SECONDS=600 of them, as long again with checks on, then FUZZ_PROGRAMS=20000 beside eager (docs/reliability.md)
	@scripts/install-deps.sh --python
	@cmake --preset dev --log-level=WARNING
	@$(CMAKE_BUILD) dev --target fuzz
	@$(CMAKE_BUILD) release --target fuzz
	@scripts/fuzz.sh

bench: build ## beside PyTorch and XLA: build/bench.json, docs/performance.md (40 minutes)
	@scripts/bench.sh

opdb: build ## every operator of PyTorch's op_db against eager: build/opdb.json, docs/opdb.md (3 to 10 minutes)
	@scripts/opdb.sh

models: build ## real models through torch.compile against eager: build/models.json, docs/models.md (15 minutes; INDUCTOR=1: and beside Inductor; FULL=1: full size instead)
	@scripts/models.sh $(if $(INDUCTOR),--inductor) $(if $(FULL),--full)

replay: build ## kernels and decisions of all models, against those kept before (20 minutes the first time)
	@scripts/replay.sh $(if $(BLESS),--bless)

format: ## rewrites the C++ sources in place
	@scripts/format.sh

lint: ## clang-tidy on what changed since main (ALL=1: on everything)
	@python3 scripts/lint.py $(if $(ALL),--all)

clean: ## removes build/
	@rm -rf build
