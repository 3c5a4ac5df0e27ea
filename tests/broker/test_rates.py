"""Rates over different times, on a clock that is moved by hand."""

from collections.abc import Mapping

from evenq.broker.rates import DAY, HOUR, MINUTE, Growth, Key, Rates

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

    assert rates.over(MINUTE, KEY) == Growth(600, 10.0)
    assert rates.over(10, KEY).tps == 10.0
    assert 1.1 < rates.over(HOUR, KEY).tps < 1.2
    assert rates.over(DAY, KEY).sum == 4200


def test_a_young_counter_is_measured_since_the_start() -> None:
    counter = Counter()
    rates = Rates(counter, clock=lambda: counter.now)
    counter.now += 5
    counter.counts[KEY] = 50

    assert rates.over(MINUTE, KEY) == Growth(50, 10.0)
    assert rates.over(DAY, ("TOPIC_PUT_NUMS", "other")) == Growth(0, 0.0)


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
