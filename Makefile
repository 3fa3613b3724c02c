# All commands of the book. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python

# Two workers with one thread each are faster than one that takes every core while the other waits.
book page again portable test quick mutants browser course paper article: export OMP_NUM_THREADS := 1
book page again portable test quick mutants browser course paper article: export MKL_NUM_THREADS := 1
book page again portable test quick mutants browser course paper article: export OPENBLAS_NUM_THREADS := 1
book page again portable test quick mutants browser course paper article: export VECLIB_MAXIMUM_THREADS := 1

# Some machines set it. Without bytecode on disk, each kernel and each test worker would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  The first target makes .venv. TORCH=cpu takes PyTorch's small CPU build, PYTHON=python3.12 another Python; to change"
	@echo "  them later, make distclean first."

# The first Python that exists, runs, and is new enough.
NEW_ENOUGH := 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do $$p -c $(NEW_ENOUGH) 2>/dev/null && echo $$p && break; done)

.PHONY: setup
setup: .venv/.ready ## make .venv from requirements.lock (the other targets do it themselves)

# A stamp, written last: an interrupted installation starts again. It names the folder, because an environment holds
# absolute paths and has to be made again after a move.
ifneq ($(CURDIR),$(shell cat .venv/.ready 2>/dev/null))
.PHONY: .venv/.ready
endif
.venv/.ready: requirements.lock pyproject.toml
	@$(or $(PYTHON),false) -c $(NEW_ENOUGH) || { echo "Python 3.11 or newer is needed: make setup PYTHON=/path/to/python3" >&2; exit 1; }
	rm -rf .venv
	$(PYTHON) -m venv .venv
	@$(MAKE) --no-print-directory install PY=.venv/bin/python
	@echo '$(CURDIR)' >$@

# PyTorch comes last, after all its dependencies, and by its version alone, because the hashes of its builds differ.
# All cores compile the modules together; pip would compile them one by one, which takes a third of its time.
.PHONY: install
install: PIP = $(PY) -m pip install --quiet --disable-pip-version-check --no-input --no-compile
install: ## install the lock and this package where you say (conda, Binder): make install PY=python
	$(PIP) --no-deps --require-hashes -r requirements.lock
	$(PIP) $$(sed -n 's/^# torch==/torch==/p' requirements.lock) $(if $(filter cpu,$(TORCH)),--index-url https://download.pytorch.org/whl/cpu)
	$(PIP) --no-deps --no-build-isolation --editable .
	@$(PY) -W ignore -c 'import compileall, sysconfig; compileall.compile_dir(sysconfig.get_path("purelib"), quiet=2, workers=0)'

.PHONY: book
book: setup ## run every chapter and build _build/html; a warning is an error
	.venv/bin/jupyter-book build . --warningiserror --nitpick --keep-going --quiet

.PHONY: page
page: setup ## build one page alone: make page PAGE=adaptation/depth
	$(PY) tools/build.py --page $(or $(PAGE),$(error name the page: make page PAGE=adaptation/depth))

.PHONY: serve
serve: setup ## serve the built book at http://localhost:8000, where search shows excerpts and downloads are saved
	@test -f _build/html/index.html || $(MAKE) book
	$(PY) -m http.server --bind localhost --directory _build/html 8000

.PHONY: again
again: setup ## rerun two downloads, others at each commit (ALL=1: all), and two students' notebooks
	@test -f _build/html/index.html || $(MAKE) book
	$(PY) tools/check_reproducible.py $(if $(ALL),--all)
	$(PY) tools/course/student_runs.py $(if $(ALL),--all --apart,--sample)

.PHONY: portable
portable: setup ## compare the pages with runs as on other processors (ALL=1: all chapters and the tests; PAGE=...; PROCESSOR=Haswell)
	$(PY) tools/portable.py $(if $(ALL),--all --tests) $(if $(PAGE),--page $(PAGE)) $(if $(PROCESSOR),--on $(PROCESSOR))

.PHONY: test
test: setup ## run the tests of the library and of the book's sources, in two workers
	$(PY) -m pytest -n 2 --dist worksteal --ignore=tests/browser

# Closed forms, floors and oracles that most of the library rests on.
QUICK := tests/icl/test_{filters,filters_kalman,solvers}.py tests/icl/models/test_operators.py \
	tests/icl/tasks/test_core_every_drift.py tests/icl/theory/test_moments.py \
	tests/icl/theory/floors/test_{filtering,joint}.py tests/icl/theory/one_layer/test_closed_forms.py \
	tests/icl/theory/steady/test_{fast_weights,lms_family}.py tests/icl/theory/lfom/test_tables.py \
	tests/icl/theory/errata tests/house/test_examples.py

.PHONY: quick
quick: setup ## run the tests to run while you work: about 30 s on one core
	$(PY) -m pytest -q $(QUICK)

.PHONY: mutants
mutants: setup ## plant small faults in the library and see its tests fail (N=1000; MODULE=icl/theory/s6 or a package; PART=1/8 or week)
	$(PY) tools/library_mutants.py $(MODULE) -n $(or $(N),1000) $(if $(PART),--part $(PART))

.PHONY: lab
lab: setup ## open the chapters as notebooks in JupyterLab
	$(PY) -m jupyterlab --LabApp.app_settings_dir=tools/lab --ServerApp.root_dir=book

.PHONY: check
check: setup ## lint, formatting, types, import rules, workflows
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) tools/check_cells.py
	$(PY) -m mypy
	.venv/bin/lint-imports
	.venv/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	.venv/bin/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

.PHONY: format
format: setup ## format the code, the chapters' cells too
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .
	$(PY) tools/check_cells.py --fix

.PHONY: browser
browser: setup ## test the built pages in Chromium, with the network off
	@test -f _build/html/index.html || $(MAKE) book
	$(PY) -m pytest tests/browser -n 2 --dist worksteal

.PHONY: pdf
pdf: setup ## print the built book into dist/learning-to-adapt.pdf, with Chromium
	@test -f _build/html/index.html || $(MAKE) book
	$(PY) tools/pdf.py

.PHONY: epub
epub: setup ## bind the built book as dist/learning-to-adapt.epub for e-readers, with Chromium
	@test -f _build/html/index.html || $(MAKE) book
	$(PY) tools/epub.py

.PHONY: course
course: setup ## make the course kit in dist/course (ALL=1: and run its long checks)
	@test -f _build/html/index.html || $(MAKE) book
	$(PY) tools/course
	$(if $(ALL),$(PY) tools/course/projects.py --check)
	$(if $(ALL),$(PY) tools/course/nbgrader_round_trip.py)

.PHONY: release
release: export ICL_RELEASE := 1
release: setup ## put the book, its PDF and EPUB, the course kit and the package into dist/release, with checksums
	rm -rf _build/html _build/.doctrees # without pages left by an earlier build
	$(MAKE) book course pdf epub
	$(PY) tools/release.py

.PHONY: bench
bench: setup ## compare the library's speed with its peers
	$(PY) benchmarks/run.py
	$(PY) benchmarks/filters.py
	$(PY) benchmarks/series.py
	$(PY) benchmarks/depth.py
	$(PY) benchmarks/memformer.py
	$(PY) benchmarks/mamba.py
	$(PY) benchmarks/layers.py
	$(PY) benchmarks/pareto.py
	$(PY) benchmarks/cells.py

.PHONY: paper
paper: setup ## rerun the long experiments whose records in book/results are missing or stale (ALL=1: all; a GPU helps)
	$(PY) tools/build.py --records $(if $(ALL),--all)

.PHONY: article
article: setup ## make the short paper's numbers, figures and PDF in paper/build (the PDF needs LaTeX)
	$(PY) paper/make.py

.PHONY: lock
lock: ## remake requirements.lock from pyproject.toml: the newest versions it allows, for every Python and platform
	$(PYTHON) -m venv --clear _build/lock
	_build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	_build/lock/bin/uv pip compile --quiet --no-header --no-annotate --universal --fork-strategy fewest --all-extras \
		--generate-hashes pyproject.toml >_build/lock/pins
	{ sed '/^[^#]/,$$d; /^# torch==/d' requirements.lock; sed -n 's/^\(torch==[^ ]*\).*/# \1/p' _build/lock/pins; \
		awk '/^[^ ]/ { kept = !/^(cuda|nvidia|torch==|triton)/ } kept' _build/lock/pins; } >_build/lock/new
	mv _build/lock/new requirements.lock
	perl -pi -e "s/torch==[\d.]*\d/$$(sed -n 's/^# \(torch==[0-9.]*\).*/\1/p' requirements.lock)/" $$(grep -rl 'torch==' book --include=*.md)

.PHONY: clean
clean: ## remove what was built, and the caches
	rm -rf _build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find lib book tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.PHONY: distclean
distclean: clean ## remove .venv as well
	rm -rf .venv .venvs
