# Two commands do all the set-up on a machine with Python 3.11+, Java 17+ and make: `make demo`, `make test`.
# CONTRIBUTING.md says which target to run when. Every target starts from the same environment in .venv.

RUN := .venv/bin/
STAMP := .venv/.ready

# Workers of pytest-xdist, which take one test after the other as `tests.harness.order` says. More than there are
# cores, since half of the tests wait for servers.
WORKERS ?= 4
PARALLEL := --dist load --maxschedchunk 1

.PHONY: setup demo check test test-long lint types fast classes coverage format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml uv.lock tools/setup.sh
	@sh tools/setup.sh
	@touch $@

demo: $(STAMP)
	@$(RUN)evenq demo

# Before each commit: everything that starts no process, JVM or broker. Under a minute.
check: lint
	@$(MAKE) --no-print-directory -j2 -O types fast

# Before a change lands, and in CI: everything.
# Suites that need Spark or the Java broker skip, with a reason, where what they need is missing.
# EVENQ_REQUIRE=spark,interop makes such a skip a failure: .ci/run sets it.
test: lint
	@$(MAKE) --no-print-directory -j2 -O types classes
	$(RUN)pytest -n $(WORKERS) $(PARALLEL) --second-try

# The same tests with more random cases, kills and damaged requests. Hours.
test-long: lint types classes
	EVENQ_TESTS=long $(RUN)pytest -n $(WORKERS) $(PARALLEL) --timeout 7200

lint: $(STAMP)
	$(RUN)ruff check .
	$(RUN)ruff format --check .

types: $(STAMP)
	$(RUN)mypy

fast: $(STAMP)
	EVENQ_TESTS=check $(RUN)pytest -q -n 2 $(PARALLEL) -m "not live"

# Spark programs of the tests start twice as fast with an archive of Spark's classes.
classes: $(STAMP)
	@$(RUN)python -m tests.harness.spark_jvm

# Lines and branches of the source, counted in all processes, Spark's workers included.
coverage: $(STAMP)
	$(RUN)coverage erase
	$(RUN)coverage run -m pytest -n $(WORKERS) $(PARALLEL) --second-try
	$(RUN)coverage combine --quiet
	$(RUN)coverage report --skip-covered --sort=cover

format: $(STAMP)
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

bench: $(STAMP)
	$(RUN)python -m bench

clean:
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
