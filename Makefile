# Every target puts in place what it needs (deps/), so a fresh Debian machine with make and git is enough.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

PREFIX ?= /usr/local
DESTDIR ?=
# Tests that run at once. Many wait rather than compute.
TEST_JOBS ?= $(shell echo $$(( $$(nproc) * 2 )))

# What is built: build/release for CPUs, build/cuda for NVIDIA GPUs where this machine has one (GPU=0|1 says otherwise),
# build/torch against a torch package that is already there (TORCH=); a CXX of one's own adds its name.
# deps/gpus runs once, and only for targets that ask.
ifneq ($(origin GPU),command line)
  GPU = $(eval GPU := $$(shell deps/gpus))$(GPU)
endif
ifeq ($(origin TORCH),command line)
  PRESET = torch
  TORCH_FLAGS = -DLOCKSTEP_TORCH=$(abspath $(TORCH)) -DLOCKSTEP_GPU=$(if $(filter command line,$(origin GPU)),$(GPU),auto)
else
  PRESET = $(if $(filter 1,$(GPU)),cuda,release)
endif
ifeq ($(origin CXX),command line)
  TREE = build/$(if $(filter release,$(PRESET)),,$(PRESET)-)$(notdir $(CXX))
  CXX_FLAGS_OF = -B $(TREE) -DCMAKE_CXX_COMPILER=$(CXX)
  COMPILER_DEPS :=
else
  TREE = build/$(PRESET)
  COMPILER_DEPS := clang
endif
BIN = build/bin

.PHONY: help
help:  ## this list
	@echo "Lockstep: starts, supervises and restarts training programs on 1..N nodes."
	@echo
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-24s %s\n", $$1, $$2 }'
	@echo
	@echo "  GPU=0|1                  on the command line: build without or with CUDA; default: as this machine is"
	@echo "  TORCH=DIR                build against this torch package (.../site-packages/torch), for CPUs or CUDA"
	@echo "  CXX=g++-12               another compiler, in build/<its name>"
	@echo "  LOCKSTEP_ALLOW_SKIP=a,b  tests may do without netns, nft, slurm, mpirun, torch, accelerate, mount"

.PHONY: setup-build setup-test setup-lint setup-bench
setup-build:
	@case '$(GPU)' in 0|1) ;; *) echo "GPU=$(GPU): expected 0 or 1" >&2; exit 2 ;; esac
	@deps/install build $(COMPILER_DEPS) $(if $(filter torch,$(PRESET)),,venv)
	@case $(PRESET) in release) deps/venv ;; cuda) deps/venv cuda; deps/gpus driver "$$(sed -n 's/^# driver: //p' deps/python-cuda.txt)" ;; esac
setup-test:
	@deps/install build clang venv test
	@deps/venv
setup-lint:
	@deps/install build clang lint
setup-bench:
	@deps/install build $(COMPILER_DEPS) venv test
	@deps/venv

# $(call configure,tree,arguments of cmake): when they are new to the tree; afterwards ninja itself notices changed CMake files.
configure = mkdir -p $(1); echo "$(2)" | cmp -s - $(1)/configured || { cmake $(2) >$(1)/configure.log || { \
  echo "cmake $(2): failed; its log is $(1)/configure.log" >&2; exit 1; }; echo "$(2)" >$(1)/configured; }

.PHONY: build
build: setup-build  ## the programs, in build/bin: for GPUs where there are any, else for CPUs
	@$(call configure,$(TREE),$(strip --preset $(PRESET) $(TORCH_FLAGS) $(CXX_FLAGS_OF)))
	@deps/progress ninja -C $(TREE) programs
	@[ -L $(BIN) ] || rm -rf $(BIN); ln -sfn $(TREE:build/%=%)/bin $(BIN)
	@echo "$(BIN) ($(TREE)): $$(cd $(BIN) && echo *)"

.PHONY: run
run: build  ## trains a small video autoencoder on the GPUs, or on two CPU ranks; its loss, validation, pictures and checkpoints
	@examples/run $(BIN)

# $(call ctest,folder): its output, then where the time went, then its own closing lines; the exit code is ctest's.
ctest = ctest --test-dir $(1) --output-on-failure --no-tests=error -j $(TEST_JOBS) $(CTEST_ARGS) 2>&1 | python3 cmake/test_times.py

.PHONY: test
test: setup-test  ## unit and integration tests; ends with minutes per folder, the slowest tests, ctest's counts
	@$(call configure,build/release,--preset release)
	@deps/progress ninja -C build/release test_programs
	@$(call ctest,build/release)

.PHONY: sanitize
sanitize: setup-test  ## unit tests with address, undefined-behaviour and race checks, short fuzz runs; ends likewise
	@for tree in asan tsan; do $(call configure,build/$$tree,--preset $$tree); deps/progress ninja -C build/$$tree test_programs; done
	@mkdir -p build/sanitize && echo 'subdirs(../asan ../tsan)' >build/sanitize/CTestTestfile.cmake
	@$(call ctest,build/sanitize)

.PHONY: test-gpu
test-gpu: build  ## tests that need a GPU: several NCCL ranks share it
	@deps/progress ninja -C $(TREE) cuda_rank models_test engine_test
	@$(TREE)/tests/models_test --gtest_filter='DecoderOnAGpu.*:VrtOnAGpu.*:VrtWarpOnAGpu.*'
	@$(TREE)/tests/engine_test --gtest_filter='DeviceKernels.*:DeviceStages.*'
	@LOCKSTEP_BIN=$(TREE)/bin LOCKSTEP_CUDA_RANK=$(TREE)/tests/cuda_rank python3 tests/gpu/test_nccl_ranks.py
	@LOCKSTEP_BIN=$(TREE)/bin python3 tests/gpu/test_stages.py
	@LOCKSTEP_BIN=$(TREE)/bin python3 tests/gpu/test_lm.py
	@LOCKSTEP_BIN=$(TREE)/bin python3 tests/gpu/test_restore.py
	@LOCKSTEP_BIN=$(TREE)/bin python3 tests/gpu/test_vrt.py

.PHONY: bench
bench: setup-bench  ## measurements against peers in the same run, into docs/benchmarks.md
	@$(MAKE) build GPU=0
	@.venv/bin/python bench/run.py $(BENCH_ARGS)

.PHONY: soak
soak: setup-test  ## long runs with faults: nothing may leak
	@$(MAKE) build GPU=0
	@deps/progress ninja -C build/release comm_probe record_test models_test cache_test
	@.venv/bin/python tests/soak/comm_kills.py
	@.venv/bin/python tests/soak/submit_limit.py
	@LOCKSTEP_SOAK=1000 build/release/tests/record_test --gtest_brief=1 --gtest_filter='CheckpointDamage.*'
	@LOCKSTEP_SOAK=200 build/release/tests/cache_test --gtest_brief=1 --gtest_filter='CacheBuild.SurvivesKills*'
	@LOCKSTEP_SOAK=1 build/release/tests/models_test --gtest_brief=1 --gtest_filter='SeraenaGoldens.*'
	@.venv/bin/python tests/soak/delays.py
	@.venv/bin/python tests/soak/run.py $(SOAK_ARGS)

.PHONY: lint
lint: setup-lint  ## clang-format, clang-tidy, layering and wording; only what changed is looked at again
	@$(call configure,build/release,--preset release)
	@deps/progress ninja -C build/release lockstep_pch lockstep_test_pch
	@python3 cmake/lint.py

.PHONY: install
install: build  ## programs, headers, libraries and the CMake package for recipes of your own, into PREFIX (/usr/local)
	@install -d $(DESTDIR)$(PREFIX)/bin
	@install -s -m 755 $(BIN)/lockstep $(BIN)/lockstep-train $(DESTDIR)$(PREFIX)/bin
	@DESTDIR='$(DESTDIR)' cmake --install $(TREE) --prefix $(PREFIX) --component package >$(TREE)/install.log
	@install -d $(DESTDIR)$(PREFIX)/share/doc/lockstep
	@install -m 644 LICENSE NOTICE README.md CHANGELOG.md $(DESTDIR)$(PREFIX)/share/doc/lockstep
	@for program in lockstep lockstep-train; do \
	  install -m 644 $(TREE)/notices/$$program.txt $(DESTDIR)$(PREFIX)/share/doc/lockstep/licenses-of-$$program.txt; done
	@echo "installed in $(DESTDIR)$(PREFIX): bin/lockstep and bin/lockstep-train; their licenses in share/doc/lockstep;"
	@echo "for recipes outside this tree (docs/write-a-recipe.md): include/lockstep, lib, lib/cmake/lockstep"

.PHONY: clean
clean:  ## removes build/ (not .venv and .venv-cuda)
	@rm -rf build
