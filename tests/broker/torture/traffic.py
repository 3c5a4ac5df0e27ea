"""Clients of a broker that is killed again and again, and what each of them knows afterwards.

Each client works in a thread of its own until it has done what it is to do, or until the broker is gone. Then it is
asked to ``check`` a broker that has started again: what was acknowledged is there, and nothing else.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from evenq.model import TransactionState
from evenq.protocol import RequestCode, ResponseCode, headers
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.command import Command
from evenq.protocol.ids import parse_message_id
from evenq.protocol.properties import encode_properties
from tests.broker.peers import Peer

__all__ = ["Ledger", "PassingTopic", "Progress", "Sender", "commit_offsets", "renew_topic", "work"]

TOPIC = "orders"
# one that is deleted and made again
PASSING = "bills"
QUEUES = 4
IN_FLIGHT = 48
BATCH = 5
GROUP = "billing"
# what the body of a message begins with that nobody may ever see
HIDDEN = b"hidden "


def work(name: str, job: Callable[[], None]) -> threading.Thread:
    """Let a client do its job until the broker is gone."""

    def run() -> None:
        with suppress(OSError):
            job()

    thread = threading.Thread(target=run, name=name)
    thread.start()
    return thread


# Messages of all kinds


class _Request(NamedTuple):
    opaque: int
    acknowledged: Callable[[Command], None]


class Sender:
    """Sends ``count`` times, many at a time: single messages, batches, delayed and timed ones, transactions.

    ``placed`` are the bodies that were acknowledged, by queue and offset; ``postponed`` those whose place is not known
    because they come to their queue later.
    """

    def __init__(self, broker: str, name: str, count: int) -> None:
        self._broker = broker
        self._name = name
        self._count = count
        self._waiting: deque[_Request] = deque()
        self.placed: dict[tuple[int, int], bytes] = {}
        self.postponed: set[bytes] = set()

    def run(self) -> None:
        with Peer(self._broker) as peer:
            for number in range(self._count):
                self._send(peer, number)
                while len(self._waiting) > IN_FLIGHT:
                    self._take_answer(peer)
            while self._waiting:
                self._take_answer(peer)

    def _take_answer(self, peer: Peer) -> None:
        request = self._waiting.popleft()
        answer = peer.answer(request.opaque)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        request.acknowledged(answer)

    def _send(self, peer: Peer, number: int) -> None:
        queue = number % QUEUES
        body = f"{self._name} {number} ".encode() + b"." * (number % 200)
        if number % 7 == 0:
            self._send_batch(peer, queue, [body + b" %d" % part for part in range(BATCH)])
        elif number % 20 == 1:
            self._send_later(peer, queue, body, DELAY="1")
        elif number % 20 == 2:
            self._send_later(peer, queue, body, TIMER_DELAY_MS="300")
        elif number % 10 == 3:
            self._send_half(peer, queue, body, number)
        else:
            opaque = peer.send(RequestCode.SEND_MESSAGE_V2, peer.send_header(TOPIC, queue), body)
            self._waiting.append(_Request(opaque, lambda answer: self._place(answer, queue, [body])))

    def _place(self, answer: Command, queue: int, bodies: list[bytes]) -> None:
        first = int(answer.ext["queueOffset"])
        self.placed.update({(queue, first + at): body for at, body in enumerate(bodies)})

    def _send_batch(self, peer: Peer, queue: int, bodies: list[bytes]) -> None:
        batch = encode_batch([BatchEntry(body) for body in bodies])
        opaque = peer.send(RequestCode.SEND_BATCH_MESSAGE, peer.send_header(TOPIC, queue), batch)
        self._waiting.append(_Request(opaque, lambda answer: self._place(answer, queue, bodies)))

    def _send_later(self, peer: Peer, queue: int, body: bytes, **properties: str) -> None:
        header = peer.send_header(TOPIC, queue, properties=encode_properties(properties))
        opaque = peer.send(RequestCode.SEND_MESSAGE_V2, header, body)
        self._waiting.append(_Request(opaque, lambda answer: self.postponed.add(body)))

    def _send_half(self, peer: Peer, queue: int, body: bytes, number: int) -> None:
        """A half message, which is committed, rolled back or left alone."""
        state = list(TransactionState)[number // 10 % 3]
        body = body if state is TransactionState.COMMIT else HIDDEN + body
        key = f"{self._name}-{number}"
        properties = encode_properties({"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": key})
        header = peer.send_header(TOPIC, queue, properties=properties)

        def end(answer: Command) -> None:
            if state is not TransactionState.UNKNOWN:
                self._end(peer, answer, state, body, key)

        self._waiting.append(_Request(peer.send(RequestCode.SEND_MESSAGE_V2, header, body), end))

    def _end(self, peer: Peer, half: Command, state: TransactionState, body: bytes, key: str) -> None:
        header = headers.EndTransaction(
            topic=TOPIC,
            producer_group="shop",
            tran_state_table_offset=int(half.ext["queueOffset"]),
            commit_log_offset=parse_message_id(half.ext["msgId"])[1],
            commit_or_rollback=state,
            msg_id=key,
        )

        def ended(answer: Command) -> None:
            if state is TransactionState.COMMIT:
                self.postponed.add(body)

        self._waiting.append(_Request(peer.send(RequestCode.END_TRANSACTION, header), ended))


class Ledger:
    """What was acknowledged to senders, compared with what is there."""

    def __init__(self) -> None:
        self._placed: dict[tuple[int, int], bytes] = {}
        self._read: list[list[bytes]] = [[] for _ in range(QUEUES)]
        self._seen: set[bytes] = set()
        self.postponed: set[bytes] = set()

    def acknowledge(self, sender: Sender) -> None:
        self._placed |= sender.placed
        self.postponed |= sender.postponed - self._seen

    def check_new(self, peer: Peer) -> None:
        """Read on in each queue: what comes is new, and what was acknowledged is in its place."""
        for queue, read in enumerate(self._read):
            for body in bodies_from(peer, TOPIC, queue, len(read)):
                assert body not in self._seen, f"{body!r} is there twice"
                assert not body.startswith(HIDDEN), f"{body!r} was never committed"
                assert self._placed.pop((queue, len(read)), body) == body
                self._seen.add(body)
                self.postponed.discard(body)
                read.append(body)
        assert self._placed == {}

    def is_whole(self, peer: Peer) -> bool:
        """Whether what was to come later is there too by now."""
        self.check_new(peer)
        return not self.postponed

    def check_all(self, peer: Peer) -> None:
        """See that every queue still is what was read of it, part by part; later messages may have joined it."""
        for queue, read in enumerate(self._read):
            assert list(bodies_from(peer, TOPIC, queue, 0))[: len(read)] == read


def bodies_from(peer: Peer, topic: str, queue: int, offset: int) -> Iterator[bytes]:
    while messages := peer.pull(topic, offset, queue):
        assert [message.queue_offset for message in messages] == list(range(offset, offset + len(messages)))
        offset += len(messages)
        yield from [message.body for message in messages]


# A topic that is deleted and made again


@dataclass
class PassingTopic:
    """What is known of it: the bodies that were acknowledged, by queue and offset, since it was made."""

    generation: int = 0
    kept: dict[tuple[int, int], bytes] = field(default_factory=dict)
    is_being_deleted: bool = False

    def next_generation(self) -> None:
        self.generation += 1
        self.kept = {}
        self.is_being_deleted = False

    def check(self, peer: Peer) -> None:
        """It has all its messages, or none if it was being deleted; and none of a time before."""
        found = {
            (queue, at): body for queue in range(QUEUES) for at, body in enumerate(bodies_from(peer, PASSING, queue, 0))
        }
        assert {body.split()[0] for body in found.values()} <= {b"%d" % self.generation}, "deleted messages are back"
        if self.is_being_deleted and not found:
            self.next_generation()
        self.is_being_deleted = False
        assert self.kept.items() <= found.items()


def renew_topic(broker: str, topic: PassingTopic, rounds: int) -> None:
    """Make the topic, send some messages to it, delete it, and so on."""
    create = headers.CreateTopic(topic=PASSING, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
    with Peer(broker) as peer:
        for number in range(rounds):
            assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create).code == ResponseCode.SUCCESS
            for at in range(number % 9):
                body = b"%d %d" % (topic.generation, at)
                answer = peer.put(PASSING, body, at % QUEUES)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                place = at % QUEUES, int(answer.ext["queueOffset"])
                assert place not in topic.kept, "an offset was given twice"
                topic.kept[place] = body
            topic.is_being_deleted = True
            answer = peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopic(topic=PASSING))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            topic.next_generation()


# A group that reads


@dataclass
class Progress:
    """How far a group has come in one queue: what the broker is known to have saved, took, and was asked to take."""

    saved: int = 0
    acknowledged: int = 0
    asked: int = 0

    def check(self, peer: Peer, *, stopped: bool) -> None:
        """The broker's offset is one that was committed, none before one it had already; the last one after a stop."""
        header = headers.QueryOffset(topic=TOPIC, queue_id=0, consumer_group=GROUP)
        answer = peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        found = int(answer.ext["offset"]) if answer.code == ResponseCode.SUCCESS else 0
        assert (self.acknowledged if stopped else self.saved) <= found <= self.asked
        self.saved = self.acknowledged = self.asked = found


def commit_offsets(broker: str, progress: Progress, rounds: int) -> None:
    """Read the queue from where the group is, and commit what was read: with the next pull, or by itself."""
    with Peer(broker) as peer:
        offset = progress.saved
        for number in range(rounds):
            progress.asked = offset
            pull = Peer.pull_header(TOPIC, offset, wait_ms=50, most=7, commit=offset)
            answer = peer.ask(RequestCode.PULL_MESSAGE, pull)
            progress.acknowledged = offset
            if answer.code == ResponseCode.SUCCESS:
                offset = int(answer.ext["nextBeginOffset"])
            if number % 2:
                progress.asked = offset
                header = headers.UpdateOffset(topic=TOPIC, queue_id=0, consumer_group=GROUP, commit_offset=offset)
                peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
                progress.acknowledged = offset
