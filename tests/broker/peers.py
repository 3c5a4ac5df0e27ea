"""A client of the simplest kind, for tests of servers: one socket, requests and answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from itertools import count
from types import TracebackType
from typing import Self

from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.filters import subscription
from evenq.protocol.frames import FrameParser
from evenq.protocol.records import decode_messages
from evenq.protocol.view import MessageView

__all__ = ["Peer"]


class Peer:
    """A connection to ``host:port``. What comes without being asked for waits in ``unasked``."""

    def __init__(self, address: str, client_id: str = "peer") -> None:
        host, _, port = address.rpartition(":")
        self.client_id = client_id
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.unasked: list[Command] = []
        self._answers: dict[int, Command] = {}
        self._parser = FrameParser()
        self._opaques = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(
        self,
        code: int,
        header: headers.Header | None = None,
        body: bytes = b"",
        *,
        serialize: str = "JSON",
        flag: int = 0,
    ) -> int:
        """Send a request without waiting; the opaque to ask for its answer with."""
        opaque = next(self._opaques)
        ext = header.to_ext() if header else {}
        request = Command(code, opaque=opaque, flag=flag, ext=ext, body=body)
        self.socket.sendall(request.encode("ROCKETMQ" if serialize == "ROCKETMQ" else "JSON"))
        return opaque

    def answer(self, opaque: int, seconds: float = 10.0) -> Command:
        """The answer to a request; what comes before it is kept."""
        self.socket.settimeout(seconds)
        while opaque not in self._answers:
            self._receive()
        return self._answers.pop(opaque)

    def ask(self, code: int, header: headers.Header | None = None, body: bytes = b"", **how: str) -> Command:
        return self.answer(self.send(code, header, body, **how))  # type: ignore[arg-type]

    def has_answer(self, opaque: int, seconds: float = 0.05) -> bool:
        """Whether the answer comes within a moment: for tests that something waits."""
        try:
            self._answers[opaque] = self.answer(opaque, seconds)
        except TimeoutError:
            return False
        return True

    def notification(self, seconds: float = 10.0) -> Command:
        """The next request of the server."""
        self.socket.settimeout(seconds)
        while not self.unasked:
            self._receive()
        return self.unasked.pop(0)

    def silence(self, seconds: float = 0.05) -> bool:
        """Whether the server sends nothing of its own for a moment."""
        deadline = time.monotonic() + seconds
        try:
            while not self.unasked and time.monotonic() < deadline:
                self.socket.settimeout(seconds)
                self._receive()
        except TimeoutError:
            pass
        return not self.unasked

    def is_closed(self) -> bool:
        """Whether the server breaks the connection, sooner or later."""
        self.socket.settimeout(10)
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def _receive(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        for command in self._parser.feed(data):
            if command.is_response:
                self._answers[command.opaque] = command
            else:
                self.unasked.append(command)

    # -- what most tests do

    def put(self, topic: str, body: bytes = b"x", queue_id: int = 0, *, properties: str | None = None) -> Command:
        """Send one message; its answer."""
        return self.ask(RequestCode.SEND_MESSAGE_V2, self.send_header(topic, queue_id, properties=properties), body)

    @staticmethod
    def send_header(topic: str, queue_id: int = 0, *, properties: str | None = None) -> headers.SendRequestV2:
        return headers.SendRequestV2(
            producer_group="shop",
            topic=topic,
            queue_id=queue_id,
            default_topic_queue_nums=4,
            born_timestamp=1,
            properties=properties,
        )

    @staticmethod
    def pull_header(
        topic: str,
        offset: int = 0,
        queue_id: int = 0,
        *,
        wait_ms: int = 0,
        tags: str = "*",
        most: int = 32,
        commit: int = -1,
    ) -> headers.PullRequest:
        """A pull with its subscription in the header; it waits with ``wait_ms`` and commits with ``commit``."""
        return headers.PullRequest(
            topic=topic,
            queue_id=queue_id,
            consumer_group="billing",
            queue_offset=offset,
            max_msg_nums=most,
            sys_flag=4 | (2 if wait_ms else 0) | (1 if commit >= 0 else 0),
            commit_offset=max(commit, 0),
            suspend_timeout_millis=wait_ms,
            subscription=tags,
        )

    def pull(self, topic: str, offset: int = 0, queue_id: int = 0) -> list[MessageView]:
        """The messages of a queue from an offset on; none where none are."""
        answer = self.ask(RequestCode.PULL_MESSAGE, self.pull_header(topic, offset, queue_id, most=1000))
        return decode_messages(answer.body) if answer.code == ResponseCode.SUCCESS else []

    def heartbeat(self, group: str, topics: Sequence[str] = ("orders",), model: str = "CLUSTERING") -> Command:
        """Say that this peer is a member of a group."""
        wanted = [subscription(topic, version=1) for topic in topics]
        consumer = bodies.ConsumerData(group_name=group, subscription_data_set=wanted, message_model=model)
        beat = bodies.Heartbeat(client_id=self.client_id, consumer_data_set=[consumer])
        return self.ask(RequestCode.HEART_BEAT, body=beat.encode())

    def members(self, group: str) -> list[str]:
        answer = self.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, headers.GroupRequest(consumer_group=group))
        return sorted(bodies.Members.decode(answer.body).consumer_id_list) if answer.code == 0 else []
