"""Which tests run on one worker of pytest-xdist (``--dist loadgroup``), and in which order.

Tests that share the Spark session are one group, so that a run has one Spark session. Every other file is a group of
its own. Workers take groups in the order of the tests: long ones first, so that no worker ends with a long one.
"""

from __future__ import annotations

import pytest

__all__ = ["arrange", "plain_name"]

_SPARK = "spark"
# Files whose tests start Spark or JVMs of their own take longest, by a look at `--durations`.
_LONGEST = (
    "tests/spark",
    "tests/docs",
    "tests/cli",
    "tests/interop",
    "tests/fuzz",
    "tests/broker/test_kill_loop.py",
)


def arrange(items: list[pytest.Item]) -> None:
    """Give each test its group, and put the tests in the order in which groups are to begin."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_rank)


def plain_name(nodeid: str) -> str:
    """A test's name without the group that pytest-xdist adds to it.

    >>> plain_name("tests/spark/test_sink.py::test_it[a@b]@spark"), plain_name("tests/test_it.py::test_it[a@b]")
    ('tests/spark/test_sink.py::test_it[a@b]', 'tests/test_it.py::test_it[a@b]')
    """
    name, _, group = nodeid.rpartition("@")
    return name if group == _SPARK or group.endswith(".py") else nodeid


def _group(item: pytest.Item) -> str:
    return _SPARK if "spark" in getattr(item, "fixturenames", ()) else item.nodeid.partition("::")[0]


def _rank(item: pytest.Item) -> int:
    if _group(item) == _SPARK:
        return 0
    if item.get_closest_marker("live") is None:
        return len(_LONGEST) + 2
    path = item.nodeid.partition("::")[0]
    return next((rank for rank, start in enumerate(_LONGEST, 1) if path.startswith(start)), len(_LONGEST) + 1)
