"""Requests that have not come completely: how much memory they take, and whose rest is read first.

| state | what it means | next |
| --- | --- | --- |
| free | read from like any other connection | held back, when half of the limit is taken and more than a share by it |
| held back | not read from | finishing, in the order of coming here, when there is room for the whole request |
| finishing | read from; there is room for the whole request | free, when the request is complete |

Half of the limit is for those that are free, the other half for those that finish. One connection may always finish,
however large its request is. A share is half of the limit divided by the number of incomplete requests.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["PartialRequests"]


class _Connection(Protocol):
    @property
    def partial(self) -> int:
        """How many bytes are there of a request that is not complete."""
        ...

    @property
    def needed(self) -> int:
        """How many bytes the request has, as far as is known."""
        ...

    def hold_back(self, held_back: bool) -> None:
        """Read no more from the peer, or read on."""
        ...


class PartialRequests:
    """The incomplete requests of all connections of a server, which together may take about ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self.total_bytes = 0
        self._sizes: dict[_Connection, int] = {}
        self._held_back: dict[_Connection, None] = {}
        self._finishing: dict[_Connection, int] = {}
        self._reserved_bytes = 0

    def changed(self, connection: _Connection, *, completed: bool) -> None:
        """A connection sent something; with ``completed`` that was the end of a request, at least."""
        if completed:
            self._free(connection)
        size = connection.partial
        self.total_bytes += size - self._sizes.pop(connection, 0)
        if size:
            self._sizes[connection] = size
        over = self.total_bytes > self._half and size > self._half // max(1, len(self._sizes))
        if over and connection not in self._finishing:
            self._held_back[connection] = None
            self._finish_next()
            if connection in self._held_back:
                connection.hold_back(True)
        elif completed:
            self._finish_next()

    def forget(self, connection: _Connection) -> None:
        """A connection is gone."""
        self.total_bytes -= self._sizes.pop(connection, 0)
        self._held_back.pop(connection, None)
        self._free(connection)
        self._finish_next()

    def _free(self, connection: _Connection) -> None:
        self._reserved_bytes -= self._finishing.pop(connection, 0)

    def _finish_next(self) -> None:
        """Let those go on that were held back first, as far as there is room."""
        while self._held_back:
            connection = next(iter(self._held_back))
            if self._finishing and self._reserved_bytes + connection.needed > self._half:
                return
            del self._held_back[connection]
            self._finishing[connection] = connection.needed
            self._reserved_bytes += connection.needed
            connection.hold_back(False)
