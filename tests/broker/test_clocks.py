"""Clocks that are set while a broker runs: what was promised for a time lasts that time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evenq.broker.clocks import TrustedClock
from evenq.model import MessageQueue
from evenq.protocol import bodies
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.properties import encode_properties
from evenq.testing import EmbeddedCluster, cluster
from tests.broker.peers import Peer
from tests.broker.stores import Hand
from tests.waiting import wait_until

HOUR, DAY = 3600.0, 86_400.0


class TestTrustedClock:
    @pytest.fixture
    def wall(self) -> Hand:
        return Hand(1_000_000.0)

    @pytest.fixture
    def passed(self) -> Hand:
        return Hand(0.0)

    @pytest.fixture
    def clock(self, wall: Hand, passed: Hand) -> TrustedClock:
        return TrustedClock(wall, passed)

    @pytest.mark.parametrize("jump", [4 * DAY, -HOUR])
    def test_a_clock_that_is_wrong_for_a_moment_is_not_followed(
        self, clock: TrustedClock, wall: Hand, passed: Hand, jump: float
    ) -> None:
        wall.now += jump
        assert clock() == 1_000_000
        wall.now, passed.now = wall.now + 1, 1
        assert clock() == 1_000_001
        wall.now, passed.now = 1_000_002, 2
        assert clock() == 1_000_002
        # the next time counts anew
        wall.now, passed.now = 1_000_055 + jump, 55
        assert clock() == 1_000_055
        wall.now, passed.now = 1_000_070 + jump, 70
        assert clock() == 1_000_070

    @pytest.mark.parametrize("jump", [4 * DAY, -HOUR])
    def test_a_clock_that_stays_as_it_was_set_is_followed(
        self, clock: TrustedClock, wall: Hand, passed: Hand, jump: float
    ) -> None:
        wall.now += jump
        assert clock() == 1_000_000
        wall.now, passed.now = wall.now + 60, 60
        assert clock() == 1_000_060 + jump

    def test_small_corrections_are_followed_at_once(self, clock: TrustedClock, wall: Hand) -> None:
        wall.now -= 30
        assert clock() == 999_970


@pytest.mark.live
class TestBroker:
    @pytest.fixture
    def wall(self) -> Hand:
        return Hand()

    @pytest.fixture
    def passed(self) -> Hand:
        return Hand(0.0)

    @pytest.fixture
    def running(self, wall: Hand, passed: Hand) -> Iterator[EmbeddedCluster]:
        with cluster(clock=wall, monotonic=passed) as running:
            yield running

    @pytest.fixture
    def peer(self, running: EmbeddedCluster) -> Iterator[Peer]:
        with Peer(running.brokers["broker-a"].address) as peer:
            yield peer

    def test_nobody_is_silent_because_the_clock_was_set(
        self, running: EmbeddedCluster, peer: Peer, wall: Hand, passed: Hand
    ) -> None:
        broker = running.brokers["broker-a"]
        peer.heartbeat("billing")
        wall.now += 150
        assert running.call(broker.groups.silent) == []
        assert running.call(running._cluster.nameserver.routes.expire) == []
        passed.now += 121
        wait_until(lambda: running.call(lambda: broker.groups.get("billing")) is None, "the silent member to be gone")

    def test_a_lock_lasts_a_minute_whatever_the_clock_says(
        self, running: EmbeddedCluster, peer: Peer, wall: Hand, passed: Hand
    ) -> None:
        queue = MessageQueue("orders", "broker-a", 0)

        def lock(client: str) -> int:
            wanted = bodies.LockRequest(consumer_group="billing", client_id=client, mq_set=[queue])
            answer = peer.ask(RequestCode.LOCK_BATCH_MQ, body=wanted.encode())
            return len(bodies.LockResponse.decode(answer.body).queues)

        assert lock("one") == 1
        wall.now += HOUR
        assert lock("two") == 0
        wall.now -= 2 * HOUR
        passed.now += 61
        assert lock("two") == 1

    def test_a_timer_is_not_early_and_later_ones_do_not_wait(
        self, running: EmbeddedCluster, peer: Peer, wall: Hand, passed: Hand
    ) -> None:
        broker = running.brokers["broker-a"]

        def timed(body: bytes) -> None:
            properties = encode_properties({"TIMER_DELAY_SEC": "5"})
            assert peer.put("orders", body, properties=properties).code == ResponseCode.SUCCESS

        def rounds() -> None:
            for _ in range(3):
                running.call(broker.scheduler.run_due)

        timed(b"before")
        wall.now += 4 * DAY
        rounds()
        timed(b"meanwhile")
        rounds()
        assert peer.pull("orders") == []
        wall.now, passed.now = wall.now - 4 * DAY + 1, 1
        timed(b"after")
        rounds()
        assert peer.pull("orders") == []
        wall.now, passed.now = wall.now + 7, 8
        rounds()
        assert [message.body for message in peer.pull("orders")] == [b"before", b"meanwhile", b"after"]
