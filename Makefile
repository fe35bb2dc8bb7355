# The front door. Every target puts in place what it needs (deps/), so a fresh Debian machine with make and git is enough.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

PREFIX ?= /usr/local
DESTDIR ?=
# Tests that run at once. Many wait rather than compute.
TEST_JOBS ?= $(shell echo $$(( $$(nproc) * 2 )))

# `make CXX=g++-12 build` builds with another compiler in a tree of its own; without it the presets decide (clang-19).
ifeq ($(origin CXX),command line)
  TREE := build/$(notdir $(CXX))
  BIN := $(TREE)/bin
  CONFIGURE := cmake -S . -B $(TREE) -G Ninja -DCMAKE_CXX_COMPILER=$(CXX)
  COMPILER_DEPS :=
else
  TREE := build/release
  BIN := build/bin
  CONFIGURE := cmake --preset release
  COMPILER_DEPS := clang
endif

.PHONY: help
help:  ## this list
	@echo "Lockstep: starts, supervises and restarts training programs on 1..N nodes."
	@echo
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-24s %s\n", $$1, $$2 }'
	@echo
	@echo "  CXX=g++-12               on the command line: another compiler, in build/<its name>"
	@echo "  LOCKSTEP_ALLOW_SKIP=a,b  tests may do without netns, nft, slurm, mpirun, torch, accelerate, mount"

.PHONY: setup-build setup-test setup-lint setup-bench
setup-build:
	@deps/install build $(COMPILER_DEPS) venv
	@deps/venv
setup-test:
	@deps/install build clang venv test
	@deps/venv
setup-lint:
	@deps/install build clang lint
setup-bench:
	@deps/install build $(COMPILER_DEPS) venv test
	@deps/venv

# $(call configure,preset): once; afterwards ninja itself notices changed CMake files.
configure = mkdir -p build; [ -f build/$(1)/build.ninja ] || cmake --preset $(1) >build/configure.log || { cat build/configure.log; exit 1; }

.PHONY: build
build: setup-build  ## the programs, in build/bin
	@mkdir -p build; [ -f $(TREE)/build.ninja ] || $(CONFIGURE) >build/configure.log || { cat build/configure.log; exit 1; }
	@ninja --quiet -C $(TREE) programs
	@echo "$(BIN): $$(cd $(BIN) && echo *)"

.PHONY: run
run: build  ## trains a small video autoencoder on two ranks; its loss, validation, pictures and checkpoints
	@examples/run $(BIN)

.PHONY: test
test: setup-test  ## every test: unit, asan, tsan, integration; ends with ctest's counts
	@for tree in release asan tsan; do $(call configure,$$tree); ninja --quiet -C build/$$tree test_programs; done
	@echo 'subdirs(release asan tsan)' >build/CTestTestfile.cmake
	@ctest --test-dir build --output-on-failure --no-tests=error -j $(TEST_JOBS) $(CTEST_ARGS)

.PHONY: bench
bench: setup-bench  ## measurements against peers in the same run, into docs/benchmarks.md
	@$(MAKE) build
	@.venv/bin/python bench/run.py $(BENCH_ARGS)

.PHONY: soak
soak: setup-test  ## long runs with faults: nothing may leak
	@$(MAKE) build
	@ninja --quiet -C build/release comm_probe record_test
	@.venv/bin/python tests/soak/comm_kills.py
	@LOCKSTEP_SOAK=1000 build/release/tests/record_test --gtest_brief=1 --gtest_filter='CheckpointDamage.*'
	@.venv/bin/python tests/soak/run.py $(SOAK_ARGS)

.PHONY: lint
lint: setup-lint  ## clang-format, clang-tidy, layering and wording; only what changed is looked at again
	@$(call configure,release)
	@ninja --quiet -C build/release lockstep_pch lockstep_test_pch
	@python3 cmake/lint.py

.PHONY: install
install: build  ## the programs into PREFIX/bin (default /usr/local)
	@install -d $(DESTDIR)$(PREFIX)/bin
	@install -s -m 755 $(BIN)/lockstep $(BIN)/lockstep-train $(DESTDIR)$(PREFIX)/bin
	@install -d $(DESTDIR)$(PREFIX)/share/doc/lockstep
	@install -m 644 LICENSE NOTICE README.md CHANGELOG.md $(DESTDIR)$(PREFIX)/share/doc/lockstep
	@for program in lockstep lockstep-train; do \
	  install -m 644 $(TREE)/notices/$$program.txt $(DESTDIR)$(PREFIX)/share/doc/lockstep/licenses-of-$$program.txt; done
	@echo "installed $(DESTDIR)$(PREFIX)/bin/lockstep and lockstep-train, their licenses in $(DESTDIR)$(PREFIX)/share/doc/lockstep"

.PHONY: clean
clean:  ## removes build/ (not .venv)
	@rm -rf build
