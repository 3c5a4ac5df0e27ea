"""What a task has to send: in order within each queue, many queues at a time, and never much of it in memory."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from random import Random, SystemRandom

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evenq.balance.choosing import RoundRobinChooser
from evenq.client.net.session import Session
from evenq.client.produce.outgoing import Parcel, SendRequests
from evenq.client.produce.sender import Sender
from evenq.errors import ConnectError, RemoteError, SendFailed
from evenq.model import MessageQueue, Property, SendStatus
from evenq.protocol.codes import RequestCode
from evenq.protocol.headers import SendResponse
from evenq.protocol.ids import UniqueIds
from evenq.protocol.properties import encode_properties
from evenq.spark.rows import Packed
from evenq.spark.sinkoptions import WriteOptions

__all__ = ["Outbox"]

log = logging.getLogger(__name__)

# Bytes that may wait here before whoever brings more has to wait.
ROOM = 8 * 1024 * 1024
# Seconds before a parcel that was not stored is sent again: twice as long each time, up to the last.
FIRST_PAUSE = 0.1
LAST_PAUSE = 5.0
# Queues of a topic that the broker makes on the first send.
TOPIC_QUEUES = 4


class _Rows(Parcel[None], frozen=True, gc=False):
    """Some rows in one request. Nobody wants a receipt: that there is one is enough."""

    def receipt(self, status: SendStatus, queue: MessageQueue, stored: SendResponse) -> None:
        return None


class _Lane:
    """The rows for one queue: those that will make the next batch, and the parcels that wait for their turn."""

    __slots__ = ("gathered", "parcels", "queue", "sending", "size")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.gathered: list[bytes] = []
        self.size = 0
        self.parcels: deque[_Rows] = deque()
        self.sending: asyncio.Task[None] | None = None


class Outbox:
    """Sends what it is given. One parcel of a queue is under way at a time, so a retry cannot change the order.

    A broker that does not store a parcel is tried again, always for the same queue, until ``brokerTimeout`` is over.
    """

    def __init__(self, session: Session, options: WriteOptions) -> None:
        self._session = session
        self._options = options
        # makes unique keys of batches
        self._ids = _unique_ids(session.client_id).next
        self._sender = Sender(
            session,
            SendRequests(options.group, TOPIC_QUEUES, session.wire_name),
            RoundRobinChooser(Random()),
            tries=1,
            topic_queues=TOPIC_QUEUES,
        )
        self._lanes: dict[MessageQueue, _Lane] = {}
        self._waiting = 0
        self._room = asyncio.Event()
        self._error: BaseException | None = None

    async def queues(self, topics: Iterable[str]) -> dict[str, Sequence[MessageQueue]]:
        """The writable queues of each topic, in the order that all producers know."""
        return {topic: (await self._sender.route(topic)).writable.queues for topic in topics}

    async def put(self, rows: Packed, places: Mapping[MessageQueue, NDArray[np.int64]]) -> None:
        """Take rows, each for its queue. Returns when there is room for more."""
        for queue, positions in places.items():
            lane = self._lanes.get(queue)
            if lane is None:
                lane = self._lanes[queue] = _Lane(queue)
            self._add(lane, rows, positions)
            self._start(lane)
        # those that have room to be sent are sent before the next rows are packed
        await asyncio.sleep(0)
        while self._waiting > ROOM and self._error is None:
            self._room.clear()
            await self._room.wait()
        self._check()

    async def flush(self) -> None:
        """Send all that is here, and wait until it is stored."""
        for lane in self._lanes.values():
            self._close(lane)
            self._start(lane)
        await asyncio.gather(*(lane.sending for lane in self._lanes.values() if lane.sending is not None))
        self._check()

    async def close(self) -> None:
        """Drop what was not stored, and leave."""
        for lane in self._lanes.values():
            if lane.sending is not None:
                lane.sending.cancel()
        await self._session.close()

    def _add(self, lane: _Lane, rows: Packed, positions: NDArray[np.int64]) -> None:
        """Add rows to those of a queue; one that must go alone goes after those before it."""
        done = 0
        for at in np.flatnonzero(np.isin(positions, list(rows.alone))).tolist() if rows.alone else ():
            self._gather(lane, rows.entries.take(pa.array(positions[done:at])))
            self._close(lane)
            single = rows.alone[int(positions[at])]
            self._enqueue(lane, _Rows(lane.queue.topic, single.body, single.properties, single.sys_flag))
            done = at + 1
        self._gather(lane, rows.entries.take(pa.array(positions[done:])))

    def _gather(self, lane: _Lane, entries: pa.Array) -> None:
        """Add entries, which lie end to end in memory, and cut them into batches."""
        if not len(entries):
            return
        _, offsets, values = entries.buffers()
        ends = np.frombuffer(offsets, np.int32, len(entries) + 1)
        data = memoryview(values)
        at = 0
        while at < len(entries):
            room = self._options.batch_bytes - lane.size
            stop = int(np.searchsorted(ends, ends[at] + room, "right")) - 1
            if stop <= at and lane.gathered:
                self._close(lane)
                continue
            stop = max(stop, at + 1)
            lane.gathered.append(bytes(data[ends[at] : ends[stop]]))
            lane.size += int(ends[stop] - ends[at])
            at = stop

    def _close(self, lane: _Lane) -> None:
        """Make a parcel of the rows that have gathered."""
        if lane.gathered:
            properties = encode_properties({Property.UNIQUE_KEY: self._ids()})
            code = int(RequestCode.SEND_BATCH_MESSAGE)
            self._enqueue(lane, _Rows(lane.queue.topic, b"".join(lane.gathered), properties, code=code))
            lane.gathered, lane.size = [], 0

    def _enqueue(self, lane: _Lane, parcel: _Rows) -> None:
        lane.parcels.append(parcel)
        self._waiting += len(parcel.body)

    def _start(self, lane: _Lane) -> None:
        if lane.parcels and (lane.sending is None or lane.sending.done()):
            lane.sending = asyncio.create_task(self._send(lane))

    async def _send(self, lane: _Lane) -> None:
        try:
            while lane.parcels and self._error is None:
                await self._deliver(lane.queue, lane.parcels[0])
                self._waiting -= len(lane.parcels.popleft().body)
                self._room.set()
        except BaseException as error:  # noqa: BLE001 - whoever brings rows must hear of it
            self._error = self._error or error
            self._room.set()

    async def _deliver(self, queue: MessageQueue, parcel: _Rows) -> None:
        connecting = self._options.connecting
        deadline = time.monotonic() + connecting.patience
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._sender.send(parcel, connecting.timeouts.send, lambda route: queue)
            except (SendFailed, ConnectError) as error:
                if time.monotonic() + pause > deadline:
                    raise
                log.warning("%s; trying again in %.1f s", error, pause)
            await asyncio.sleep(pause)
            pause = min(LAST_PAUSE, pause * 2)
            with suppress(RemoteError):
                await self._session.routes.refresh(queue.topic)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


def _unique_ids(client_id: str) -> UniqueIds:
    address = ip_address(client_id.partition("@")[0].partition("%")[0]).packed
    return UniqueIds(address=address, pid=os.getpid(), salt=_random.getrandbits(32), clock=time.time)


# makes ids; guards nothing
_random = SystemRandom()
