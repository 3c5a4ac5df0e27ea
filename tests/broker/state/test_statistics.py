"""What is counted, and rates over different times, on a clock that is moved by hand."""

from collections.abc import Mapping
from pathlib import Path

from evenq.broker.state.statistics import (
    BROKER_GET,
    BROKER_PUT,
    DAY,
    GROUP_GET,
    HOUR,
    MINUTE,
    TOPIC_PUT,
    Key,
    Rate,
    Rates,
    Traffic,
)
from evenq.broker.store.store import NewMessage, Store

KEY = ("TOPIC_PUT_NUMS", "orders")


class Counter:
    def __init__(self) -> None:
        self.now = 1000.0
        self.counts: dict[Key, int] = {}

    def get(self, key: Key) -> int | None:
        return self.counts.get(key)

    def all(self) -> Mapping[Key, int]:
        return dict(self.counts)


def test_growth_is_measured_over_the_time_asked_for() -> None:
    counter = Counter()
    rates = Rates(counter, clock=lambda: counter.now)
    # one a second for an hour, then ten a second for a minute
    for second in range(3660):
        counter.now += 1
        counter.counts[KEY] = counter.counts.get(KEY, 0) + (1 if second < 3600 else 10)
        rates.tick()

    assert rates.over(MINUTE, KEY) == Rate(600, 10.0)
    assert rates.over(10, KEY).tps == 10.0
    assert 1.1 < rates.over(HOUR, KEY).tps < 1.2
    assert rates.over(DAY, KEY).sum == 4200


def test_a_young_counter_is_measured_since_the_start() -> None:
    counter = Counter()
    rates = Rates(counter, clock=lambda: counter.now)
    counter.now += 5
    counter.counts[KEY] = 50

    assert rates.over(MINUTE, KEY) == Rate(50, 10.0)
    assert rates.over(DAY, ("TOPIC_PUT_NUMS", "other")) == Rate(0, 0.0)


def test_a_counter_that_begins_anew_has_not_shrunk() -> None:
    counter = Counter()
    counter.counts[KEY] = 100
    rates = Rates(counter, clock=lambda: counter.now)
    counter.counts[KEY] = 3
    counter.now += 10

    assert rates.over(MINUTE, KEY).sum == 0


def test_looks_do_not_pile_up() -> None:
    counter = Counter()
    seen: list[int] = []
    counts = counter.all
    counter.all = lambda: (seen.append(1), counts())[1]  # type: ignore[method-assign,func-returns-value]
    rates = Rates(counter, clock=lambda: counter.now)
    for _ in range(1000):
        counter.now += 0.5
        rates.tick()

    assert len(seen) == 51


def test_messages_in_are_counted_by_topic_and_out_by_topic_and_group(tmp_path: Path) -> None:
    store = Store(tmp_path, "127.0.0.1:10911", clock=lambda: 1.0)
    traffic = Traffic(store, "DefaultCluster")
    for topic, queue_id in (("orders", 0), ("orders", 0), ("orders", 1), ("bills", 0)):
        store.append(NewMessage(topic, queue_id, b"x", "", None, 0, "127.0.0.1:1"))
    store.commit()
    traffic.sent("orders", "billing", 2)
    traffic.sent("orders", "billing", 1)
    traffic.sent("orders@eu", "audit", 4)

    counts = {
        (TOPIC_PUT, "orders"): 3,
        (TOPIC_PUT, "bills"): 1,
        (GROUP_GET, "orders@billing"): 3,
        (GROUP_GET, "orders@eu@audit"): 4,
        (BROKER_PUT, "DefaultCluster"): 4,
        (BROKER_GET, "DefaultCluster"): 7,
    }
    assert traffic.all() == counts
    assert {key: traffic.get(key) for key in counts} == counts
    for nothing in ((TOPIC_PUT, "none"), (GROUP_GET, "orders@none"), (BROKER_PUT, "other"), ("?", "orders")):
        assert traffic.get(nothing) is None
    store.close()
