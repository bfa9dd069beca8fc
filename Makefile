# Two commands do everything on a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUNS := $(VENV)/.runs

.PHONY: demo test fast quick slow docs browser promtool faketime lint style types format generate lock wheels bundle release sbom chaos fuzz clean

# What runs fedfair and no more; where everything is installed already, that is used.
demo: $(if $(wildcard $(READY)),$(READY),$(RUNS))
	$(BIN)/fedfair demo

# Three workers for two cores: many tests wait for processes, sockets and disks. A file stays with one worker, which
# computes what its tests share once; and what pytest makes of a file is kept, as three would make it again each time.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest
fast: $(READY)
	$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -m "not slow"

# Types are checked beside the tests: the one keeps one core busy for a minute, the others wait now and then.
test: $(READY) style
	$(MAKE) --no-print-directory --jobs=2 types fast

# What no library, socket or process slows down, while one works on it: seconds, and most of the rules.
quick: $(READY)
	$(PYTEST) -n 2 -m "not slow and not thorough" --quick

# The longest tests: whole federations whose processes are killed, the example of four hospitals, a Ray cluster.
# A file stays with one worker, as above: some of them share what takes longest to make.
slow: $(READY)
	$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -m slow

# Faults in real masked federations, seeded. It ends after 2000 faults or about an hour: make chaos FAULTS=200 SEED=7
FAULTS ?= 2000
SEED ?= 1
CHAOS_SECONDS ?= 3600
chaos: $(READY)
	$(BIN)/python benchmarks/chaos.py --faults $(FAULTS) --seed $(SEED) --seconds $(CHAOS_SECONDS) --last-sums

# Broken messages and files for everything that reads them, seeded: make fuzz FUZZ="--messages 100000 --files 1000"
FUZZ ?= --messages 1000000 --files 100000 --seconds 14400
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --seed $(SEED) $(FUZZ)

# The site, from disk alone: open build/site/index.html. A generated page that has drifted is written again first.
docs: $(READY)
	$(BIN)/python -m docs.generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Pages are tested in a headless Chromium. Without one, those tests are skipped and say so.
browser:
	@for name in chromium google-chrome chromium-browser; do command -v $$name && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -qq && apt-get install -qq -y chromium; \
	then command -v chromium; \
	else echo "no Chromium can be installed here: the tests of pages in a browser will be skipped"; fi

# Metrics and alert rules are checked by Prometheus' own tool. Without it, those tests are skipped and say so.
promtool:
	@command -v promtool || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -qq \
	&& apt-get install -qq -y --no-install-recommends prometheus && command -v promtool; } \
	|| echo "no promtool can be installed here: the tests of metrics and rules by it will be skipped"

# A year of certificates is lived in a minute under libfaketime. Without it, that test is skipped and says so.
faketime:
	@find /usr/lib /usr/lib64 -name libfaketime.so.1 2> /dev/null | grep . || { [ "$$(id -u)" = 0 ] \
	&& command -v apt-get > /dev/null && apt-get update -qq && apt-get install -qq -y --no-install-recommends faketime; } \
	|| echo "no libfaketime can be installed here: the test of a year of certificates will be skipped"

lint: style types

style: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Regenerates the protobuf code that is committed; tests/wire/test_generated.py fails when it has drifted.
# The compiler is an older one in an environment of its own: its code runs with protobuf 6 and with protobuf 7.
generate:
	$(PYTHON) -m venv build/protoc
	build/protoc/bin/pip $(LOCKED) requirements/protoc.txt
	mkdir -p build/proto
	build/protoc/bin/python -m grpc_tools.protoc -I proto --python_out=build/proto --pyi_out=build/proto fedfair/v1/federation.proto fedfair/v1/hub.proto
	cp build/proto/fedfair/v1/*_pb2.py build/proto/fedfair/v1/*_pb2.pyi fedfair/wire/v1/

# Every file is checked against its hash, and the lists name everything (docs/how-to/install.md). The CPU build of torch is
# taken where pip finds one; else the one of the package index, with the libraries that it needs on Linux.
# Bytecode of what is never imported would take as long as its files do.
LOCKED := install --quiet --no-compile --no-deps --require-hashes --requirement
$(READY): pyproject.toml constraints.txt requirements/cpu.txt requirements/cuda.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip $(LOCKED) requirements/cpu.txt 2> /dev/null || $(BIN)/pip $(LOCKED) requirements/cuda.txt
	$(BIN)/pip $(LOCKED) constraints.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(READY)

$(RUNS): pyproject.toml requirements/run.txt requirements/cpu.txt requirements/cuda.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip $(LOCKED) requirements/cpu.txt 2> /dev/null || $(BIN)/pip $(LOCKED) requirements/cuda.txt
	$(BIN)/pip $(LOCKED) requirements/run.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(RUNS)

# Writes constraints.txt and requirements/ again after a dependency or a version has changed, then what is made of them.
lock: $(READY)
	$(BIN)/python -m supply.lock
	$(BIN)/python -m supply.licences

# A folder from which fedfair is installed without a network; for development, add LIST=constraints.txt.
LIST ?= requirements/run.txt
wheels: $(READY)
	$(BIN)/python -m supply.wheels $(LIST) build/wheels

# The same as one file, with the hash of each file in it: make bundle LIST=requirements/base.txt for an aggregator.
bundle: $(READY)
	$(BIN)/python -m supply.bundle $(LIST) build

# Wheel and sdist in build/release, their contents checked; tags and uploads nothing. docs/develop/releasing.md says the rest.
release: $(READY)
	$(BIN)/python -m supply.release build/release
	$(PYTHON) -m venv build/twine
	build/twine/bin/pip $(LOCKED) requirements/release.txt
	build/twine/bin/python -m twine check --strict build/release/*.whl build/release/*.tar.gz

# The bill of materials of what both programs install: CycloneDX, as JSON.
sbom: $(READY)
	$(BIN)/python -m supply.sbom build/fedfair.cdx.json

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
