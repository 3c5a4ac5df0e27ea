"""Which test runs when, and on which worker of a parallel run.

- Long tests come first, so that no worker ends with a long one.
- Half of the workers take the tests of Spark first: those keep the processors busy, and every worker that runs one has
  a Spark session of its own. The other workers take the rest first, much of which waits for servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

__all__ = ["SparkApart", "arrange"]

# Where tests start Spark programs or JVMs and take longest, by a look at `--durations`.
_LONGEST = (
    "tests/spark",
    "tests/docs",
    "tests/cli",
    "tests/interop",
    "tests/fuzz",
    "tests/broker/torture/test_kill_loop.py",
)
_SPARK = "tests/spark/"


def arrange(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    if "spark" in getattr(item, "fixturenames", ()):
        return 0
    if item.get_closest_marker("live") is None:
        return len(_LONGEST) + 2
    path = item.nodeid.partition("::")[0]
    return next((rank for rank, start in enumerate(_LONGEST, 1) if path.startswith(start)), len(_LONGEST) + 1)


class SparkApart(LoadScheduling):
    """Gives each worker the next test, one at a time, and the tests of Spark to half of the workers as long as others
    are left. Use it with ``--dist load --maxschedchunk 1``: a worker then knows one test ahead."""

    def _send_tests(self, node: WorkerController, num: int) -> None:
        assert self.collection is not None
        names = self.collection
        for_spark = self.nodes.index(node) < (self.numnodes + 1) // 2
        sent = sorted(self.pending, key=lambda index: names[index].startswith(_SPARK) != for_spark)[:num]
        if sent:
            taken = set(sent)
            self.pending = [index for index in self.pending if index not in taken]
            self.node2pending[node].extend(sent)
            node.send_runtest_some(sent)
