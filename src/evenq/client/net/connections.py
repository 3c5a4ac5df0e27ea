"""The connections of one client: one per address, shared, made on first use, made anew after they broke."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from functools import partial

from evenq.client.net.connection import Connection, OnRequest, Sign
from evenq.errors import ConnectError, StateError
from evenq.protocol.codes import name_of
from evenq.protocol.command import Command

__all__ = ["Connections"]

# After a failure the next try waits a little longer each time; a request that comes earlier fails at once,
# so that a dead broker costs its callers nothing.
FIRST_BACKOFF = 0.05
LAST_BACKOFF = 1.0


class _Backoff:
    """When an address that could not be reached may be tried again."""

    __slots__ = ("error", "step", "tries", "until")

    def __init__(self) -> None:
        self.tries = 0
        self.step = 0.0
        self.until = 0.0
        self.error: ConnectError | None = None

    def failed(self, error: ConnectError, now: float) -> None:
        self.tries += 1
        self.step = min(LAST_BACKOFF, self.step * 2 or FIRST_BACKOFF)
        self.until = now + self.step
        self.error = error


class Connections:
    """A pool with one connection per address. Many callers that want the same new one share a single try."""

    def __init__(
        self,
        on_request: OnRequest | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        sign: Sign | None = None,
        connect_timeout: float = 3.0,
        on_open: Callable[[str], None] = lambda address: None,
        on_lost: Callable[[str], None] = lambda address: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_request = on_request
        self._tls = tls
        self._sign = sign
        self._connect_timeout = connect_timeout
        self._on_open = on_open
        self._on_lost = on_lost
        self._clock = clock
        self._open: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        self._backoff: dict[str, _Backoff] = {}
        self._closed = False

    async def get(self, address: str) -> Connection:
        connection = self._open.get(address)
        if connection is not None and not connection.closed:
            return connection
        if self._closed:
            raise StateError("this client is closed: make a new one")
        backoff = self._backoff.get(address)
        if backoff is not None and backoff.error is not None and self._clock() < backoff.until:
            raise ConnectError(address, backoff.error.reason)
        task = self._opening.get(address)
        if task is None:
            task = asyncio.create_task(self._connect(address))
            self._opening[address] = task
            task.add_done_callback(partial(self._opened, address))
        # a caller that gives up must not take the connection from the others who wait for it
        await asyncio.wait([task])
        if task.cancelled():
            raise StateError(f"this client was closed while it connected to {address}")
        return task.result()

    def live(self, address: str) -> Connection | None:
        """The connection to ``address`` if there is a working one now."""
        connection = self._open.get(address)
        return None if connection is None or connection.closed else connection

    @property
    def tries(self) -> dict[str, int]:
        """Failed tries in a row of addresses that have not answered since."""
        return {address: backoff.tries for address, backoff in self._backoff.items()}

    async def request(self, address: str, command: Command, timeout: float) -> Command:
        """Connect where needed, send, wait for the answer: all within ``timeout`` seconds."""
        connection = self.live(address)
        if connection is None:
            began = self._clock()
            try:
                async with asyncio.timeout(timeout):
                    connection = await self.get(address)
            except TimeoutError:
                raise ConnectError(address, f"not made within {timeout:.3f} s for {name_of(command.code)}") from None
            timeout -= self._clock() - began
        return await connection.request(command, timeout)

    def close(self) -> None:
        self._closed = True
        for task in self._opening.values():
            task.cancel()
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    async def _connect(self, address: str) -> Connection:
        try:
            connection = await Connection.open(
                address,
                timeout=self._connect_timeout,
                on_request=self._on_request,
                on_first=partial(self._heard, address),
                tls=self._tls,
                sign=self._sign,
            )
        except ConnectError as error:
            self._heard(address, error)
            raise
        self._open[address] = connection
        connection.on_lost = self._on_lost
        self._on_open(address)
        return connection

    def _heard(self, address: str, error: ConnectError | None) -> None:
        """A peer has spoken, or could not be reached; one that hangs up without a word counts as not reached."""
        if error is None:
            self._backoff.pop(address, None)
        else:
            self._backoff.setdefault(address, _Backoff()).failed(error, self._clock())

    def _opened(self, address: str, task: asyncio.Task[Connection]) -> None:
        del self._opening[address]
        # asked for, so that nobody complains where whoever waited has given up
        _ = task.cancelled() or task.exception()
