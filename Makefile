# One command per need; `make test` is all that CI runs.
#   make run      build in release and start a node on 127.0.0.1:9042, data in ./ceto-data
#   make check    format, lints, unit tests: the quick loop
#   make test     everything CI runs (sets up what it needs itself)
#   make bench    the numbers kept in perf/; SHORT=1: everything once, in a few minutes; SCENARIO="s1 s3": those of perf/bench, with SHORT=1 a twentieth
#   make fuzz     every fuzz target, FUZZ_SECONDS each (default 60); `make check` goes through the kept corpus
#   make sim SEED=n | SEEDS=a..b   replay or search in simulation; WORLD=storage | statements | cluster: in that one alone
#   make differential STATEMENTS=n  random statements, compared with a real Cassandra
#   make sanitize the memory crate's tests under the address sanitizer
#   make dist     the program as packages ship it, optimized as a whole: a build that takes long, and much memory
#   make deb      a Debian package of it
#   make upgrade  nodes of an earlier build and of this one in one cluster under load, there and back (nightly)
#   make judge    conditional writes while nodes are killed, held and cut off, judged by porcupine (nightly)
#   make differential-three   three nodes beside three of a real Cassandra at every level, with nodes down (nightly)
#   make exchange a real Cassandra takes our table files and answers with the same rows (nightly)

CARGO ?= cargo
SEEDS ?= 0..200
FUZZ_SECONDS ?= 60
export CARGO_TERM_COLOR ?= auto
# Has the build of the tests lint as it compiles, and any warning fail it: `cargo clippy` beside it would compile all there is
# once more. This is how `cargo clippy` calls its driver; the words between warnings separate arguments.
LINTED = RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__

.PHONY: run release dist deb check lint unit test cassandra-tools compat stress crash differential upgrade judge differential-three exchange sanitize sim bench fuzz clean-data

run: release
	exec target/release/ceto server --workdir ./ceto-data

release:
	$(CARGO) build --release --locked

dist:
	$(CARGO) build --profile dist --locked -p server --bin ceto
	ls -l target/dist/ceto

deb: dist
	packaging/debian/build.sh target/dist/ceto target

check: lint
	$(MAKE) unit

# Format and lints, which builds the tests.
lint:
	$(CARGO) fmt --all --check
	# The fuzz targets have a lock file of their own, which follows this workspace's.
	$(CARGO) metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	$(LINTED) $(CARGO) test --workspace --locked --no-run

unit:
	$(LINTED) $(CARGO) test --workspace --locked

# The tests that take a real Cassandra's tools, with the build that `check` made.
cassandra-tools:
	CASSANDRA_REQUIRED=1 $(LINTED) $(CARGO) test --workspace --locked --test cassandra

test:
	.ci/steps

# Built with everything else: alone, other features of its dependencies would build them anew.
sim: release
	target/release/ceto-sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(WORLD),--world $(WORLD))

compat: release
	tests/compat/run.sh

stress: release
	tests/stress/run.sh

crash: release
	tests/crash/run.sh

differential: release
	$(if $(STATEMENTS),COUNT=$(STATEMENTS) )tests/differential/run.sh

upgrade: release
	tests/upgrade/run.sh

judge: release
	tests/judge/run.sh

differential-three: release
	tests/differential/three.sh

exchange: release
	tests/exchange/run.sh

# What the sanitizer needs is in the stable compiler, behind a door that this variable opens. Unit tests and what they
# call are instrumented; a folder of its own keeps the other builds.
sanitize:
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address PROPTEST_RNG_SEED=1 $(CARGO) test -p memory --lib --locked \
	  --target $(shell rustc -vV | sed -n 's/^host: //p') --target-dir target/sanitize

bench: release
	$(if $(SCENARIO),perf/bench $(if $(SHORT),--short) $(SCENARIO),$(if $(SHORT),ROUNDS=1 SECONDS_EACH=1 perf/run.sh --only counts --only loopback --only start --only bench,perf/run.sh))

fuzz:
	fuzz/run.sh $(FUZZ_SECONDS)
