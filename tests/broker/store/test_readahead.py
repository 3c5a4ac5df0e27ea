"""Reading ahead gives what reading gives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from evenq.broker.store import readahead
from evenq.broker.store.store import Store
from evenq.protocol.records import decode_messages
from tests.broker.store.messages import incoming, open_store

QUEUES = 3
queues = st.integers(0, QUEUES - 1)
counts = st.integers(1, 5)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


class Reading(RuleBasedStateMachine):
    """Somebody writes to queues whose messages lie mixed, and readers go on where they were, or begin anywhere."""

    @initialize()
    def begin(self) -> None:
        self.folder = TemporaryDirectory()
        self.store = open_store(Path(self.folder.name))
        self.numbers = count()
        self.begin_again(0)
        for queue in range(QUEUES):
            self.write(queue, 1, 0)
        self.sent: dict[int, list[bytes]]

    @rule(queue=queues)
    def begin_again(self, queue: int) -> None:
        """The topic is deleted, and there is a new one of its name."""
        self.store.delete_topic("orders")
        self.sent = {queue: [] for queue in range(QUEUES)}
        self.place = dict.fromkeys(range(QUEUES), 0)

    @rule(queue=queues, many=st.integers(1, 12), size=st.integers(0, 300))
    def write(self, queue: int, many: int, size: int) -> None:
        for _ in range(many):
            body = b"%d " % next(self.numbers) + b"x" * size
            assert self.store.append(incoming(body, queue_id=queue)).queue_offset == len(self.sent[queue])
            self.sent[queue].append(body)
        self.store.settle()

    @rule(queue=queues, many=counts, most=st.sampled_from([1, 500, 1 << 20]), times=counts)
    def go_on(self, queue: int, many: int, most: int, times: int) -> None:
        for _ in range(times):
            if self.place[queue] < len(self.sent[queue]):
                self.place[queue] = self.read(queue, self.place[queue], many, most)

    @rule(queue=queues, many=counts, at=st.floats(0, 1, exclude_max=True))
    def read_anywhere(self, queue: int, many: int, at: float) -> None:
        if self.sent[queue]:
            self.read(queue, int(len(self.sent[queue]) * at), many, 1 << 20)

    def read(self, queue: int, offset: int, many: int, most: int) -> int:
        found = self.store.read("orders", queue, offset, many, most)
        messages = decode_messages(found.body)
        wanted = self.sent[queue][offset : offset + many]
        assert len(messages) == found.count > 0
        assert [message.body for message in messages] == wanted[: found.count]
        assert [message.queue_offset for message in messages] == list(range(offset, found.next_offset))
        if len(messages) < len(wanted):
            assert len(found.body) + self.size_of(queue, found.next_offset) > most
        assert len(messages) == 1 or len(found.body) <= most
        return found.next_offset

    def size_of(self, queue: int, offset: int) -> int:
        return self.store.queue("orders", queue).unit(offset)[1]

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


TestReading = Reading.TestCase


def test_little_is_kept_however_many_queues_there_are(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readahead, "_QUEUES", 4)
    for queue in range(9):
        for number in range(40):
            store.append(incoming(b"%d" % number, queue_id=queue))
    store.settle()
    for queue in range(9):
        for offset in (0, 2, 4):
            store.read("orders", queue, offset, 2, 1 << 20)
    assert len(store._ahead._kept) == len(store._ahead._reached) == 4
    [kept, *_] = store._ahead._kept.values()
    assert (kept.offset, len(kept.ends)) == (2, 2 * readahead._TIMES)
