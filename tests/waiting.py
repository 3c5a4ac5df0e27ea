"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["wait_until"]

T = TypeVar("T")


def wait_until(condition: Callable[[], T | None], what: str | Callable[[], str], seconds: float = 60.0) -> T:
    """Ask ``condition`` until it gives something true, and give that back.

    ``what`` ends the sentence "… s passed without …" of the error, and may be a function that sees the state then.

    >>> wait_until(lambda: [1], "a list with something in it")
    [1]
    """
    deadline = time.monotonic() + seconds
    pause = 0.002
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{seconds:g} s passed without {what() if callable(what) else what}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    return value
