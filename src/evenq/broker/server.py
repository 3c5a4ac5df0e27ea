"""The shell that name server and broker share: connections, dispatch by request code, back pressure.

A handler is a plain function from a request and its connection to the answer; None means that the answer comes later
(or never, for a one-way request). One that takes long gives a generator, which yields now and then and returns the
answer: it goes on between other requests, one such piece in each round of the loop. No task is made per request: the
requests of one read are handled in a row as one :class:`Turn`, which is stored as a whole (the broker writes its log
there), then their answers leave in one write.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sized
from typing import Protocol, cast

from evenq.broker.faults import Fault, Faults
from evenq.broker.limits import Limits
from evenq.broker.partials import PartialRequests
from evenq.errors import ConnectError, EvenqError, ProtocolError, RequestTimeout, StateError
from evenq.protocol.codes import ResponseCode, name_of
from evenq.protocol.command import ONEWAY, Command
from evenq.protocol.frames import Frame, FrameParser
from evenq.supervision import Supervisor

__all__ = [
    "READ_FIRST",
    "Connection",
    "Handler",
    "Owed",
    "Pieces",
    "Postponed",
    "Refusal",
    "Server",
    "Turn",
    "cannot_store",
]

log = logging.getLogger(__name__)

# Answers are gathered up to here before they are written: it bounds what one read of many requests can make.
_WRITE_AT = 256 * 1024
# what an answer takes beside its body, about
_USUAL_HEADER = 300

# how long a server that stops waits for peers to take what was written for them
_LAST_ANSWERS = 1.0

# Connections over the limit are told so with their first request, if that comes soon and they are not too many.
_TOLD_SECONDS = 3.0
_TOLD = 100

# What a peer is told that asked for much and does not read it.
READ_FIRST = "system busy: read the answers that are there, then ask again"

# How many connections wait to be accepted, and how many are accepted in one round of the loop.
_BACKLOG = 1024
_ACCEPTED_AT_ONCE = 8

# Rounds that take no longer count as one: to see the end of each would cost more than the requests.
_SHORT_ROUND_S = 0.0002
# A connection whose last turn took no longer is served at once, also while others have more to do.
_LIGHT_TURN_S = 0.0003

# Idle connections are looked for so often, or more often where less time is allowed.
_LOOK_EVERY_S = 1.0
# Who connects again and again, though there are too many connections, must not fill the log.
_REFUSALS_LOGGED_EVERY_S = 10.0
# What clients have not read is counted anew at most so often: one that asks for much must not wait for the counting.
_COUNT_EVERY_S = 0.01


class Turn(Protocol):
    """What the requests of one read do together: it is stored as a whole before any of them is answered."""

    @property
    def staged(self) -> Sized:
        """What is to be stored. It grows with each request that depends on it."""
        ...

    def rollback(self, savepoint: int) -> None:
        """Forget what was staged since there was so much of it."""
        ...

    def commit(self) -> None:
        """Store what is staged, or forget it and raise an :exc:`OSError`."""
        ...


class _StoresNothing:
    """The turns of a server whose requests store nothing."""

    staged: Sized = ()

    def rollback(self, savepoint: int) -> None: ...

    def commit(self) -> None: ...


class Refusal(EvenqError):
    """What a handler raises to answer with an error code; ``remark`` tells the peer why, and what it can do."""

    def __init__(self, code: int, remark: str) -> None:
        self.code = code
        self.remark = remark
        super().__init__(remark)


class Postponed(Exception):
    """What a handler raises that needs something first, which is made in ``pieces``: then the request is handled again.
    Those that came after it over the same connection wait."""

    def __init__(self, pieces: Iterator[None]) -> None:
        self.pieces = pieces
        super().__init__("something must be made first")


class Connection(asyncio.Protocol):
    """One peer. Requests are answered in order, except those whose handler answers later."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.address = "?"
        # answers that its handlers still owe, or that wait for a message
        self.pending = 0
        self._parser = FrameParser(server.limits.max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._paused = False
        # not read from, because too much of incomplete requests is held for all connections
        self._held_back = False
        # over the limit: told so, not served
        self._turned_away = False
        # requests that came while the peer did not read its answers, or that must let others go first
        self._todo: deque[_Request] = deque()
        # what the first of them needs
        self._first: Iterator[None] | None = None
        # how long the last turn took
        self._last_turn_s = 0.0
        # the peer sends no more, though it may still read
        self.ended = False
        self._asked: dict[int, asyncio.Future[Command]] = {}
        # when the last complete request came, and the first byte of one that is not complete
        self._heard = server.now()
        self._partial_since: float | None = None
        # since when it is not read from
        self._stopped_at: float | None = None
        # how many bytes the peer had not read when it was looked at last
        self._unsent_before = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        # a link-local address ends with the name of an interface, which no record can hold
        host = host.partition("%")[0]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.address = f"[{host}]:{port}" if family is socket.AF_INET6 else f"{host}:{port}"
        transport.set_write_buffer_limits(high=self.server.limits.max_unsent_bytes)
        self.server.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._todo.clear()
        self._first = None
        for future in self._asked.values():
            if not future.done():
                future.set_exception(ConnectError(self.address, "it was closed before the answer came"))
        self._asked.clear()
        self.server.closed(self)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_slow(self) -> bool:
        """Whether the peer does not read what is written for it."""
        return self._paused

    def data_received(self, data: bytes) -> None:
        before = self._parser.buffered
        try:
            frames = self._parser.cut(data)
        except ProtocolError as error:
            self._misbehaved(error)
            return
        if frames:
            self._heard = self.server.now()
        if before or self._parser.buffered:
            if frames or not before:
                self._partial_since = self.server.now() if self._parser.buffered else None
            self.server.partials.changed(self, completed=bool(frames))
        self.serve([(frame, None) for frame in frames])
        if self._turned_away and frames:
            self.finish()

    def _misbehaved(self, error: ProtocolError) -> None:
        log.warning("%s: closing %s, which sent %s", self.server.name, self.address, error)
        self.close()

    def eof_received(self) -> bool:
        """The peer sends no more. It may have left, or still read: what it asked for before is answered, but it is no
        member of a group any more, and its pulls do not wait."""
        self.ended = True
        self._partial_since = self._stopped_at = None
        if self._is_owed:
            self.server.ended(self)
        return self._is_owed

    @property
    def _is_owed(self) -> bool:
        """Whether answers are missing. Those that are written leave before the connection is closed."""
        return bool(self.pending or self._todo)

    def _finish_if_ended(self) -> None:
        if self.ended and not self._is_owed:
            self.finish()

    def turn_away(self) -> None:
        """Refuse whatever the peer asks, and end the connection then, or soon."""
        self._turned_away = True
        asyncio.get_running_loop().call_later(_TOLD_SECONDS, self.close)

    @property
    def unsent(self) -> int:
        """How many bytes are held for the peer."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def partial(self) -> int:
        """How many bytes are there of a request that is not complete."""
        return self._parser.buffered

    @property
    def needed(self) -> int:
        """How many bytes that request has, as far as is known."""
        return self._parser.needed

    def overdue(self, now: float) -> str | None:
        """Why the connection is to be closed, if it is."""
        limits = self.server.limits
        if self._stopped_at is not None and not self._paused:
            return None
        if not self._paused and self._partial_since is not None:
            if now - self._partial_since > limits.partial_frame_timeout_s:
                return f"its request was not complete after {limits.partial_frame_timeout_s:g} s"
        elif now - self._heard > limits.idle_timeout_s and not self.pending:
            if self.unsent == self._unsent_before:
                return f"it sent no request for {limits.idle_timeout_s:g} s"
            # it reads, if slowly
            self._heard = now
        self._unsent_before = self.unsent
        return None

    def wait(self) -> None:
        """An answer to the peer comes later; :meth:`done` says that it has come."""
        self.pending += 1

    def done(self) -> None:
        self.pending -= 1
        self._heard = self.server.now()
        if self.ended:
            asyncio.get_running_loop().call_soon(self._finish_if_ended)

    def hold_back(self, held_back: bool) -> None:
        """Read no more from the peer, or read on."""
        self._held_back = held_back
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self._transport is None or self.ended:
            return
        if self._paused or self._todo or self._held_back:
            self._transport.pause_reading()
            if self._stopped_at is None:
                self._stopped_at = self.server.now()
        elif self._stopped_at is not None:
            if self._partial_since is not None:
                # the rest could not come
                self._partial_since += self.server.now() - self._stopped_at
            self._stopped_at = None
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._paused = True
        self.server.slow.add(self)
        self._read_or_not()

    def resume_writing(self) -> None:
        self._paused = False
        self.server.slow.discard(self)
        if self._todo:
            self.server.wait_for_turn(self)
        self._read_or_not()
        self._finish_if_ended()

    def serve(self, requests: Iterable[_Request]) -> None:
        """Handle requests with the handler named for each, or that of the server, and write their answers. After a
        while the rest of them waits until other connections had their turn; all of them, where the connection needed
        long the last time, and others in this round of the loop."""
        waits = bool(self._todo)
        self._todo.extend(requests)
        if self._todo and not waits:
            if self._last_turn_s > _LIGHT_TURN_S and self.server.is_round_over:
                self.server.wait_for_turn(self)
                self._read_or_not()
            else:
                self.take_turn()

    def take_turn(self) -> None:
        """Handle requests until this round of the loop has taken long enough, but one at least."""
        answers: list[_Answer] = []
        size = 0
        server, todo = self.server, self._todo
        began = now = server.now()
        end = began + server.limits.loop_budget_s - server.round_took_s
        while todo and not self._paused:
            if self._first is None:
                answer = self._handle(*todo.popleft())
                if answer is not None:
                    answers.append(answer)
                    size += _USUAL_HEADER + len(answer[1].body)
                    if size > _WRITE_AT:
                        self._write(answers)
                        answers, size = [], 0
                        if not self.is_open:
                            todo.clear()
            else:
                self._make_first(self._first)
            now = server.now()
            if now > end:
                break
        self._write(answers)
        self._last_turn_s = now - began
        server.took(self._last_turn_s)
        if todo and not self._paused:
            server.wait_for_turn(self)
        if todo or self._stopped_at is not None:
            self._read_or_not()
        if self.ended:
            self._finish_if_ended()

    def _handle(self, request: Frame | Command, handler: Handler | None) -> _Answer | None:
        if isinstance(request, tuple):
            try:
                request = Command.decode_at(*request)
            except ProtocolError as error:
                self._todo.clear()
                self._misbehaved(error)
                return None
        if handler is None:
            handler = self.server.busy(request.code) if self._turned_away else self.server.find(request.code)
        staged = self.server.turn.staged
        before = len(staged)
        try:
            answer = self._answer(request, handler, before)
        except Postponed as postponed:
            self._todo.appendleft((request, handler))
            self._first = postponed.pieces
            return None
        return None if answer is None else (request, answer, len(staged) > before)

    def _make_first(self, pieces: Iterator[None]) -> None:
        """Make a piece of what the next request needs; if that fails, so does the request."""
        try:
            next(pieces)
            return
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the peer must get an answer
            self._todo[0] = self._todo[0][0], _failing(error)
        self._first = None

    def _answer(self, request: Command, handler: Handler, savepoint: int) -> Command | None:
        if request.flag & 1:
            self._take_answer(request)
            return None
        faults = self.server.faults
        if faults:
            fault = faults.take(request)
            if fault is not None:
                return self._suffer(request, handler, fault)
        answer = self.server.call(handler, request, self, savepoint)
        return None if request.flag & ONEWAY else answer

    def _write(self, answers: list[_Answer]) -> None:
        """Store what this turn has staged, and let the answers leave. If it cannot be stored, those that depend on it
        become errors."""
        try:
            self.server.turn.commit()
        except OSError as error:
            log.error("%s: what %s sent cannot be stored: %s", self.server.name, self.address, error)
            answers = [
                (request, cannot_store(request, error) if depends else answer, depends)
                for request, answer, depends in answers
            ]
        if answers:
            self.send(*[answer for _, answer, _ in answers])

    def send(self, *commands: Command) -> None:
        """Send answers that their handlers left for later, or one-way requests."""
        if self._transport is not None:
            data = b"".join([part for command in commands for part in command.parts()])
            self._transport.write(data)
            if self._transport.get_write_buffer_size():
                self.server.left_unsent(self, len(data))

    def notify(self, command: Command) -> None:
        """Send a request that wants no answer; a peer that does not read gets none, as they would only pile up."""
        command.flag |= ONEWAY
        command.opaque = next(self.server.opaques)
        if not self._paused:
            self.send(command)

    async def ask(self, command: Command, timeout: float) -> Command:
        """Send a request to the peer and wait for its answer. A peer that does not answer, or does not read, is not
        asked more and more: that is a :class:`Refusal`."""
        reason = None
        if self._paused:
            reason = "does not read what is sent to it"
        elif len(self._asked) >= self.server.limits.max_peer_requests:
            reason = f"has not answered {len(self._asked)} requests"
        if reason:
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"system busy: {self.address} {reason}; try again later")
        self.server.check_room()
        command.opaque = next(self.server.opaques)
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._asked[command.opaque] = future
        try:
            self.send(command)
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise RequestTimeout(self.address, name_of(command.code), timeout) from None
        finally:
            self._asked.pop(command.opaque, None)

    def _take_answer(self, answer: Command) -> None:
        future = self._asked.get(answer.opaque)
        if future is not None and not future.done():
            future.set_result(answer)

    def _suffer(self, request: Command, handler: Handler, fault: Fault) -> Command | None:
        if fault.delay:
            asyncio.get_running_loop().call_later(fault.delay, self._suffer_late, request, handler, fault)
            return None
        return self._suffer_now(request, handler, fault)

    def _suffer_late(self, request: Command, handler: Handler, fault: Fault) -> None:
        before = len(self.server.turn.staged)
        answer = self._suffer_now(request, handler, fault)
        depends = len(self.server.turn.staged) > before
        self._write([] if answer is None else [(request, answer, depends)])

    def _suffer_now(self, request: Command, handler: Handler, fault: Fault) -> Command | None:
        if fault.close:
            self.close()
        elif fault.error is not None:
            return request.reply(fault.error, remark=fault.remark)
        elif not fault.drop:
            reply = self.server.call_at_once(handler, request, self, len(self.server.turn.staged))
            if reply is not None and not fault.mute and not request.is_oneway:
                return reply
        return None

    def finish(self) -> None:
        """Close the connection when what was written has left."""
        if self._transport is not None:
            self._transport.close()

    def close(self) -> None:
        """Break the connection; what was not sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def __repr__(self) -> str:
        return f"Connection({self.address})"


# The rest of a long answer. It stores nothing.
Pieces = Generator[None, None, Command]
Handler = Callable[[Command, Connection], Command | Pieces | None]

# A request, as it came or decoded, and its handler, if that is not the server's for its code.
_Request = tuple[Frame | Command, Handler | None]
# A request, its answer, and whether that holds only if the turn is stored.
_Answer = tuple[Command, Command, bool]


def _failing(error: Exception) -> Handler:
    """A handler that fails."""

    def fail(request: Command, connection: Connection) -> Command:
        raise error

    return fail


def cannot_store(request: Command, error: OSError) -> Command:
    """The answer to a request of which nothing could be stored."""
    remark = f"the broker cannot store anything now: {error.strerror or error}"
    return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark)


class Owed:
    """How many answers each connection waits for. More than the limit are refused."""

    def __init__(self) -> None:
        self._counts: Counter[Connection] = Counter()

    def check(self, connection: Connection, what: str = "requests") -> None:
        limit = connection.server.limits.max_peer_requests
        if self._counts[connection] >= limit:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"system busy: {limit} {what} of {connection.address} wait for their answers; try again later",
            )

    def begin(self, connection: Connection) -> None:
        self._counts[connection] += 1
        connection.wait()

    def end(self, connection: Connection) -> None:
        self._counts[connection] -= 1
        if not self._counts[connection]:
            del self._counts[connection]
        connection.done()


class Server:
    """Listens, keeps its connections, knows the handler of each request code."""

    def __init__(
        self,
        name: str,
        *,
        turn: Turn | None = None,
        on_close: Callable[[Connection], None] = lambda connection: None,
        limits: Limits | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.now = now
        self.limits = limits or Limits()
        self.faults = Faults()
        self.turn: Turn = turn or _StoresNothing()
        self.connections: set[Connection] = set()
        # those whose peers do not read what is written for them
        self.slow: set[Connection] = set()
        # those that had not read everything when something was written for them
        self._unsent: set[Connection] = set()
        # no less than what all of them have not read, and when it was counted last
        self._unsent_bytes = 0
        self._counted_at = float("-inf")
        self.partials = PartialRequests(self.limits.max_buffered_frame_bytes)
        # connections with requests that had to let others go first, in turn
        self._waiting: dict[Connection, None] = {}
        # how long requests were handled in this round of the loop
        self.round_took_s = 0.0
        self._round_ends = False
        # answers that are worked on in pieces
        self._long: deque[tuple[Pieces, Command, Connection]] = deque()
        self._owed = Owed()
        # connections that were refused because there were too many, and when that was logged last
        self._refused = 0
        self._refusal_logged_at = float("-inf")
        # connections that were closed because they were idle
        self.timed_out = 0
        self._housekeeping: asyncio.Task[None] | None = None
        self.opaques = itertools.count(1)
        self._handlers: Mapping[int, Handler] = {}
        self._on_close = on_close
        self._socket: socket.socket | None = None
        # set while there are no connections
        self._idle = asyncio.Event()
        self._idle.set()
        self._listener: asyncio.Server | None = None

    def bind(self, host: str, port: int) -> str:
        """Take the port (a free one for 0) without listening yet; the address that clients will find it at.

        A host's name is looked up: messages and their ids hold numbers only.
        """
        family, host = self._look_up(host)
        # asyncio lets answers leave at once only on sockets that say that they are TCP's
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            reason = error.strerror or str(error)
            raise StateError(
                f"the {self.name} cannot listen on {host}:{port}: {reason}; "
                f"stop what listens there, or give another port"
            ) from None
        taken = self._socket.getsockname()[1]
        return f"[{host}]:{taken}" if family is socket.AF_INET6 else f"{host}:{taken}"

    def _look_up(self, host: str) -> tuple[socket.AddressFamily, str]:
        """The address of a host, of the fourth version where it has both."""
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise StateError(
                f"the {self.name} cannot listen on {host!r}: {error.strerror or error}; give an address or name of "
                f"this machine"
            ) from None
        family, _, _, _, address = min(found, key=lambda entry: entry[0] is not socket.AF_INET)
        return family, str(address[0])

    async def start(self, handlers: Mapping[int, Handler]) -> None:
        """Listen on the port that was taken, and answer by ``handlers``."""
        assert self._socket is not None, "bind first"
        self._handlers = handlers
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self), sock=self._socket, backlog=_ACCEPTED_AT_ONCE
        )
        # asyncio accepts in one round as many as may wait: here more may wait
        self._socket.listen(_BACKLOG)
        self._housekeeping = asyncio.create_task(Supervisor(f"housekeeping of {self.name}").repeat(self._keep_house))

    async def _keep_house(self) -> None:
        allowed = min(self.limits.idle_timeout_s, self.limits.partial_frame_timeout_s)
        await asyncio.sleep(min(_LOOK_EVERY_S, allowed / 4))
        self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that had nothing to say for too long."""
        now = self.now()
        for connection in list(self.connections):
            reason = connection.overdue(now)
            if reason is not None:
                self.timed_out += 1
                log.info("%s: closing %s: %s (%d so far)", self.name, connection.address, reason, self.timed_out)
                connection.close()

    async def stop(self) -> None:
        """Stop listening and close all connections; a peer that does not take its last answers loses them."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        if self._listener is not None:
            self._listener.close()
        elif self._socket is not None:
            self._socket.close()
        for connection in list(self.connections):
            connection.finish()
        try:
            async with asyncio.timeout(_LAST_ANSWERS):
                await self._idle.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.close()
            await self._idle.wait()
        if self._listener is not None:
            await self._listener.wait_closed()

    def find(self, code: int) -> Handler:
        return self._handlers.get(code, self._refuse)

    def busy(self, code: int) -> Handler:
        """The handler for connections that are over the limit."""
        return self._refuse_busy

    def check_room(self) -> None:
        """Refuse a request for much, while too much is held for peers that do not read what they asked for."""
        if self._unsent_bytes <= self.limits.max_unsent_total_bytes:
            return
        now = self.now()
        if now - self._counted_at >= _COUNT_EVERY_S:
            self._counted_at = now
            self._unsent = {connection for connection in self._unsent if connection.unsent}
            self._unsent_bytes = sum(connection.unsent for connection in self._unsent)
        if self._unsent_bytes > self.limits.max_unsent_total_bytes:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"system busy: more than {self.limits.max_unsent_total_bytes} bytes wait for {len(self._unsent)} "
                f"clients to read them; try again later",
            )

    def left_unsent(self, connection: Connection, written: int) -> None:
        """A peer did not take at once what was written for it."""
        self._unsent.add(connection)
        self._unsent_bytes += written

    def took(self, seconds: float) -> None:
        """Requests of one connection were handled for so long in this round of the loop."""
        self.round_took_s += seconds
        if self.round_took_s > _SHORT_ROUND_S and not self._round_ends:
            self._round_ends = True
            asyncio.get_running_loop().call_soon(self._end_round)

    @property
    def is_round_over(self) -> bool:
        """Whether requests were handled for long enough in this round of the loop: only who asks for little goes on."""
        return self.round_took_s > self.limits.loop_budget_s

    def _end_round(self) -> None:
        self.round_took_s = 0.0
        self._round_ends = False

    def wait_for_turn(self, connection: Connection) -> None:
        """The connection has requests left. In each round of the loop one such connection goes on."""
        self._waiting[connection] = None
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        connection = next(iter(self._waiting))
        del self._waiting[connection]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next_turn)
        connection.take_turn()

    def call(self, handler: Handler, request: Command, connection: Connection, savepoint: int) -> Command | None:
        """The handler's answer; if it fails, the answer that says so, and nothing is stored of what was staged since
        ``savepoint``."""
        try:
            answer = handler(request, connection)
            if answer is None or isinstance(answer, Command):
                return answer
            return self._begin(answer, request, connection)
        except Postponed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the peer must get an answer
            self.turn.rollback(savepoint)
            return self._failed(error, request, connection)

    def call_at_once(
        self, handler: Handler, request: Command, connection: Connection, savepoint: int
    ) -> Command | None:
        """The same, with what the request needs first."""
        try:
            return self.call(handler, request, connection, savepoint)
        except Postponed as postponed:
            try:
                deque(postponed.pieces, maxlen=0)
            except Exception as error:  # noqa: BLE001 - whatever it is, the peer must get an answer
                return self._failed(error, request, connection)
            return self.call(handler, request, connection, savepoint)

    def _begin(self, pieces: Pieces, request: Command, connection: Connection) -> Command | None:
        """The first piece of a long answer, which may be all of it."""
        self._owed.check(connection, "long requests")
        try:
            next(pieces)
        except StopIteration as end:
            return cast(Command, end.value)
        self._owed.begin(connection)
        self._long.append((pieces, request, connection))
        if len(self._long) == 1:
            asyncio.get_running_loop().call_soon(self._go_on)
        return None

    def _go_on(self) -> None:
        """The next piece of one long answer."""
        pieces, request, connection = self._long[0]
        answer: Command | None = None
        if connection.is_open:
            try:
                next(pieces)
            except StopIteration as end:
                answer = end.value
            except Exception as error:  # noqa: BLE001 - whatever it is, the peer must get an answer
                answer = self._failed(error, request, connection)
            else:
                # the others first
                self._long.rotate(-1)
                asyncio.get_running_loop().call_soon(self._go_on)
                return
        pieces.close()
        self._long.popleft()
        if self._long:
            asyncio.get_running_loop().call_soon(self._go_on)
        self._owed.end(connection)
        if answer is not None and not request.is_oneway:
            if connection.is_slow and answer.body:
                answer = request.reply(ResponseCode.SYSTEM_BUSY, remark=READ_FIRST)
            connection.send(answer)

    def _failed(self, error: Exception, request: Command, connection: Connection) -> Command:
        if isinstance(error, Refusal):
            return request.reply(error.code, remark=error.remark)
        what = f"{self.name}: {name_of(request.code)} of {connection.address}"
        if isinstance(error, OSError):
            log.error("%s: %s", what, error)
            return cannot_store(request, error)
        if isinstance(error, EvenqError):
            log.warning("%s: %s", what, error)
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
        log.error("%s failed", what, exc_info=error)
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def _refuse(self, request: Command, connection: Connection) -> Command:
        known = name_of(request.code)
        log.info("%s: %s asked for %s, which is not supported", self.name, connection.address, known)
        return request.reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            remark=f"request code {request.code} ({known}) is not supported by this {self.name}",
        )

    def _refuse_busy(self, request: Command, connection: Connection) -> Command:
        return request.reply(
            ResponseCode.SYSTEM_BUSY,
            remark=f"system busy: this {self.name} has {self.limits.max_connections} connections and takes no more",
        )

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        self._idle.clear()
        over = len(self.connections) - self.limits.max_connections
        if over > 0:
            self._refused += 1
            now = self.now()
            if now - self._refusal_logged_at >= _REFUSALS_LOGGED_EVERY_S:
                self._refusal_logged_at = now
                log.warning(
                    "%s: refusing %s, there are %d connections already (%d refused so far)",
                    self.name,
                    connection.address,
                    self.limits.max_connections,
                    self._refused,
                )
            if over > _TOLD:
                connection.close()
            else:
                connection.turn_away()

    def ended(self, connection: Connection) -> None:
        """The peer sends no more, and waits for answers."""
        self._on_close(connection)

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.slow.discard(connection)
        self._unsent.discard(connection)
        self.partials.forget(connection)
        if not self.connections:
            self._idle.set()
        self._on_close(connection)
