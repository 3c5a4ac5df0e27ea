"""The shell that name server and broker share: connections, dispatch by request code, back pressure.

A handler is a plain function from a request and its connection to the answer; None means that the answer comes later
(or never, for a one-way request). No task is made per request: the requests of one read are handled in a row as one
:class:`Turn`, which is stored as a whole (the broker writes its log there), then their answers leave in one write.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Protocol

from evenq.broker.faults import Fault, Faults
from evenq.errors import ConnectError, EvenqError, ProtocolError, RequestTimeout, StateError
from evenq.protocol.codes import ResponseCode, name_of
from evenq.protocol.command import ONEWAY, Command
from evenq.protocol.frames import DEFAULT_LIMIT, FrameParser

__all__ = ["Connection", "Handler", "Limits", "Refusal", "Server", "Turn", "cannot_store"]

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


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes: bytes of a frame, connections at a time, bytes held for a peer that does not read, and for
    all such peers together."""

    frame: int = DEFAULT_LIMIT
    connections: int = 10_000
    unread: int = 1024 * 1024
    held: int = 256 * 1024 * 1024


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


class Connection(asyncio.Protocol):
    """One peer. Requests are answered in order, except those whose handler answers later."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.address = "?"
        self._parser = FrameParser(server.limits.frame)
        self._transport: asyncio.Transport | None = None
        self._paused = False
        # over the limit: told so, not served
        self._turned_away = False
        # requests that came while the peer did not read its answers
        self._todo: deque[tuple[Command, Handler]] = deque()
        self._asked: dict[int, asyncio.Future[Command]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.address = f"[{host}]:{port}" if family is socket.AF_INET6 else f"{host}:{port}"
        transport.set_write_buffer_limits(high=self.server.limits.unread)
        self.server.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._todo.clear()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(ConnectError(self.address, "it was closed before the answer came"))
        self._asked.clear()
        self.server.closed(self)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def data_received(self, data: bytes) -> None:
        try:
            commands = self._parser.feed(data)
        except ProtocolError as error:
            log.warning("%s: closing %s, which sent %s", self.server.name, self.address, error)
            self.close()
            return
        find = self.server.busy if self._turned_away else self.server.find
        self.serve([(command, find(command.code)) for command in commands])
        if self._turned_away and commands:
            self.finish()

    def turn_away(self) -> None:
        """Refuse whatever the peer asks, and end the connection then, or soon."""
        self._turned_away = True
        asyncio.get_running_loop().call_later(_TOLD_SECONDS, self.close)

    @property
    def unread(self) -> int:
        """How many bytes are held for the peer."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        self._paused = True
        self.server.slow.add(self)
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self.server.slow.discard(self)
        if self._transport is not None:
            self._transport.resume_reading()
        todo, self._todo = self._todo, deque()
        self.serve(todo)

    def serve(self, requests: Iterable[tuple[Command, Handler]]) -> None:
        """Handle requests with the handler named for each, and write their answers."""
        answers: list[_Answer] = []
        size = 0
        turn = self.server.turn
        for request, handler in requests:
            if self._paused:
                self._todo.append((request, handler))
                continue
            before = len(turn.staged)
            answer = self._answer(request, handler, before)
            if answer is not None:
                answers.append((request, answer, len(turn.staged) > before))
                size += _USUAL_HEADER + len(answer.body)
                if size > _WRITE_AT:
                    self._write(answers)
                    answers, size = [], 0
        self._write(answers)

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
            self._transport.write(b"".join([part for command in commands for part in command.parts()]))

    def notify(self, command: Command) -> None:
        """Send a request that wants no answer; a peer that does not read gets none, as they would only pile up."""
        command.flag |= ONEWAY
        command.opaque = next(self.server.opaques)
        if not self._paused:
            self.send(command)

    async def ask(self, command: Command, timeout: float) -> Command:
        """Send a request to the peer and wait for its answer."""
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
            reply = self.server.call(handler, request, self, len(self.server.turn.staged))
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


Handler = Callable[[Command, Connection], Command | None]

# A request, its answer, and whether that holds only if the turn is stored.
_Answer = tuple[Command, Command, bool]


def cannot_store(request: Command, error: OSError) -> Command:
    """The answer to a request of which nothing could be stored."""
    remark = f"the broker cannot store anything now: {error.strerror or error}"
    return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark)


class Server:
    """Listens, keeps its connections, knows the handler of each request code."""

    def __init__(
        self,
        name: str,
        *,
        turn: Turn | None = None,
        on_close: Callable[[Connection], None] = lambda connection: None,
        limits: Limits | None = None,
    ) -> None:
        self.name = name
        self.limits = limits or Limits()
        self.faults = Faults()
        self.turn: Turn = turn or _StoresNothing()
        self.connections: set[Connection] = set()
        # those whose peers do not read what is written for them
        self.slow: set[Connection] = set()
        self.opaques = itertools.count(1)
        self._handlers: Mapping[int, Handler] = {}
        self._on_close = on_close
        self._socket: socket.socket | None = None
        # set while there are no connections
        self._idle = asyncio.Event()
        self._idle.set()
        self._listener: asyncio.Server | None = None

    def bind(self, host: str, port: int) -> str:
        """Take the port (a free one for 0) without listening yet; the address that clients will find it at."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
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

    async def start(self, handlers: Mapping[int, Handler]) -> None:
        """Listen on the port that was taken, and answer by ``handlers``."""
        assert self._socket is not None, "bind first"
        self._handlers = handlers
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self), sock=self._socket, backlog=1024)

    async def stop(self) -> None:
        """Stop listening and close all connections; a peer that does not take its last answers loses them."""
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
        if self.slow and sum(connection.unread for connection in self.slow) > self.limits.held:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"system busy: more than {self.limits.held} bytes wait for {len(self.slow)} clients to read them; "
                f"try again later",
            )

    def call(self, handler: Handler, request: Command, connection: Connection, savepoint: int) -> Command | None:
        """The handler's answer; if it fails, the answer that says so, and nothing is stored of what was staged since
        ``savepoint``."""
        try:
            return handler(request, connection)
        except Exception as error:  # noqa: BLE001 - whatever it is, the peer must get an answer
            self.turn.rollback(savepoint)
            return self._failed(error, request, connection)

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
            remark=f"system busy: this {self.name} has {self.limits.connections} connections and takes no more",
        )

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        self._idle.clear()
        over = len(self.connections) - self.limits.connections
        if over > 0:
            log.warning(
                "%s: refusing %s, there are %d connections already",
                self.name,
                connection.address,
                self.limits.connections,
            )
            if over > _TOLD:
                connection.close()
            else:
                connection.turn_away()

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.slow.discard(connection)
        if not self.connections:
            self._idle.set()
        self._on_close(connection)
