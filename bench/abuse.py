"""How long a client of the embedded broker waits for its sends while another one asks for too much.

``python -m bench.abuse [seconds, default 10] [abuser ...]``. A client sends one message every few milliseconds and
waits for the answer, first by itself, then next to each of the abusers: processes that keep the broker busy in one way
each. The abusers and quiet times take turns. It exits with 1 where the 99th percentile is more than ten times that of
the quiet times, or the broker takes more memory for an abuser than the limits allow. The last row is for comparison:
there the machine is busy, and the broker is not.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count

from rich.console import Console
from rich.table import Table

from bench.broker import Served, embedded
from bench.load import batches, pump
from evenq.model import MessageQueue
from evenq.protocol import Command, FrameParser, RequestCode
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.bodies import ConsumerData, Heartbeat, LockRequest
from evenq.protocol.filters import subscription
from evenq.protocol.headers import (
    CreateTopic,
    PullRequest,
    QueryConsumeQueue,
    QueryMessage,
    SendRequestV2,
    TopicRequest,
)
from evenq.protocol.headers.base import Header
from tests.clusters import create_topic

EVERY_S = 0.004
MOST_RATIO = 10.0
# what may be held of incomplete requests or unread answers, and something for itself
MOST_MIB = 300.0
FULL, VICTIM, WIDE = "full", "victim", "wide"
MESSAGES = 400_000


class Peer:
    """A blocking connection: requests, one after the other or many at once."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._parser = FrameParser()
        self._opaques = count(1)

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def request(self, code: int, header: Header | None = None, body: bytes = b"") -> bytes:
        ext = header.to_ext() if header else {}
        return Command(code, ext=ext, body=body, opaque=next(self._opaques)).encode()

    def answers(self, wanted: int) -> None:
        while wanted > 0:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("closed")
            wanted -= len(self._parser.feed(data))

    def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> None:
        self.write(self.request(code, header, body))
        self.answers(1)


def send(topic: str, *, batch: bool = False, properties: str = "") -> SendRequestV2:
    return SendRequestV2(
        producer_group="p", topic=topic, queue_id=0, born_timestamp=1, properties=properties, batch=batch
    )


def pull(topic: str, offset: int = 0, **changes: object) -> PullRequest:
    fields: dict[str, object] = {
        "consumer_group": "g", "topic": topic, "queue_id": 0, "queue_offset": offset, "max_msg_nums": 32, "sys_flag": 4,
        "commit_offset": 0, "suspend_timeout_millis": 0, "subscription": "*", "sub_version": 1,
    }  # fmt: skip
    return PullRequest(**(fields | changes))  # type: ignore[arg-type]


def sql(peer: Peer) -> None:
    """Pulls with a long filter that lets nothing through."""
    expression = " OR ".join(f"a{number} = {number}" for number in range(1000))
    header = pull(FULL, subscription=expression, expression_type="SQL92")
    while True:
        peer.ask(RequestCode.PULL_MESSAGE, header)


def new_filters(peer: Peer) -> None:
    """Pulls with another long filter each time."""
    for turn in count():
        expression = " OR ".join(f"a{number} = {turn}" for number in range(1000))
        peer.ask(RequestCode.PULL_MESSAGE, pull(FULL, subscription=expression, expression_type="SQL92"))


def consume_queue(peer: Peer) -> None:
    """All entries of a consume queue."""
    header = QueryConsumeQueue(topic=FULL, queue_id=0, index=0, count=MESSAGES)
    while True:
        peer.ask(RequestCode.QUERY_CONSUME_QUEUE, header)


def many_queues(peer: Peer) -> None:
    """The status of a topic with as many queues as a topic may have."""
    while True:
        peer.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicRequest(topic=WIDE))


def hot_key(peer: Peer) -> None:
    """Messages by a key that all of them have."""
    header = QueryMessage(topic=FULL, key="hot", max_num=64, begin_timestamp=0, end_timestamp=2**62)
    while True:
        peer.ask(RequestCode.QUERY_MESSAGE, header)


def empty_batches(peer: Peer) -> None:
    """Batches of as many empty messages as a batch may have."""
    body = encode_batch([BatchEntry(b"")] * 10_000)
    while True:
        peer.ask(RequestCode.SEND_BATCH_MESSAGE, send(FULL, batch=True), body)


def pipelined(peer: Peer) -> None:
    """Sends without waiting for answers."""
    requests = [peer.request(RequestCode.SEND_MESSAGE_V2, send(FULL), b"x" * 100) for _ in range(1000)]
    while True:
        peer.write(b"".join(requests))
        peer.answers(len(requests))


def locks(peer: Peer) -> None:
    """Locks on thousands of queues."""
    queues = [MessageQueue(FULL, "broker-a", number) for number in range(5000)]
    body = LockRequest(consumer_group="g", client_id="c", mq_set=queues).encode()
    while True:
        peer.ask(RequestCode.LOCK_BATCH_MQ, body=body)


def heartbeats(peer: Peer) -> None:
    """Heartbeats of a group with many subscriptions."""
    for turn in count():
        subscriptions = [subscription(f"topic-{number}", version=turn) for number in range(500)]
        group = ConsumerData(group_name="crowd", subscription_data_set=subscriptions)
        peer.ask(RequestCode.HEART_BEAT, body=Heartbeat(client_id="c", consumer_data_set=[group]).encode())


def parked(peer: Peer) -> None:
    """Pulls that wait, woken again and again."""
    header = pull(VICTIM, 2**40, sys_flag=6, suspend_timeout_millis=5000)
    while True:
        peer.write(b"".join(peer.request(RequestCode.PULL_MESSAGE, header) for _ in range(4000)))
        peer.answers(4000)


def half_frames(peer: Peer) -> None:
    """Requests that do not come to their end."""
    frame = peer.request(RequestCode.SEND_MESSAGE_V2, send(FULL), bytes(15 << 20))[:-1]
    host, port = peer._socket.getpeername()[:2]
    others = [Peer(f"{host}:{port}") for _ in range(60)]
    for other in others:
        try:
            other._socket.settimeout(2)
            other.write(frame)
        except OSError:
            continue
    time.sleep(60)


def unread(peer: Peer) -> None:
    """Pulls whose answers nobody reads."""
    host, port = peer._socket.getpeername()[:2]
    others = [Peer(f"{host}:{port}") for _ in range(300)]
    for other in others:
        other.write(
            b"".join(other.request(RequestCode.PULL_MESSAGE, pull(FULL, max_msg_nums=4096)) for _ in range(100))
        )
    time.sleep(60)


def connects(peer: Peer) -> None:
    """Connections that are made and left again."""
    host, port = peer._socket.getpeername()[:2]
    while True:
        Peer(f"{host}:{port}").write(b"x")


def machine(peer: Peer) -> None:
    """Two processes that calculate and ask for nothing: what waiting for a processor costs on this machine."""
    parent = os.getpid()
    if os.fork():
        parent = os.getppid()
    while os.getppid() == parent:
        sum(range(10_000))


ABUSES: dict[str, Callable[[Peer], None]] = {
    each.__name__: each
    for each in (
        sql, new_filters, consume_queue, many_queues, hot_key, empty_batches, pipelined, locks, heartbeats, parked,
        half_frames, unread, connects, machine,
    )
}  # fmt: skip


def p99(address: str, seconds: float) -> float:
    """Milliseconds within which 99 of 100 sends of a calm client are answered."""
    peer = Peer(address)
    took: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        peer.ask(RequestCode.SEND_MESSAGE_V2, send(VICTIM), b"x" * 100)
        took.append(time.perf_counter() - began)
        time.sleep(EVERY_S * random.uniform(0.5, 1.5))
    return sorted(took)[int(len(took) * 0.99)] * 1000


def prepare(served: Served) -> None:
    for topic in (FULL, VICTIM):
        create_topic(served.namesrv, topic, 1)
    peer = Peer(served.target.address)
    for queues in (16_384, 2**31 - 1):
        # the second is refused
        wide = CreateTopic(topic=WIDE, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6)
        peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, wide)
    pump(served.target.address, batches(FULL, 1, 100, 100), MESSAGES // 100, 32)
    hot = send(FULL, properties="KEYS\x01hot\x02")
    requests = [peer.request(RequestCode.SEND_MESSAGE_V2, hot, b"x") for _ in range(20_000)]
    for at in range(0, len(requests), 1000):
        peer.write(b"".join(requests[at : at + 1000]))
        peer.answers(1000)


def measure(seconds: float, only: list[str], console: Console) -> bool:
    table = Table(title=f"99th percentile of sends, ms; {seconds:g} s each")
    for heading in ("", "quiet", "abused", "ratio", "MiB more"):
        table.add_column(heading, justify="right" if heading else "left")
    met = True
    with embedded() as served:
        prepare(served)
        p99(served.target.address, 2)
        for name in only or ABUSES:
            quiet, before = p99(served.target.address, seconds), served.target.memory()
            command = [sys.executable, "-m", "bench.abuse", "--as", name, served.target.address]
            abuser = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            try:
                time.sleep(1)
                abused = p99(served.target.address, seconds)
                more = served.target.memory() - before
            finally:
                abuser.kill()
                abuser.wait()
            time.sleep(1)
            met &= name == machine.__name__ or (abused <= MOST_RATIO * quiet and more <= MOST_MIB)
            table.add_row(name, f"{quiet:.2f}", f"{abused:.2f}", f"{abused / quiet:.1f} ×", f"{more:.0f}")
    console.print(table)
    return met


def main() -> None:
    match sys.argv[1:]:
        case ["--as", name, address]:
            ABUSES[name](Peer(address))
        case rest:
            sys.exit(0 if measure(float(rest[0]) if rest else 10.0, rest[1:], Console()) else 1)


if __name__ == "__main__":
    main()
