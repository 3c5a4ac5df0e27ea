"""A client that does next to nothing: requests made beforehand, many on their way, answers counted and not read.

It is the same for every broker, and cheap enough to leave the broker a core of its own.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Iterator
from itertools import count, cycle, islice

from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.headers import PullRequest, SendRequestV2
from evenq.protocol.properties import encode_properties

__all__ = ["Tally", "batches", "pulls", "pump", "singles"]

# Frames that are sent together, as a busy client's are.
TOGETHER = 16
# Different frames that are made before a run, then sent again and again.
POOL = 2048

_SIZES = struct.Struct(">II")
_OK = b'{"code":0,'
_HEAD = _SIZES.size + len(_OK)


class Tally:
    """Counts answers in a stream of bytes, and the bytes of their bodies; one that tells of an error is raised."""

    def __init__(self) -> None:
        self.answers = 0
        self.body = 0
        # bytes of the answer at hand that are still to come, and the beginning of one that is not all there
        self._skip = 0
        self._part = b""

    def feed(self, data: bytes) -> None:
        if self._part:
            data, self._part = self._part + data, b""
        at, end = self._skip, len(data)
        while at + _HEAD <= end:
            size, header = _SIZES.unpack_from(data, at)
            if not data.startswith(_OK, at + _SIZES.size):
                raise RuntimeError(f"the broker answered {data[at : at + 300]!r}")
            self.answers += 1
            self.body += size - 4 - (header & 0xFFFFFF)
            at += 4 + size
        self._skip = max(0, at - end)
        self._part = data[at:] if at < end else b""


def pump(address: str, requests: Iterable[bytes], total: int, in_flight: int) -> tuple[float, Tally]:
    """Send ``total`` requests, at most ``in_flight`` of them unanswered; the seconds until the last answer."""
    host, _, port = address.rpartition(":")
    tally = Tally()
    made = list(islice(requests, total))
    sent = 0
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        while tally.answers < total:
            room = min(in_flight - (sent - tally.answers), total - sent, TOGETHER)
            if room == TOGETHER or (room > 0 and (sent + room == total or in_flight < TOGETHER)):
                connection.sendall(b"".join(made[sent : sent + room]))
                sent += room
                if sent < total and in_flight - (sent - tally.answers) >= TOGETHER:
                    continue
            data = connection.recv(1 << 20)
            if not data:
                raise ConnectionError(f"{address} closed the connection")
            tally.feed(data)
        return time.perf_counter() - began, tally


def _properties(number: int) -> str:
    """What every client gives a message."""
    return encode_properties({"UNIQ_KEY": f"7F0000010001{number:020X}", "WAIT": "true"})


def _send(topic: str, queue: int, properties: str | None, *, batch: bool) -> dict[str, str]:
    return SendRequestV2(
        producer_group="bench",
        topic=topic,
        queue_id=queue,
        born_timestamp=round(time.time() * 1000),
        properties=properties,
        batch=batch,
    ).to_ext()


def singles(topic: str, queues: int, size: int) -> Iterator[bytes]:
    """Sends of one message each, to all queues in turn."""
    body = b"x" * size
    pool = [
        Command(
            RequestCode.SEND_MESSAGE_V2,
            number,
            ext=_send(topic, number % queues, _properties(number), batch=False),
            body=body,
            language="JAVA",
        ).encode()
        for number in range(POOL)
    ]
    return cycle(pool)


def batches(topic: str, queues: int, size: int, per_batch: int, spread: int = 0) -> Iterator[bytes]:
    """Sends of ``per_batch`` messages each, to all queues in turn. Bodies have up to ``spread`` bytes more or less."""
    bodies = [b"x" * (size - spread + number * 37 % (2 * spread + 1)) for number in range(per_batch)]
    pool = [
        Command(
            RequestCode.SEND_BATCH_MESSAGE,
            number,
            ext=_send(topic, number % queues, None, batch=True),
            body=encode_batch(
                [BatchEntry(body, _properties(number * per_batch + part)) for part, body in enumerate(bodies)]
            ),
            language="JAVA",
        ).encode()
        for number in range(3 * queues)
    ]
    return cycle(pool)


def pulls(topic: str, queues: int, most: int, step: int) -> Iterator[bytes]:
    """Pulls that ask for ``most`` messages of all queues in turn, each going on ``step`` behind the last."""
    template = PullRequest(
        topic=topic,
        queue_id=0,
        consumer_group="bench",
        queue_offset=0,
        max_msg_nums=most,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        expression_type="TAG",
    ).to_ext()
    for number in count():
        place = {"queueId": str(number % queues), "queueOffset": str(number // queues * step)}
        yield Command(RequestCode.PULL_MESSAGE, number, ext=template | place, language="JAVA").encode()
