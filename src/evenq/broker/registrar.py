"""Keeping a broker registered with its name servers, over the real protocol."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from itertools import count

from evenq.errors import ConnectError, EvenqError, RefusedError
from evenq.protocol import bodies, headers
from evenq.protocol.address import Address
from evenq.protocol.codes import RequestCode, ResponseCode, name_of
from evenq.protocol.command import Command
from evenq.protocol.frames import FrameParser
from evenq.supervision import FailureLog

__all__ = ["Registrar", "checked_addresses"]

log = logging.getLogger(__name__)

REGISTER_EVERY = 30.0
_RETRY_AFTER = 1.0
_TIMEOUT = 5.0


def checked_addresses(namesrv: Sequence[str]) -> Sequence[str]:
    """Addresses of name servers; an :class:`ArgumentError` for one that is none."""
    for address in namesrv:
        Address.parse(address, argument="namesrv")
    return namesrv


class Registrar:
    """Registers with each name server at the start, every 30 s, and at once when ``changed`` is called.

    ``tick`` is to be called often: it is what looks at the clock.
    """

    def __init__(
        self,
        broker: headers.UnregisterBroker,
        namesrv: Sequence[str],
        topics: Callable[[], bodies.TopicConfigTable],
        clock: Callable[[], float],
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._clock = clock
        self._next = clock() + REGISTER_EVERY
        self._namesrv = [_NameServerLink(address, self) for address in checked_addresses(namesrv)]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Return when each name server has the broker, or is known not to answer now."""
        self._tasks = [asyncio.create_task(link.keep()) for link in self._namesrv]
        await asyncio.gather(*(link.tried.wait() for link in self._namesrv))

    def tick(self) -> None:
        if self._clock() >= self._next:
            self.changed()

    def changed(self) -> None:
        self._next = self._clock() + REGISTER_EVERY
        for link in self._namesrv:
            link.due.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(link.leave() for link in self._namesrv))

    def registration(self) -> Command:
        """The request that tells a name server of the broker and all its topics."""
        table = self._topics()
        wrapper = bodies.TopicConfigAndMapping(
            topic_config_table=table.topic_config_table, data_version=table.data_version
        )
        body = bodies.RegisterBody(topic_config_serialize_wrapper=wrapper).encode(standard=True)
        header = headers.RegisterBroker(
            broker_name=self._broker.broker_name,
            broker_addr=self._broker.broker_addr,
            cluster_name=self._broker.cluster_name,
            broker_id=self._broker.broker_id,
            ha_server_addr=self._broker.broker_addr,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return Command(RequestCode.REGISTER_BROKER, ext=header.to_ext(), body=body)

    def farewell(self) -> Command:
        return Command(RequestCode.UNREGISTER_BROKER, ext=self._broker.to_ext())


class _NameServerLink:
    """The connection to one name server, made again whenever it breaks."""

    def __init__(self, address: str, registrar: Registrar) -> None:
        self.address = address
        self.tried = asyncio.Event()
        # set when there is something new to tell
        self.due = asyncio.Event()
        self._registrar = registrar
        self._opaques = count(1)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def keep(self) -> None:
        failures = FailureLog(f"registering with name server {self.address}")
        while True:
            self.due.clear()
            pause: float | None = None
            try:
                await self._ask(self._registrar.registration())
            except Exception as error:  # noqa: BLE001 - who starts the broker waits for the end of the first try
                failures.record(error, f"trying again in {_RETRY_AFTER:g} s")
                self._close()
                pause = _RETRY_AFTER
            self.tried.set()
            try:
                async with asyncio.timeout(pause):
                    await self.due.wait()
            except TimeoutError:
                continue

    async def leave(self) -> None:
        if self._streams is not None:
            try:
                await self._ask(self._registrar.farewell())
            except EvenqError as error:
                log.info("leaving name server %s: %s", self.address, error)
            self._close()

    async def _ask(self, request: Command) -> None:
        request.opaque = next(self._opaques)
        try:
            async with asyncio.timeout(_TIMEOUT):
                if self._streams is None:
                    host, _, port = self.address.rpartition(":")
                    self._streams = await asyncio.open_connection(host.strip("[]"), int(port))
                reader, writer = self._streams
                writer.write(request.encode())
                answer = await _read_one(reader, self.address)
        except TimeoutError:
            raise ConnectError(self.address, f"no answer within {_TIMEOUT} s") from None
        except OSError as error:
            raise ConnectError(self.address, error.strerror or str(error)) from None
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(self.address, name_of(request.code), answer.code, answer.remark)

    def _close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _read_one(reader: asyncio.StreamReader, address: str) -> Command:
    parser = FrameParser()
    while data := await reader.read(65536):
        for command in parser.feed(data):
            if command.is_response:
                return command
    raise ConnectError(address, "it was closed before the answer came")
