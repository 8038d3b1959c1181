# The targets of this project. `make help` lists them.
#
#   PORT=6380            where `make run` listens
#   DLOCK_SERVER=path    another server binary than redis-server, for run, test, check, bench, soak, chaos and reshard
#   CARGO_TARGET_DIR=…   is honoured everywhere
#   RUST_TEST_THREADS=n  how many tests of one program run at a time

PORT ?= 6379
CARGO ?= cargo
# Tests with a server mostly wait for it, so four of them share a core.
RUST_TEST_THREADS ?= $(shell expr 4 \* $$(nproc))
# Features that no other crate of the workspace uses, and that have tests.
FEATURES := dlock-client/tracing,dlock-client/metrics
export PORT CARGO RUST_TEST_THREADS FEATURES

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' Makefile)

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { print "\n" substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

##@ To use dlock

run: deps ## Build the module and the dlock command, and start a server on 127.0.0.1 (PORT=6379)
	@scripts/run

test: test-deps ## Run all tests, including those with real servers
	@scripts/test

bench: deps ## Run the benchmarks, each against a plain Redis in the same run
	$(CARGO) bench --package dlock --bench bench
	$(CARGO) bench --package dlock --bench client
	$(CARGO) bench --package dlock-core --bench micro

dist: ## Build a release in target/dist: archive, .deb, .rpm, checksums (TARGET=x86_64-unknown-linux-gnu)
	@scripts/deps dist
	@scripts/dist

##@ To change dlock

# cargo-deny takes minutes to build, so `check` uses it only if it is installed, and only for checks without network
# whose result does not change over time. `make deny` installs it and checks advisories, too.
check: test-deps ## Check format, lints, documentation and instructions, and run all tests (CI: this, then test-clients)
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --test measures --test reshard --features $(FEATURES) -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --workspace check bans licenses sources; \
	else echo "cargo-deny is not installed: not checked (make deny)"; fi
	@scripts/instructions
	@$(MAKE) --no-print-directory test

# Its packages come from PyPI and npm, so this is no part of `check`.
test-clients: module ## Check the clients in other languages on one server: types, tests, conformance, packages
	@scripts/deps clients
	@scripts/test-clients

fix: deps ## Fix format and lints, as far as tools can
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	$(CARGO) fmt --all

features: ## Compile the client with each feature alone, with none and with all, warnings as errors
msrv: ## Compile the wire crate and the client with the oldest compilers that they declare
package: ## Package the crates for crates.io, and build the packages in an empty workspace
	@scripts/package-check

dist-check: ## Run `make dist` in a fresh clone, and try it in Debian 12 and 13 (as root; needs mmdebstrap, lintian)
release-check: deny features package links contrib-check test-clients ## Do what a release does, as far as one machine can
	@scripts/release-check
	@scripts/deps dist
	@scripts/dist-check --twice

contrib-check: ## Parse the files of contrib with the tools that know them
deny: ## Check licences, advisories and sources of all dependencies
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	$(CARGO) deny --workspace check

links: ## Check the links between the pages, with their anchors
# The clients come from PyPI, npm and the packages of the system, so this is no part of `check`.
doc-blocks: module ## Run the code blocks and transcripts of README.md and docs (DLOCK_SERVER=another server)
	@scripts/deps doc
	@scripts/doc-blocks --install

bridge: module ## Check contrib/bridge with redis-py and node-redlock (both installed into the target folder)
fencing: module ## Run the code of docs/fencing.md against PostgreSQL, a stand-in for S3 and an HTTP service
book: ## Make a book of docs, with search, in target/book (installs mdBook if it is missing)
pictures: deps ## Record docs/pictures in a terminal (needs tmux), and draw the charts of docs/performance.md
	$(CARGO) build --release --package dlock --lib
	$(CARGO) build --release --package dlock-cli
	@scripts/pictures

instructions: ## Count what an empty turn of the Rust client takes, against its limits (valgrind)
walks: ## Count the functions and files that a call walks through (benches/README.md; Linux on x86-64, binutils)
deps: ## Install missing packages for the build and the tests (Debian; elsewhere: list them)
	@scripts/deps

# Some tests need a newer server than Debian's: from Redis 7.4 and Valkey 8 on, a cluster keeps the keys of each slot
# apart.
test-deps:
	@scripts/deps test
	@scripts/servers redis-8.2 valkey-9.1 >/dev/null
	@scripts/prometheus >/dev/null

# With the core's checks of its invariants.
module: test-deps
	$(CARGO) build --package dlock --lib

partition: module ## Lose the reply of each request of all clients in turn: nobody believes in two owners (TURNS=5000 SEED=)

asan book bridge contrib-check dist-check features fencing instructions links msrv nightly partition walks:
	@scripts/$@

##@ At night (CONTRIBUTING.md says what each can find)

nightly: ## Run these one after the other, go on after a failure, and say at the end what failed
matrix: test-deps ## Run the tests with the release build of the module against every server of scripts/servers
	$(CARGO) build --release --package dlock --lib
	@scripts/deps clients
	@scripts/matrix

measures: test-deps ## Run the tests that measure costs and times
	$(CARGO) test --package dlock --test measures -- --nocapture --test-threads=1

models: ## Look at more histories of the core (HISTORIES=1000000 FIRST=1), and at more states of the quorum lock and of failovers
	DLOCK_RUNS=$(or $(HISTORIES),1000000) DLOCK_FIRST=$(or $(FIRST),1) \
	    $(CARGO) test --package dlock-core --test it -- --nocapture the_machine_and_the_model_agree
	DLOCK_LATE=1 $(CARGO) test --package dlock-models -- --nocapture --include-ignored

traps: test-deps ## Put each mistake into the naive client: a scene of the conformance kit has to fail
	$(CARGO) run --package dlock-conformance --bin dlock-conformance -- --traps -- python3 clients/conformance/traps.py

steps: ## Drive the core beside an earlier one, with the same histories (HISTORIES=1000000 FIRST=1)
	DLOCK_RUNS=$(or $(HISTORIES),1000000) DLOCK_FIRST=$(or $(FIRST),1) \
	    $(CARGO) test --package dlock-core --test it -- --ignored --nocapture are_in_step

chaos: test-deps ## Run random commands and faults, with checks after each burst (SECONDS=60 SEED= WORLD=single,replicated,cluster)
	SECONDS=$(or $(SECONDS),60) $(CARGO) test --package dlock --test chaos

ledger: test-deps ## Judge what users of the Rust client believed during faults (TURNS=20000 SEED= WORLD=proxy,failover KIND=)
	TURNS=$(or $(TURNS),20000) $(CARGO) test --package dlock --test ledger

failover: test-deps ## Judge what clients believed in failovers, as root (SECONDS=600 SEED= WORLD=cluster,quorum,duel PROFILE=holds,default REPLICAS= SETUPS=4 FAULT=)
	@scripts/deps failover
	SECONDS=$(or $(SECONDS),600) $(CARGO) test --package dlock --test failover

reshard: test-deps ## Move slots as operators do, under load, and judge what clients saw (EPISODES=100 SEED=1 KIND=)
	$(CARGO) test --package dlock --test reshard -- --nocapture

# The tests take a minute or less each, one after the other: they measure how long no lock is granted.
upgrade: test-deps ## Upgrade servers to a second record level, under load, and back: pair, Sentinel, cluster (FROM=commit)
	@scripts/servers redis-7.0 >/dev/null
	DLOCK_FROM=$(FROM) $(CARGO) test --package dlock --test upgrade -- --ignored --nocapture --test-threads=1

soak: test-deps ## Run millions of locks and dead waiters: memory must stay flat
	$(CARGO) test --package dlock --test it --test client -- --ignored --nocapture --test-threads=1 soak

asan: test-deps ## Run the tests of the server with AddressSanitizer in the module; needs a nightly compiler
# Each target searches for inputs that reach new code. It keeps them in fuzz/corpus, and failures in fuzz/artifacts.
fuzz: ## Fuzz the parser of arguments and the decoder of records (SECONDS=60 each); needs a nightly compiler
	@$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-fuzz
	@for target in arguments records; do \
	    $(CARGO) +nightly fuzz run $$target -- -max_len=4096 -max_total_time=$(or $(SECONDS),60) -verbosity=0 -print_final_stats=1 || exit 1; \
	done
