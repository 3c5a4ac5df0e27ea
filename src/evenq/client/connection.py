"""One TCP connection to a name server or broker: requests out, answers matched by opaque, the peer's requests in."""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
from collections.abc import Awaitable, Callable

from evenq.client.address import Address
from evenq.errors import ConnectError, ProtocolError, RequestTimeout
from evenq.protocol.codes import name_of
from evenq.protocol.command import ONEWAY, Command
from evenq.protocol.frames import DEFAULT_LIMIT, FrameParser

__all__ = ["Connection", "OnRequest"]

log = logging.getLogger(__name__)

# Called with what the peer asks of us (members changed, check a transaction, …). The answer, if any, is sent back.
OnRequest = Callable[["Connection", Command], Awaitable[Command | None]]

_opaque = itertools.count(1)


class Connection(asyncio.Protocol):
    """A connection that was made. It is used until it breaks and never revived: the pool makes a new one.

    Everything written in one turn of the loop leaves in one system call, so that pipelined requests share packets.
    """

    def __init__(self, address: str, on_request: OnRequest | None = None, limit: int = DEFAULT_LIMIT) -> None:
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._on_request = on_request
        self._parser = FrameParser(limit)
        self._transport: asyncio.Transport | None = None
        # opaque -> (who waits, the timer that gives up, the request's name for errors)
        self._waiting: dict[int, tuple[asyncio.Future[Command], asyncio.TimerHandle, int]] = {}
        self._out: list[bytes] = []
        # set while the transport takes more: cleared under back pressure
        self._writable = asyncio.Event()
        self._writable.set()
        self._broken: ConnectError | None = None
        # answers to the peer's requests that are being made; a bare task could be collected before it ends
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        timeout: float,
        on_request: OnRequest | None = None,
        tls: ssl.SSLContext | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> Connection:
        """Connect, or raise ConnectError within ``timeout`` seconds."""
        target = Address.parse(address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: cls(address, on_request, limit), target.host, target.port, ssl=tls
                )
        except TimeoutError:
            raise ConnectError(address, f"not made within {timeout:.3f} s") from None
        except OSError as error:
            raise ConnectError(address, error.strerror or str(error)) from None
        return connection

    @property
    def closed(self) -> bool:
        return self._broken is not None

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    async def request(self, command: Command, timeout: float) -> Command:
        """Send and wait for the answer, whatever its code."""
        if not self._writable.is_set():
            await self._wait_writable(command, timeout)
        return await self.post(command, timeout)

    def post(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        """Send now, give the future of the answer: the pipelined form of :meth:`request`."""
        future: asyncio.Future[Command] = self._loop.create_future()
        if self._broken is not None:
            future.set_exception(ConnectError(self.address, self._broken.reason))
            return future
        opaque = command.opaque = next(_opaque) & 0x7FFFFFFF
        timer = self._loop.call_later(timeout, self._expire, opaque, timeout)
        self._waiting[opaque] = (future, timer, command.code)
        self._write(command.encode())
        return future

    async def send_oneway(self, command: Command) -> None:
        """Send without an answer. Returns when the bytes are on their way, not when they arrived."""
        if self._broken is not None:
            raise ConnectError(self.address, self._broken.reason)
        await self._writable.wait()
        command.opaque = next(_opaque) & 0x7FFFFFFF
        command.flag |= ONEWAY
        self._write(command.encode())

    def close(self, reason: str = "closed by this client") -> None:
        self._fail(ConnectError(self.address, reason))
        if self._transport is not None:
            self._flush()
            self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            commands = self._parser.feed(data)
        except ProtocolError as error:
            log.error("%s sent what is not RocketMQ's protocol, closing: %s", self.address, error)
            self._fail(ConnectError(self.address, f"the peer does not speak RocketMQ's protocol: {error}"))
            assert self._transport is not None
            self._transport.abort()
            return
        for command in commands:
            if command.is_response:
                self._answered(command)
            elif self._on_request is not None:
                task = self._loop.create_task(self._serve(self._on_request, command))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectError(self.address, f"lost: {exc or 'closed by the peer'}"))

    # inside

    def _answered(self, command: Command) -> None:
        waiting = self._waiting.pop(command.opaque, None)
        if waiting is None:
            log.debug("%s answered %d, which nobody waits for any more", self.address, command.opaque)
            return
        future, timer, _ = waiting
        timer.cancel()
        if not future.done():
            future.set_result(command)

    def _expire(self, opaque: int, timeout: float) -> None:
        waiting = self._waiting.pop(opaque, None)
        if waiting is not None and not waiting[0].done():
            waiting[0].set_exception(RequestTimeout(self.address, name_of(waiting[2]), timeout))

    async def _wait_writable(self, command: Command, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._writable.wait()
        except TimeoutError:
            raise RequestTimeout(self.address, name_of(command.code), timeout) from None

    async def _serve(self, on_request: OnRequest, command: Command) -> None:
        answer = await on_request(self, command)
        if answer is not None and not command.is_oneway and self._broken is None:
            self._write(answer.encode())

    def _write(self, frame: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        if self._out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def _fail(self, error: ConnectError) -> None:
        """Once: everybody who waits gets the error, and nobody can wait any more."""
        if self._broken is not None:
            return
        self._broken = error
        self._writable.set()
        for future, timer, _ in self._waiting.values():
            timer.cancel()
            if not future.done():
                future.set_exception(ConnectError(error.address, error.reason))
        self._waiting.clear()
