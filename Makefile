# `make demo` and `make test` need Python 3.11+ and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := assignors cli client coordinator spark storage workshop muster pyspark_muster docs/tools
PROTOS := $(wildcard proto/muster/*/rpc/v1/*.proto)
SEEDS ?= 500
ROUNDS ?= 1000
PROCESSES ?= 2
FUZZ_SECONDS ?= 120

# Hundreds of processes are started by the tests, and each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo demo-cluster demo-exactly-once demo-watch docs test verify check fmt proto proto-check properties search fuzz sim torture interop engine bench screenshots clean era

demo: $(VENV)/.installed
	$(BIN)/muster demo

# Three nodes and a real ZooKeeper: the node that coordinates is killed. The extra brings kazoo, ZooKeeper and Java.
demo-cluster: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[zookeeper]'
	$(BIN)/muster demo --cluster

# A worker and the node are killed in the middle of transactions, and every order is billed exactly once.
demo-exactly-once: $(VENV)/.installed
	$(BIN)/muster demo --exactly-once

# A real Kafka, from Maven's jars, is watched: why did its group rebalance? Without Java or Maven this is told of a recording.
demo-watch: $(VENV)/.installed
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[kafka]'
	$(BIN)/muster demo --watch

# All unit, property, story, vector and simulator tests and one real run per component, in two processes, and a line for each
# part (tests/parts.py): make test PROCESSES=4
test: $(VENV)/.installed-dev
	$(call suite,not verify)

# All the rest. Much of it waits for sessions and elections to end: three processes keep two cores busy.
verify: PROCESSES = 3
verify: $(VENV)/.installed-dev
	$(call suite,verify)

# What fails while processes share the machine is run once more, alone, and fails for good if it does so there too. Only exit
# code 1 says that all were run and some failed: after an interruption or a crash there is no telling what was left out.
define suite
	$(BIN)/python -m pytest --parts --numprocesses $(PROCESSES) --no-loadscope-reorder -m "$(1)" || \
		{ test $$? -eq 1 && $(BIN)/python -m pytest --last-failed --last-failed-no-failures none -m "$(1)"; }
endef

# The one door: format, lint, types, import contracts, generated code, fast tests.
check: $(VENV)/.installed-dev proto-check
	$(BIN)/ruff format --check $(PACKAGES) tests
	$(BIN)/ruff check $(PACKAGES) tests
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m "not integration and not sim"

fmt: $(VENV)/.installed-dev
	$(BIN)/ruff format $(PACKAGES) tests
	$(BIN)/ruff check --fix $(PACKAGES) tests

proto: $(VENV)/.installed-dev
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=. --pyi_out=. $(PROTOS)

proto-check: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/unit/test_generated_code.py

# Every setting at its default, written from the model; a test holds the file against it.
properties: $(VENV)/.installed
	$(BIN)/python -c 'from muster.coordinator.config import render_properties; print(render_properties(), end="")' \
		> deploy/coordinator.properties

# The reference, into build/site; a warning is an error.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# The property tests with examples drawn at random, and more of them.
search: $(VENV)/.installed-dev
	HYPOTHESIS_PROFILE=search $(BIN)/python -m pytest tests/property tests/unit --timeout 1800

# Thousands of seeds: make sim SEEDS=5000
sim: $(VENV)/.installed-dev
	$(BIN)/python -m tests.sim --seeds $(SEEDS)

# A writer killed again and again, and a node under rebalances and commits: make torture ROUNDS=1000
torture: $(VENV)/.installed-dev
	$(BIN)/python -m tests.torture --rounds $(ROUNDS)
	$(BIN)/python -m tests.torture.node_kill --rounds 100
	$(BIN)/python -m tests.torture.kafka_kill --rounds 100
	$(BIN)/python -m tests.torture.transactions --rounds 200
	$(BIN)/python -m tests.torture.transactions --rounds 200 --client muster
	-$(BIN)/python -m tests.torture.transactions --rounds 200 --client java
	-$(BIN)/python -m tests.torture.transactions --rounds 100 --nodes 3
	$(BIN)/python -m tests.torture.billing_kills --rounds 100
	-$(BIN)/python -m tests.torture.engine_kill --rounds 200
	-$(BIN)/python -m tests.torture.proxy_clients --seconds 60
	$(BIN)/python -m tests.torture.stall
	$(BIN)/python -m tests.torture.soak --minutes 30

# Kafka's door under fire, guided by coverage: make fuzz FUZZ_SECONDS=600
FUZZING = -artifact_prefix=build/fuzz/ -max_total_time=$(FUZZ_SECONDS)
fuzz: $(VENV)/.installed-dev
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz codec build/fuzz/codec -max_len=600 $(FUZZING)
	$(BIN)/python -m tests.fuzz connection build/fuzz/connection -max_len=1000 -len_control=0 $(FUZZING)
	$(BIN)/python -m tests.fuzz judged build/fuzz/judged -max_len=1000 -len_control=0 $(FUZZING)
	$(BIN)/python -m tests.fuzz conversion build/fuzz/conversion -max_len=400 $(FUZZING)
	$(BIN)/python -m tests.fuzz between build/fuzz/between -max_len=1000 -len_control=0 $(FUZZING)

# Clients of other runtimes against a node; what is not installed is skipped, and said.
interop: $(VENV)/.installed-dev
	-cd tests/interop/js && npm install --no-package-lock --no-audit --no-fund --silent
	-mvn --quiet --batch-mode --file tests/interop/connect/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/build/connect
	MUSTER_INTEROP=1 $(BIN)/python -m pytest tests/interop -rs

# Programs of Kafka 0.8.2 to 1.1 against a node; without Java or Maven it fails, where `make verify` leaves them out. Much of
# it waits for Java to start and for sessions to end: three processes keep two cores busy.
era: PROCESSES = 3
era: $(VENV)/.installed-dev
	MUSTER_ERA=1 $(BIN)/python -m pytest tests/era -rs --numprocesses $(PROCESSES) --no-loadscope-reorder

# Groups whose state is in a real Kafka, from Maven's jars; without Java or Maven it fails, where `make verify` leaves it out.
engine: $(VENV)/.installed-dev
	MUSTER_ENGINE=1 $(BIN)/python -m pytest tests/unit/kafka_backend tests/integration/kafka_backend -rs

# The pictures of the page in README and docs, anew, from a real node and Debian's Chromium.
screenshots: $(VENV)/.installed-dev
	$(BIN)/python -m tests.screenshots docs/images

# Ratios against peers in the same run; a goal that is missed does not stop the other suites.
bench: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[workshop]'
	-$(BIN)/muster bench log
	-$(BIN)/muster bench assignors
	-$(BIN)/muster bench coordinator
	-$(BIN)/muster bench wire
	-$(BIN)/muster bench transactions
	-$(BIN)/muster bench spark

clean:
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/.installed
