# The targets of this project. `make help` lists them.
#
#   PORT=6380            where `make run` listens
#   DLOCK_SERVER=path    another server binary than redis-server, for run, test, check, bench, soak and chaos
#   CARGO_TARGET_DIR=…   is honoured everywhere
#   RUST_TEST_THREADS=n  how many tests of one program run at a time

PORT ?= 6379
export PORT

CARGO ?= cargo
export CARGO

# Tests with a server mostly wait for it, so two of them share a core.
RUST_TEST_THREADS ?= $(shell expr 2 \* $$(nproc))
export RUST_TEST_THREADS

# Features that no other crate of the workspace uses, and that have tests.
TEST_FEATURES := dlock-client/tracing,dlock-client/metrics

.DEFAULT_GOAL := help
.PHONY: help run test check features msrv package dist dist-check release-check contrib-check fix bench soak steps chaos ledger failover upgrade matrix \
        test-clients bridge fencing pictures links walks book fuzz asan deny doc-blocks deps test-deps

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: deps ## Build the module and start a server with it on 127.0.0.1 (PORT=6379)
	@scripts/run

test: test-deps ## Run all tests, including those with real servers
	$(CARGO) build --package dlock --lib --profile checked
	DLOCK_TEST_FEATURES=$(TEST_FEATURES) $(CARGO) test --workspace --features $(TEST_FEATURES) --no-fail-fast

# cargo-deny takes minutes to build, so `check` uses it only if it is installed, and only for checks without network
# whose result does not change over time. `make deny` installs it and checks advisories, too.
check: test-deps ## Check format, lints and documentation, and run all tests (CI: this, then test-clients)
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --package dlock-client --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --workspace check bans licenses sources; \
	else echo "cargo-deny is not installed: not checked (make deny)"; fi
	@$(MAKE) --no-print-directory test

features: ## Compile the client with each feature alone, with none and with all, warnings as errors
	@scripts/features

msrv: ## Compile the wire crate and the client with the oldest compilers that they declare
	@scripts/msrv

package: ## Package the crates for crates.io, and build the packages in an empty workspace
	@scripts/package-check

dist: ## Build a release in target/dist: archive, .deb, .rpm, checksums (TARGET=x86_64-unknown-linux-gnu)
	@scripts/deps dist
	@scripts/dist

dist-check: ## Run `make dist` in a fresh clone, and try it in a Debian of its own (as root; needs mmdebstrap, lintian)
	@scripts/dist-check

release-check: deny features package links contrib-check test-clients ## Do what a release does, as far as one machine can
	@scripts/release-check
	@scripts/deps dist
	@scripts/dist-check --twice

contrib-check: ## Parse the files of contrib with the tools that know them
	@scripts/contrib-check

fix: deps ## Fix format and lints, as far as tools can
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	$(CARGO) fmt --all

bench: deps ## Run the benchmarks, each against a plain Redis in the same run
	$(CARGO) bench --package dlock --bench bench
	$(CARGO) bench --package dlock --bench client
	$(CARGO) bench --package dlock-core --bench micro

soak: test-deps ## Run millions of locks and dead waiters: memory must stay flat (minutes)
	$(CARGO) test --package dlock --test it --test client -- --ignored --nocapture --test-threads=1 soak

steps: ## Drive the core beside an earlier one, with the same histories (HISTORIES=1000000 FIRST=1)
	DLOCK_RUNS=$(or $(HISTORIES),1000000) DLOCK_FIRST=$(or $(FIRST),1) \
	    $(CARGO) test --package dlock-core --test it -- --nocapture are_in_step

chaos: test-deps ## Run random commands and faults, with checks after each burst (SECONDS=60 SEED= WORLD=single,replicated,cluster)
	SECONDS=$(or $(SECONDS),60) $(CARGO) test --package dlock --test chaos

ledger: test-deps ## Judge what users of the Rust client believed during faults (TURNS=20000 SEED= WORLD=proxy,failover KIND=)
	TURNS=$(or $(TURNS),20000) $(CARGO) test --package dlock --test ledger

failover: test-deps ## Judge what clients believed in failovers, as root (SECONDS=600 SEED= WORLD=cluster,quorum PROFILE=holds,default REPLICAS= SETUPS=4 FAULT=)
	@scripts/deps failover
	SECONDS=$(or $(SECONDS),600) $(CARGO) test --package dlock --test failover

# The tests take a minute or less each, one after the other: they measure how long no lock is granted.
upgrade: test-deps ## Upgrade servers from modules of earlier commits, under load, and back: pair, Sentinel, cluster
	@scripts/servers redis-7.0 >/dev/null
	@scripts/module-of 7c31fa2 b7257aa >/dev/null
	$(CARGO) build --package dlock --lib --profile checked
	$(CARGO) test --package dlock --test upgrade -- --ignored --nocapture --test-threads=1

matrix: test-deps ## Run the tests of module, client and command against Redis 7.0, 7.2, 7.4, 8.0, 8.2, 8.6, Valkey 8.0, 9.1
	@scripts/matrix

# Its packages come from PyPI and npm, so this is no part of `check`.
test-clients: test-deps ## Check the Python client and the Node client: types, tests on three servers, conformance, packages
	@scripts/deps clients
	$(CARGO) build --package dlock --lib --profile checked
	@scripts/test-clients

bridge: ## Check contrib/bridge with redis-py and node-redlock (both installed into the target folder)
	@scripts/bridge

fencing: ## Run the code of docs/fencing.md against PostgreSQL, a stand-in for S3 and an HTTP service
	@scripts/fencing

pictures: deps ## Record docs/pictures in a terminal (needs tmux), and draw the charts of docs/performance.md
	$(CARGO) build --release --package dlock --lib
	$(CARGO) build --release --package dlock-cli
	@scripts/pictures

links: ## Check the links between the pages, with their anchors
	@scripts/links

walks: ## Count the functions and files that a call walks through (benches/README.md; Linux on x86-64, binutils)
	@scripts/walks

book: ## Make a book of docs, with search, in target/book (installs mdBook if it is missing)
	@scripts/book

# Each fuzz target searches for inputs that reach new code. It keeps them in fuzz/corpus, and failures in
# fuzz/artifacts.
fuzz: ## Fuzz the parser of arguments and the decoder of records (SECONDS=60 each); needs a nightly compiler
	@$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-fuzz
	@for target in arguments records; do \
	    $(CARGO) +nightly fuzz run $$target -- -max_len=4096 -max_total_time=$(or $(SECONDS),60) -verbosity=0 -print_final_stats=1 || exit 1; \
	done

asan: test-deps ## Run the tests of the server with AddressSanitizer in the module; needs a nightly compiler
	@scripts/asan

deny: ## Check licences, advisories and sources of all dependencies
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	$(CARGO) deny --workspace check

# The clients come from PyPI, npm and the packages of the system, so this is no part of `check`.
doc-blocks: ## Run the code blocks and transcripts of README.md and docs (DLOCK_SERVER=another server)
	@scripts/deps doc
	$(CARGO) build --package dlock --lib --profile checked
	@scripts/doc-blocks --install

deps: ## Install missing packages for the build and the tests (Debian; elsewhere: list them)
	@scripts/deps

# Some tests need a newer server than Debian's: from Redis 7.4 and Valkey 8 on, a cluster keeps the keys of each slot
# apart.
test-deps:
	@scripts/deps test
	@scripts/servers redis-8.2 valkey-9.1 >/dev/null
	@scripts/prometheus >/dev/null
