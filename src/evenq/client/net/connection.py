"""One TCP connection to a name server or broker: requests out, answers matched by opaque, the peer's requests in."""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Protocol

from evenq.errors import ConnectError, ProtocolError, RemoteError, RequestTimeout
from evenq.protocol.address import Address
from evenq.protocol.codes import RequestCode, name_of
from evenq.protocol.command import ONEWAY, RESPONSE, Command
from evenq.protocol.frames import DEFAULT_LIMIT, FrameParser
from evenq.protocol.template import Template

__all__ = ["Connection", "OnRequest", "Sign", "Waiter"]

log = logging.getLogger(__name__)

# Called with what the peer asks of us (members changed, check a transaction, …). The answer, if any, is sent back.
OnRequest = Callable[["Connection", Command], Awaitable[Command | None]]
# Puts a signature into a request before it leaves.
Sign = Callable[[Command], None]
# Hears once of a connection: None when the peer's first message comes, or the error if the peer broke it before that.
OnFirst = Callable[[ConnectError | None], None]

# Requests without an answer after which further ones wait. A broker refuses sends that wait 200 ms for their turn.
WINDOW = 1024
PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
# A connection that gives no byte for so many seconds, although answers are overdue, is closed: a peer that is cut off
# leaves connections behind that look alive until the system gives up on them, a quarter of an hour later.
MAX_SILENCE_S = 3.0
# Bytes that may wait for the network: a window of small messages.
UNSENT = 1024 * 1024

_opaque = itertools.count(1)


class Waiter(Protocol):
    """Who waits for an answer. One of the two is called, once; neither may raise."""

    def answered(self, answer: Command) -> None: ...
    def failed(self, error: RemoteError) -> None: ...


class _FutureWaiter:
    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[Command]) -> None:
        self.future = future

    def answered(self, answer: Command) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def failed(self, error: RemoteError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def _why_not(error: OSError, tls: bool) -> str:
    """Why no connection was made. A peer that ends a TLS handshake leaves an error without words."""
    said = error.strerror or str(error)
    if not tls or (said and not isinstance(error, ssl.SSLError)):
        return said or type(error).__name__
    kind = type(error).__name__
    told = f"{kind}: {said}" if said else kind
    if isinstance(error, ssl.SSLCertVerificationError):
        return told
    return f"{told} in the TLS handshake: check that this port speaks TLS (tls=…), and whether it wants a certificate"


class Connection(asyncio.Protocol):
    """A connection that was made. It is used until it breaks and never revived: the pool makes a new one.

    A request that is alone leaves at once. All others of one turn of the loop leave in one system call, so that
    pipelined requests share packets.
    """

    def __init__(
        self,
        address: str,
        on_request: OnRequest | None = None,
        limit: int = DEFAULT_LIMIT,
        sign: Sign | None = None,
        on_first: OnFirst = lambda error: None,
    ) -> None:
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._on_request = on_request
        self._sign = sign
        self._on_first = on_first
        # whether the peer has said anything yet
        self._heard = False
        self._parser = FrameParser(limit)
        self._transport: asyncio.Transport | None = None
        # how many of those below are pulls: a broker holds them for as long as it likes, and they count for no window
        self._pulls = 0
        # opaque -> who waits, until when, how long in all, and the request's code for errors
        self._waiting: dict[int, tuple[Waiter, float, float, int]] = {}
        # One timer for all of them, at the first deadline. By then most of those it was set for have their answer,
        # so it goes off about once in a timeout, not once for each request.
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_at = inf
        # since when answers are waited for and no byte came, and whether an answer has been overdue since then
        self._silent_since = self._loop.time()
        self._overdue = False
        self._out: list[bytes] = []
        # requests that wait for their turn, and those that have been given it and are about to use it
        self._queue: deque[asyncio.Future[None]] = deque()
        self._granted = 0
        self._paused = False
        self._broken: ConnectError | None = None
        # called with the address when the connection ends, for whatever reason
        self.on_lost: Callable[[str], None] | None = None
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
        sign: Sign | None = None,
        on_first: OnFirst = lambda error: None,
    ) -> Connection:
        """Connect, or raise ConnectError within ``timeout`` seconds."""
        target = Address.parse(address, bare=True)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: cls(address, on_request, limit, sign, on_first), target.host, target.port, ssl=tls
                )
        except TimeoutError:
            raise ConnectError(address, f"not made within {timeout:.3f} s") from None
        except OSError as error:
            raise ConnectError(address, _why_not(error, tls is not None)) from None
        return connection

    @property
    def closed(self) -> bool:
        return self._broken is not None

    @property
    def local_address(self) -> str:
        """Our end of the connection, ``host:port``: how the peer lists us."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return f"{name[0]}:{name[1]}" if name else ""

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    @property
    def ready(self) -> bool:
        """Whether a request would leave at once: the peer keeps up, and nobody waits for a turn."""
        return not self._queue and self._has_room

    @property
    def _has_room(self) -> bool:
        return not self._paused and len(self._waiting) - self._pulls + self._granted < WINDOW

    async def request(self, command: Command, timeout: float) -> Command:
        """Send and wait for the answer, whatever its code."""
        if self.ready:
            return await self.post(command, timeout)
        timeout -= await self._turn(command, timeout)
        try:
            answer = self.post(command, timeout)
        finally:
            # not before: until it is among those without an answer, its place looks free
            self._grant()
        return await answer

    def post(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        """Send now, give the future of the answer: the pipelined form of :meth:`request`."""
        future: asyncio.Future[Command] = self._loop.create_future()
        self.submit(command, timeout, _FutureWaiter(future))
        return future

    def submit(self, command: Command, timeout: float, waiter: Waiter) -> None:
        """Send now, and let ``waiter`` hear what comes of it: the leanest form, without a future."""
        if self._broken is not None:
            waiter.failed(ConnectError(self.address, self._broken.reason))
            return
        now = self._loop.time()
        deadline = now + timeout
        command.opaque = next(_opaque) & 0x7FFFFFFF
        self._write(command)
        self._expect(command.code, 1, now, deadline)
        self._waiting[command.opaque] = (waiter, deadline, timeout, command.code)

    def submit_alike(self, template: Template, asked: Sequence[tuple[tuple[int, ...], Waiter]], timeout: float) -> None:
        """The same for many requests that are alike but for some numbers."""
        if self._broken is not None or self._sign is not None:
            for values, waiter in asked:
                self.submit(template.command(*values), timeout, waiter)
            return
        numbered = [(next(_opaque) & 0x7FFFFFFF, values, waiter) for values, waiter in asked]
        self._put(template.frames([(*values, opaque) for opaque, values, _ in numbered]))
        code, now = template.code, self._loop.time()
        deadline = now + timeout
        self._expect(code, len(asked), now, deadline)
        self._waiting.update({opaque: (waiter, deadline, timeout, code) for opaque, _, waiter in numbered})

    async def send_oneway(self, command: Command, timeout: float = 3.0) -> None:
        """Send without an answer. Returns when the bytes are on their way, not when they arrived."""
        if not self.ready:
            await self._turn(command, timeout)
            # a request without an answer does not keep its place
            self._grant()
        if self._broken is not None:
            raise ConnectError(self.address, self._broken.reason)
        command.opaque = next(_opaque) & 0x7FFFFFFF
        command.flag |= ONEWAY
        self._write(command)

    def close(self, reason: str = "closed by this client") -> None:
        self._fail(ConnectError(self.address, reason))
        if self._transport is not None:
            self._flush()
            self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=UNSENT)

    def data_received(self, data: bytes) -> None:
        self._silent_since, self._overdue = self._loop.time(), False
        try:
            commands = self._parser.feed(data)
        except ProtocolError as error:
            log.error("%s sent what is not RocketMQ's protocol, closing: %s", self.address, error)
            self._broken_by_peer(f"the peer does not speak RocketMQ's protocol: {error}")
            assert self._transport is not None
            self._transport.abort()
            return
        if commands and not self._heard:
            self._heard = True
            self._on_first(None)
        for command in commands:
            if command.flag & RESPONSE:
                self._answered(command)
            elif self._on_request is not None:
                task = self._loop.create_task(self._serve(self._on_request, command))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
        if self._queue:
            self._grant()

    def pause_writing(self) -> None:
        self._paused = True
        if not self._waiting and not self._overdue:
            # the peer takes no more: silence counts from now on, also where no answer is waited for
            self._silent_since = self._loop.time()

    def resume_writing(self) -> None:
        self._paused = False
        self._silent_since, self._overdue = self._loop.time(), False
        self._grant()

    def connection_lost(self, exc: Exception | None) -> None:
        self._broken_by_peer(f"lost: {exc or 'closed by the peer'}")

    # inside

    def _answered(self, command: Command) -> None:
        waiting = self._waiting.pop(command.opaque, None)
        if waiting is None:
            log.debug("%s answered %d, which nobody waits for any more", self.address, command.opaque)
        else:
            self._pulls -= waiting[3] in PULLS
            try:
                waiting[0].answered(command)
            except Exception:
                # one answer that nobody can use must not end the connection of all the others
                log.exception("an answer of %s to %s could not be used", self.address, name_of(waiting[3]))

    def _expect(self, code: int, count: int, now: float, deadline: float) -> None:
        """So many more answers are waited for, from now on."""
        if not self._waiting and not self._overdue:
            self._silent_since = now
        if code in PULLS:
            self._pulls += count
        if deadline < self._sweep_at:
            self._sweep_by(deadline)

    def _sweep_by(self, deadline: float) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweep_at = deadline
        self._sweeper = self._loop.call_at(deadline, self._sweep)

    def _sweep(self) -> None:
        """Give up what is overdue, and look again at the next deadline."""
        self._sweeper, self._sweep_at = None, inf
        now = self._loop.time()
        overdue = [opaque for opaque, (_, deadline, _, _) in self._waiting.items() if deadline <= now]
        longest = max((timeout for _, _, timeout, _ in self._waiting.values()), default=0.0)
        gone = [self._waiting.pop(opaque) for opaque in overdue]
        if self._waiting:
            self._sweep_by(min(deadline for _, deadline, _, _ in self._waiting.values()))
        self._pulls -= sum(code in PULLS for *_, code in gone)
        self._grant()
        for waiter, _, timeout, code in gone:
            waiter.failed(RequestTimeout(self.address, name_of(code), timeout))
        if overdue:
            self._close_if_silent(now, longest)

    def _close_if_silent(self, now: float, longest: float) -> None:
        """An answer is overdue: close the connection if not a byte came for as long as any request may take."""
        self._overdue = True
        silence = now - self._silent_since
        if silence >= max(longest, MAX_SILENCE_S) and self._broken is None:
            reason = f"silent for {silence:.1f} s while answers were overdue"
            log.warning("the connection to %s is closed: %s", self.address, reason)
            self._fail(ConnectError(self.address, reason))
            if self._transport is not None:
                # not close(): that would wait until the peer has taken what is not sent yet
                self._transport.abort()

    async def _turn(self, command: Command, timeout: float) -> float:
        """Wait for room, in the order of asking; gives the seconds that it took. Who gets it uses it at once, and then
        lets the others have what room is left."""
        began = self._loop.time()
        turn: asyncio.Future[None] = self._loop.create_future()
        self._queue.append(turn)
        try:
            async with asyncio.timeout(timeout):
                await turn
        except TimeoutError:
            if self._paused:
                self._close_if_silent(self._loop.time(), timeout)
            self._pass_on(turn)
            raise RequestTimeout(self.address, name_of(command.code), timeout) from None
        except asyncio.CancelledError:
            self._pass_on(turn)
            raise
        self._granted -= 1
        return self._loop.time() - began

    def _pass_on(self, turn: asyncio.Future[None]) -> None:
        """A turn that was given up, maybe just after it was given, is the next one's."""
        self._granted -= not turn.cancelled()
        self._grant()

    def _grant(self) -> None:
        """Give turns to those who wait for one, as far as there is room."""
        while self._queue and self._has_room:
            self._give(self._queue.popleft())

    def _give(self, turn: asyncio.Future[None]) -> None:
        if not turn.done():
            self._granted += 1
            turn.set_result(None)

    async def _serve(self, on_request: OnRequest, command: Command) -> None:
        answer = await on_request(self, command)
        if answer is not None and not command.is_oneway and self._broken is None:
            self._put(*answer.parts())

    def _write(self, command: Command) -> None:
        if self._sign is not None:
            self._sign(command)
        self._put(*command.parts())

    def _put(self, *pieces: bytes) -> None:
        if not self._out:
            if not self._waiting and self._transport is not None:
                # alone: nothing to wait for
                self._transport.write(b"".join(pieces))
                return
            self._loop.call_soon(self._flush)
        self._out += pieces

    def _flush(self) -> None:
        if self._out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def _broken_by_peer(self, reason: str) -> None:
        error = ConnectError(self.address, reason)
        if self._broken is None and not self._heard:
            self._heard = True
            self._on_first(error)
        self._fail(error)

    def _fail(self, error: ConnectError) -> None:
        """Once: everybody who waits gets the error, and nobody can wait any more."""
        if self._broken is not None:
            return
        self._broken = error
        if self._sweeper is not None:
            self._sweeper.cancel()
        waiting, self._waiting = self._waiting, {}
        # whoever waits for a turn gets it, to find the connection broken
        self._paused = False
        while self._queue:
            self._give(self._queue.popleft())
        for waiter, *_ in waiting.values():
            waiter.failed(ConnectError(error.address, error.reason))
        if self.on_lost is not None:
            self.on_lost(self.address)
