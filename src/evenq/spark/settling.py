"""What a Python process that Spark gives tasks to does once, before its first task of ours."""

from __future__ import annotations

import gc
from functools import cache

from evenq.client.read.memory import keep_freed

__all__ = ["settle"]


@cache
def settle() -> None:
    """Make this process ready for many short tasks.

    Spark looks for garbage after every task, in all that Spark, Arrow and we have imported: 30 ms, as long as it takes
    to read 30,000 rows. What is here by now is here to stay, and is no longer looked at.
    """
    gc.freeze()
    keep_freed()
