# Two commands set up all they need on a machine with Python 3.11 or newer:
#   make audit   the quickstart audit on synthetic ratings, report in out/quickstart
#   make test    lint, types, layers, the site of the documentation and tests
PYTHON ?= python3
# Bytecode is written when a module is first imported: pip would compile all, and tests start many
# processes.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
READY := $(VENV)/.ready
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable
SOURCES := secure_fedrec attacks audits benchmarks docs examples tests
OUT ?= out/quickstart
# Where tests write: memory where there is plenty, for on a disk every file that takes another's
# place is waited for.
define IN_SCRATCH
memory=/dev/shm; free=$$(df -Pk $$memory 2>/dev/null | awk 'NR == 2 {print $$4}'); \
if [ "$${free:-0}" -lt 4000000 ] || grep -q " $$memory [^ ]* [^ ]*noexec" /proc/mounts; then \
	memory=$${TMPDIR:-/tmp}; \
fi; \
TMPDIR=$$(mktemp -d -p $$memory); export TMPDIR; trap 'rm -rf "$$TMPDIR"' EXIT;
endef

.PHONY: audit docs test quick lint types layers unit fuzz model-check mutants mutants-today nulls hostile kills interpreters wheel release format clean

audit: $(CORE)
	@if [ -f $(OUT)/config.json ]; then rm -rf $(OUT); fi # an earlier run, and nothing else
	$(BIN)/secure-fedrec audit --out $(OUT)

test: lint
	$(MAKE) --jobs=2 layers types docs unit # but for pytest, each works on one core

# The inner loop: the first case of every test that took no more than a tenth of a second last time.
quick: lint layers
	@$(IN_SCRATCH) \
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal -q --quick

lint: $(READY)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

# One thread per worker: with more they wait for each other.
unit: $(READY)
	@$(IN_SCRATCH) \
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal -q

# The state machines of masking and shared uploads, with five times the messages of a test run.
fuzz: $(READY)
	SECURE_FEDREC_FUZZ=100000 FUZZ_MESSAGES=100000 EXPLORE=1 $(BIN)/pytest -n auto -q \
		tests/protection/masking/test_masking_fuzz.py \
		tests/protection/shared_upload/test_shared_upload_fuzz.py

# Every state of masking on rings of up to 11 clients, with all rules on and with each one off.
model-check: $(READY)
	$(BIN)/python -m tests.model_check

# Every mutation of tests/mutants, killed or named; continuous integration has a tenth a day.
mutants: $(READY)
	$(BIN)/python -m tests.mutants

mutants-today: $(READY)
	@$(IN_SCRATCH) $(BIN)/python -m tests.mutants --changed --part

# All 1,000 audits of federations without a leak; a test run has 100 of them. All 1,000 recorded
# federations under masks, of which nothing false may be called certain; a test run has 30. And
# comparisons of audits that differ by their seed alone.
nulls: $(READY)
	SECURE_FEDREC_NULLS=1000 $(BIN)/pytest -q -s tests/audits/test_audit_null.py \
		tests/attacks/test_attack_null_sums.py tests/audits/test_audit_compare.py

# 10,000 mutated recordings and 1,500 mutated tables of them; a test run has 1,000 and 150.
hostile: $(READY)
	SECURE_FEDREC_MUTATIONS=10000 $(BIN)/pytest -q tests/recording/test_recording_hostile.py \
		tests/recording/test_recording_parquet.py

# A site's process killed at every stage of masked rounds, on Flower: 22 processes, minutes.
kills: $(READY)
	$(BIN)/python -m tests.deploy.kills

# The core's tests, without extras, on every newer Python that is there.
interpreters: wheel
	@$(IN_SCRATCH) for python in python3.12 python3.13; do \
		$$python -c '' 2>/dev/null || { echo "no $$python here"; continue; }; \
		echo "$$python"; $$python -m venv "$$TMPDIR/$$python" && \
		"$$TMPDIR/$$python/bin/pip" install --quiet --constraint constraints.txt dist/*.whl \
			hypothesis mypy pytest pytest-xdist scipy-stubs && \
		PYTHONPATH=. OMP_NUM_THREADS=1 "$$TMPDIR/$$python/bin/pytest" -n auto -q tests/core tests/wire \
			tests/protection/masking tests/protection/session || exit 1; \
	done

wheel: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation

# All that a release consists of, built and checked, and the quickstart from the wheel alone; then
# what to tag.
release: test wheel
	$(BIN)/twine check --strict dist/*
	@$(IN_SCRATCH) $(PYTHON) -m venv "$$TMPDIR/bare" && \
		"$$TMPDIR/bare/bin/pip" install --quiet --constraint constraints.txt dist/*.whl && \
		cd "$$TMPDIR" && time bare/bin/secure-fedrec audit --out out --quiet
	@git diff --quiet HEAD || { echo "commit what was changed" >&2; exit 1; }
	@version=$$($(BIN)/secure-fedrec --version); \
		echo "set the date of $$version in CHANGELOG.md and CITATION.cff, then: git tag -a v$$version"

# The site, in docs/_build/html: any warning ends it.
docs: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --quiet --nitpicky --fail-on-warning --keep-going \
		docs docs/_build/html

format: $(READY)
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:
	rm -rf $(VENV) out build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The environment is rebuilt when what it is made from changes.
$(CORE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ echo "this Python lacks venv; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	@touch $(CORE)

$(READY): $(CORE)
	$(INSTALL) ".[dev]"
	@touch $(READY)
