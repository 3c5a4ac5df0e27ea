"""Live tests start processes, JVMs or brokers. All others are what ``make check`` runs in a minute.

A test is live if it uses one of the fixtures below, directly or through another fixture, or if it is marked
``pytest.mark.live``. The guard keeps the marks true: it fails a test that starts something and is not marked.
"""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn

import pytest

from evenq.broker import Broker

__all__ = ["LIVE_FIXTURES", "forbid_starts", "is_live"]

LIVE_FIXTURES = frozenset(
    "real_cluster embedded_cluster any_cluster one_broker own_cluster java_host own_java spark".split()
)

# Where something is started: processes by the standard library, and the embedded broker.
_STARTS: list[tuple[Any, str]] = [
    (subprocess.Popen, "__init__"),
    (multiprocessing.process.BaseProcess, "start"),
    (os, "fork"),
    (Broker, "start"),
]


def is_live(item: pytest.Item) -> bool:
    return item.get_closest_marker("live") is not None


@contextmanager
def forbid_starts(item: pytest.Item) -> Iterator[None]:
    """Within the block, whatever starts a process or a broker fails instead."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in _STARTS:
            patch.setattr(owner, name, _refuse(item, owner, getattr(owner, name)))
        yield


def _refuse(item: pytest.Item, owner: Any, start: Callable[..., object]) -> Callable[..., NoReturn]:
    @wraps(start)
    def refused(*_arguments: object, **_named: object) -> NoReturn:
        what = f"{getattr(owner, '__name__', owner)}.{start.__name__}"
        pytest.fail(f"{item.nodeid} calls {what} and is not marked: add @pytest.mark.live", pytrace=False)

    return refused
