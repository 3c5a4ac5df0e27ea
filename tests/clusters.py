"""What tests know of a cluster, embedded or real: its shape, and the few requests they make of it themselves."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Protocol

from evenq.model import SendResult
from evenq.protocol import Command, FrameParser, RequestCode, ResponseCode
from evenq.protocol.bodies import ClusterInfo, TopicRoute
from evenq.protocol.headers import CreateTopic, Header, MaxOffsetRequest, OffsetResponse, TopicRequest
from tests.waiting import wait_until

__all__ = ["AnyCluster", "ask", "brokers", "create_topic", "route", "wait_shown"]


class AnyCluster(Protocol):
    """What the embedded and the real cluster have in common. ``brokers`` are those that run now, by name."""

    @property
    def namesrv(self) -> str: ...

    @property
    def brokers(self) -> Mapping[str, object]: ...

    def stop_broker(self, name: str) -> None: ...

    def start_broker(self, name: str) -> object: ...


def ask(address: str, code: RequestCode, header: Header | None = None, body: bytes = b"") -> Command:
    """One request to ``host:port`` on a connection of its own, and the answer."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(Command(code, ext=header.to_ext() if header else {}, body=body).encode())
        parser = FrameParser()
        while piece := connection.recv(65536):
            for answer in parser.feed(piece):
                return answer
    raise ConnectionError(f"{address} closed the connection without an answer to {code.name}")


def brokers(namesrv: str) -> dict[str, str]:
    """The brokers that the name server knows: their names and their masters' addresses."""
    info = ClusterInfo.decode(ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO).body)
    return {name: data.master for name, data in info.broker_addr_table.items() if data.master}


def route(namesrv: str, topic: str) -> dict[str, int]:
    """On which brokers the topic is, and how many queues it has there; empty when there is no such topic."""
    answer = ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicRequest(topic=topic))
    if answer.code != ResponseCode.SUCCESS:
        return {}
    return {data.broker_name: data.write_queue_nums for data in TopicRoute.decode(answer.body).queue_datas}


def create_topic(namesrv: str, topic: str, queues: int = 4, attributes: str | None = None) -> None:
    """Create a topic with ``queues`` queues on every broker, and wait until its route names all of them.

    A topic that a send creates is on one broker first, and on another when a message happens to go there:
    members then see its queues come one half after the other.
    """
    masters = brokers(namesrv)
    for name, address in masters.items():
        header = CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues, attributes=attributes)
        answer = ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        if answer.code != ResponseCode.SUCCESS:
            raise RuntimeError(f"{name} did not create {topic}: code {answer.code}, {answer.remark}")
    wanted = dict.fromkeys(masters, queues)
    wait_until(lambda: route(namesrv, topic) == wanted, f"{topic} on {', '.join(wanted)} in its route")


def wait_shown(namesrv: str, receipts: Iterable[SendResult]) -> None:
    """Wait until all that was sent can be read.

    The Java broker acknowledges a message first, and enters it in its queue a moment later.
    """
    masters = brokers(namesrv)
    ends = {receipt.queue: receipt.offset + 1 for receipt in sorted(receipts, key=lambda receipt: receipt.offset)}
    for queue, end in ends.items():
        header = MaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)

        def there(address: str = masters[queue.broker], header: Header = header, end: int = end) -> bool:
            answer = ask(address, RequestCode.GET_MAX_OFFSET, header)
            return OffsetResponse.from_ext(answer.ext).offset >= end

        wait_until(there, f"{end} messages in {queue}")
