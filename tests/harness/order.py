"""The order of the tests: long ones first, so that no worker of a parallel run ends with a long one."""

from __future__ import annotations

import pytest

__all__ = ["arrange"]

# Where tests start Spark programs or JVMs and take longest, by a look at `--durations`.
_LONGEST = (
    "tests/spark",
    "tests/docs",
    "tests/cli",
    "tests/interop",
    "tests/fuzz",
    "tests/broker/test_kill_loop.py",
)


def arrange(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    if "spark" in getattr(item, "fixturenames", ()):
        return 0
    if item.get_closest_marker("live") is None:
        return len(_LONGEST) + 2
    path = item.nodeid.partition("::")[0]
    return next((rank for rank, start in enumerate(_LONGEST, 1) if path.startswith(start)), len(_LONGEST) + 1)
