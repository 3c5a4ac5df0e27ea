"""Memory that comes and goes with every batch."""

from __future__ import annotations

from functools import cache

__all__ = ["keep_freed"]


@cache
def keep_freed(size: int = 16 * 1024 * 1024) -> None:
    """Let this process keep freed memory, up to twice ``size``, for what is needed next.

    glibc gives free memory at the end of the heap back to the system, so that whoever takes a few megabytes again and
    again pays for every page anew: a quarter of the time that it takes to read columns. It stops to do so for blocks
    as large as the largest one that it has seen come and go. Elsewhere this does nothing.
    """
    # not touched, so no page of it is ever real
    bytearray(size)
