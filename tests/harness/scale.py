"""How much a test does. ``EVENQ_TESTS`` says for what the tests are run; the Makefile sets it.

| level | set by | random cases | torture |
| --- | --- | --- | --- |
| ``check`` | ``make check`` | a fifth | – |
| ``test`` | ``make test``, and where nothing is set | as written in the test | a short version |
| ``long`` | ``make test-long`` | twenty times as many | the whole |
"""

from __future__ import annotations

import os

__all__ = ["LEVEL", "examples", "scaled"]

LEVEL = os.environ.get("EVENQ_TESTS", "test")
if LEVEL not in ("check", "test", "long"):
    raise ValueError(f"EVENQ_TESTS={LEVEL!r}: give check, test or long")


def examples(usual: int) -> int:
    """How many cases Hypothesis tries, where ``make test`` tries ``usual``."""
    return {"check": max(usual // 5, 1), "test": usual, "long": usual * 20}[LEVEL]


def scaled(short: int, long: int) -> int:
    """How many rounds, kills or requests: ``long`` in ``make test-long``, otherwise ``short``."""
    return long if LEVEL == "long" else short
