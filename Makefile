# One way to do each chore. `make help` lists them.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# The runtime that tests use: kept outside of the tree, where an unprivileged test user can reach it, and reused.
export REDOMA_TEST_DATA ?= /var/tmp/redoma-test
PACKAGES_TO_RUN := python3 python3-venv nodejs
PACKAGES_TO_TEST := util-linux

.PHONY: help
help: ## This list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: ## The program, optimised: target/release/redoma
	scripts/build.sh release redoma

.PHONY: check
check: ## Formatting and lints; warnings are errors
	cargo fmt --all --check
	cargo clippy --all-targets -- -D warnings
	cargo clippy -p redoma-weakened --all-targets -- -D warnings
	cargo clippy -p redoma-zygote-python -- -D warnings

.PHONY: test
test: test-packages ## Everything that CI runs
	scripts/test.sh

.PHONY: test-cgroup2
test-cgroup2: test-packages ## The jail on a real cgroup v2 hierarchy, in a VM under software emulation (slow)
	scripts/test-cgroup2.sh

.PHONY: bench
bench: build ## Measure against real peers in one run; writes bench/RESULTS.md
	bench/run.sh

.PHONY: soak
soak: build ## SOAK_RUNS (100000) runs against one server; prints what must stay flat
	target/release/redoma setup --data-dir $(or $(REDOMA_BENCH_DATA),/var/tmp/redoma-bench)
	python3 bench/soak.py --data-dir $(or $(REDOMA_BENCH_DATA),/var/tmp/redoma-bench) --runs $(or $(SOAK_RUNS),100000)

.PHONY: fuzz
fuzz: ## Fuzz the readers of hostile programs for FUZZ_SECONDS (60)
	scripts/fuzz.sh $(or $(FUZZ_SECONDS),60)

.PHONY: test-packages
test-packages:
	@scripts/install-packages.sh $(PACKAGES_TO_RUN) $(PACKAGES_TO_TEST)

.PHONY: clean
clean: ## Remove what builds and tests made
	cargo clean
	rm -rf $(REDOMA_TEST_DATA) bench/.cache
