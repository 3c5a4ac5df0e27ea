# Two commands do all the set-up on a machine with Python 3.11+, Java 17+ and make: `make demo`, `make test`.
# Every other target starts from the same environment in .venv.

RUN := .venv/bin/
STAMP := .venv/.ready

.PHONY: setup demo test lint types unit format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml uv.lock tools/setup.sh
	@sh tools/setup.sh
	@touch $@

demo: $(STAMP)
	@$(RUN)evenq demo

test: lint types unit

lint: $(STAMP)
	$(RUN)ruff check .
	$(RUN)ruff format --check .

types: $(STAMP)
	$(RUN)mypy

# Suites that need Spark or the Java broker skip, with a reason, where what they need is missing.
# EVENQ_REQUIRE=spark,interop makes such a skip a failure: .ci/run sets it.
# They are run in two halves side by side, since most of them wait for a broker or a JVM; the half with Spark is shown last.
unit: $(STAMP)
	@log=$$(mktemp) && { $(RUN)pytest tests/spark tests/docs > $$log 2>&1 & } && spark=$$! && \
	trap "kill $$spark" INT TERM && \
	{ $(RUN)pytest --ignore=tests/spark --ignore=tests/docs; rest=$$?; \
	wait $$spark; with=$$?; cat $$log; rm -f $$log; exit $$((rest || with)); }

format: $(STAMP)
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

bench: $(STAMP)
	$(RUN)python -m bench

clean:
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis
