"""Fault avoidance: hand-worked cases with a moved clock, and a model without any memory of its own work."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenq.balance import PublishRoute, QueueChooser, queue_chooser
from evenq.errors import ArgumentError
from tests.balance.cases import StartAt, queues_of
from tests.harness.scale import examples


class Clock:
    def __init__(self) -> None:
        self.now = 5_000_000.0

    def __call__(self) -> float:
        return self.now


def chooser_of(preset: Any, clock: Clock, random: Random | None = None) -> QueueChooser:
    return queue_chooser(preset, clock=clock, random=random or StartAt(0))


def play(preset: str, script: str, brokers: str = "abc") -> list[str]:
    """Run a script against a route of two queues a broker, the counters at 0; gives the queues chosen.

    ========== =============================================
    ``?``      choose for a first try
    ``?a``     choose for a retry after broker a failed
    ``a=20``   a send to a took 20 ms
    ``a!``     a send to a failed, with an answer
    ``a!!``    a send to a failed, without any answer
    ``+500``   500 ms go by
    ``a~`` ``a^``  a probe of a was not answered, answered
    ========== =============================================
    """
    clock = Clock()
    chooser = chooser_of(preset, clock)
    route = PublishRoute.of(queues_of(*brokers, each=2))
    chosen = []
    for step in script.split():
        match step[0], step[1:]:
            case "?", last:
                queue = chooser.choose(route, last or None)
                chosen.append(f"{queue.broker}{queue.queue_id}")
            case "+", milliseconds:
                clock.now += int(milliseconds)
            case broker, "!":
                chooser.record(broker, 3, failed=True)
            case broker, "!!":
                chooser.record(broker, 3, reachable=False)
            case broker, "~" | "^" as answer:
                chooser.probed(broker, answered=answer == "^")
            case broker, latency:
                chooser.record(broker, int(latency.removeprefix("=")))
    return chosen


CLASSIC = {
    "nothing known": ("? ? ? ? ? ? ?", "a0 a1 b0 b1 c0 c1 a0"),
    "fast enough": ("a=549 ? ?", "a0 a1"),
    # Position 0 is a0: skipped with a1, the counter then stands after b0.
    "slow": ("a=550 ? ? ? ? ?", "b0 b1 c0 c1 b0"),
    "slow, and over": ("a=550 +29999 ? ? +1 ? ? ?", "b0 b1 c0 c1 a0"),
    "failed": ("a! +599999 ? ? ? ? ? +1 ? ? ? ?", "b0 b1 c0 c1 b0 b1 c0 c1 a0"),
    "a good send ends it": ("a! ? a=10 ? ? ? ?", "b0 b1 c0 c1 a0"),
    "a better send shortens it": ("a! +1000 a=600 +29999 ? +1 ? ? ? ?", "b0 b1 c0 c1 a0"),
    # Nobody said that a is slow: the retry stays with it, going round from the counter.
    "retry, last one available": ("?a ?a ?a ?", "a0 a1 a0 a1"),
    # c (10 ms) before b (20 ms), both before a; half of three is one: c, by the counter modulo 2.
    "retry, last one isolated": ("b=20 c=10 a! ?a ?a ?a", "c0 c1 c0"),
    "retry, the order follows the latest sends": ("b=20 c=10 a! ?a b=5 ?a ?a", "c0 b1 b0"),
    # Of two known ones half is one, and c is not known at all.
    "retry, few known": ("b=20 a! ?a ?a", "b0 b1"),
    "retry, only the failed one known": ("a! ?a ?a", "a0 a1"),
    "retry, none known, not in the route": ("?z ?z", "a0 a1"),
    # Half of four is two: d, which has no queue here and is forgotten (plain a0); then c alone is the better half.
    "retry, the best has no queue here": ("b=20 c=10 d=1 a! ?a ?a ?a", "a0 c1 c0"),
    # All isolated: by measured latency a (it failed after 3 ms), b (550), c (1000).
    "all isolated": ("a! +10 b=550 c=1000 ? ? ?", "a0 a1 a0"),
    # a0 because a has the lowest latency; then b is free, and from position 1 on b0 is the first queue that is.
    "all isolated, the first to return": ("a! b=550 c=1000 ? +30000 ? ? ? +30000 ? ?", "a0 b0 b1 b0 b1 c0"),
    # Same latency: the one whose isolation ends earlier.
    "all isolated, equally slow": ("c=600 +1 b=600 +1 a=600 ? ?", "c0 c1"),
    # b was slower than c, but is free again.
    "retry, availability before latency": ("b=600 +30000 c=550 a! ?a ?a", "b0 b1"),
}


@pytest.mark.parametrize("case", CLASSIC)
def test_classic(case: str) -> None:
    script, expected = CLASSIC[case]
    assert play("classic", script) == expected.split()


def test_classic_goes_round_the_better_half() -> None:
    chosen = play("classic", "d=800 c=700 b=600 a=550 ? ? ? ?", brokers="abcd")
    assert chosen == ["a0", "b1", "a0", "b1"]


def test_classic_breaks_ties_by_chance() -> None:
    route = PublishRoute.of(queues_of("a", "b"))

    def first(seed: int) -> str:
        chooser = chooser_of("classic", Clock(), Random(seed))
        chooser.record("a", 0, failed=True)
        chooser.record("b", 0, failed=True)
        return chooser.choose(route).broker

    chosen = [first(seed) for seed in range(40)]
    assert set(chosen) == {"a", "b"}
    assert chosen == [first(seed) for seed in range(40)]


V5 = {
    "nothing known": ("? ? ? ? ? ? ?", "a0 a1 b0 b1 c0 c1 a0"),
    "fast enough": ("a=549 ? ?", "a0 a1"),
    "slow, and over": ("a=550 +1999 ? ? +1 ? ? ?", "b0 b1 c0 c1 a0"),
    "failed": ("a! +9999 ? ? ? ? ? +1 ? ? ? ?", "b0 b1 c0 c1 b0 b1 c0 c1 a0"),
    "a good send does not end it": ("a! a=10 +9999 ? ? ? ? ?", "b0 b1 c0 c1 b0"),
    "a better send does not shorten it": ("a! +1000 a=550 +8999 ? +1 ? ? ? ?", "b0 b1 c0 c1 a0"),
    "a worse send makes it longer": ("a=550 +1000 a! +9999 ? ? ? ? ? +1 ? ? ? ?", "b0 b1 c0 c1 b0 b1 c0 c1 a0"),
    "retry, never the last one": ("?a ?b ?c ?", "b0 c0 a0 a1"),
    "retry, another one isolated": ("b! ?a ?a ?", "c0 c1 a0"),
    # None is available, all would answer: any but the last.
    "retry, all isolated": ("a! b! c! ?a ?a ?b ?", "b0 b1 c0 c1"),
    "retry, all isolated, one unreachable": ("a! b!! c! ?a ?a ?", "c0 c1 a0"),
    # None answers: better any other than the one that has just failed.
    "retry, all unreachable": ("a!! b!! c!! ?a ?b ?", "b0 c0 c1"),
    "all isolated, first try": ("a! b! c! ? ?", "a0 a1"),
    "unreachable, isolation over": ("a!! +60000 ? ? ? ? ?", "b0 b1 c0 c1 b0"),
    "unreachable, probe not answered": ("a!! +60000 a~ ? ? ? ? ?", "b0 b1 c0 c1 b0"),
    "unreachable, probe answered": ("a!! +60000 ? a^ ? ? ? ?", "b0 b1 c0 c1 a0"),
    # An answer ends the doubt whether it is there, not the isolation.
    "unreachable, probe answered early": ("a!! a^ +9999 ? ? +1 ? ? ?", "b0 b1 c0 c1 a0"),
    "unreachable, a send went through": ("a!! +10000 a=5 ? ?", "a0 a1"),
    "a probe of one not known": ("z^ ? ?", "a0 a1"),
}


@pytest.mark.parametrize("case", V5)
def test_v5(case: str) -> None:
    script, expected = V5[case]
    assert play("v5", script) == expected.split()


@pytest.mark.parametrize("preset", ["classic", "v5"])
def test_the_only_broker_is_used_whatever_it_did(preset: str) -> None:
    assert play(preset, "a!! ?a ?a ?", brokers="a") == ["a0", "a1", "a0"]


FAILED = -1
TABLES = {
    "classic": {
        50: 0,
        100: 0,
        550: 30_000,
        1000: 60_000,
        2000: 120_000,
        3000: 180_000,
        15_000: 600_000,
        FAILED: 600_000,
    },
    "v5": {
        50: 0,
        100: 0,
        550: 2000,
        1800: 5000,
        3000: 6000,
        5000: 10_000,
        15_000: 30_000,
        FAILED: 10_000,
    },
}


def away(preset: str, latency: float) -> int:
    """The table read from its end, as the Java client does."""
    return next((ms for at_least, ms in reversed(TABLES[preset].items()) if 0 <= at_least <= latency), 0)


def used(preset: str, latency: float, *, after: float) -> bool:
    """Whether a broker that took so long is in use so much later."""
    clock = Clock()
    chooser = chooser_of(preset, clock)
    route = PublishRoute.of(queues_of("a", "b"))
    chooser.record("a", 1 if latency == FAILED else latency, failed=latency == FAILED)
    clock.now += after
    return "a" in {chooser.choose(route).broker for _ in range(2)}


@pytest.mark.parametrize(("preset", "latency"), [(preset, latency) for preset in TABLES for latency in TABLES[preset]])
def test_the_tables(preset: str, latency: int) -> None:
    row = TABLES[preset][latency]
    assert used(preset, latency, after=row)
    assert not row or not used(preset, latency, after=row - 1)
    if latency != FAILED:
        below = away(preset, latency - 1)
        assert used(preset, latency - 1, after=below)
        assert not below or not used(preset, latency - 1, after=below - 1)


def test_probes_are_due_every_two_seconds_until_answered() -> None:
    clock = Clock()
    chooser = chooser_of("v5", clock)
    chooser.record("a", 3, failed=True, reachable=False)
    chooser.record("b", 3, failed=True)
    assert chooser.due_probes() == ["a"]
    assert chooser.due_probes() == []
    chooser.probed("a", answered=False)
    clock.now += 1999
    assert chooser.due_probes() == []
    clock.now += 1
    assert chooser.due_probes() == ["a"]
    chooser.probed("a", answered=True)
    clock.now += 60_000
    assert chooser.due_probes() == []


def test_classic_knows_no_probes() -> None:
    chooser = chooser_of("classic", Clock())
    chooser.record("a", 3, failed=True, reachable=False)
    assert chooser.due_probes() == []


@pytest.mark.parametrize("preset", ["classic", "v5"])
def test_a_forgotten_broker_is_like_new(preset: str) -> None:
    chooser = chooser_of(preset, Clock())
    route = PublishRoute.of(queues_of("a", "b"))
    chooser.record("a", 3, failed=True, reachable=False)
    assert chooser.choose(route).broker == "b"
    chooser.forget("a")
    chooser.forget("never seen")
    assert chooser.choose(route).broker == "a"
    assert chooser.due_probes() == []


@dataclass
class Model:
    """The same rules without anything kept between choices: every choice looks at every queue and broker."""

    preset: str
    now: float = 5_000_000.0
    at: int = 0
    turn: int = 0
    latency: dict[str, float] = field(default_factory=dict)
    until: dict[str, float] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)

    def record(self, broker: str, latency: float, failed: bool, reachable: bool) -> None:
        counted = {"classic": 30_000, "v5": 10_000}[self.preset] if failed else latency
        end = self.now + away(self.preset, counted)
        self.latency[broker] = latency
        if self.preset == "classic":
            self.until[broker] = end
        else:
            self.until[broker] = max(self.until.get(broker, -inf), end if end > self.now else -inf)
            (self.unreachable.discard if reachable else self.unreachable.add)(broker)

    def isolated(self, broker: str) -> bool:
        return self.now < self.until.get(broker, -inf)

    def scan(self, queues: list[Any], fits: Any) -> Any:
        for step in range(len(queues)):
            queue = queues[(self.at + step) % len(queues)]
            if fits(queue.broker):
                self.at += step + 1
                return queue
        return None

    def choose(self, queues: list[Any], last: str | None) -> Any:
        return (self.classic if self.preset == "classic" else self.v5)(queues, last)

    def classic(self, queues: list[Any], last: str | None) -> Any:
        found = self.scan(queues, lambda broker: not self.isolated(broker) and last in (None, broker))
        if found is None and self.latency:
            ranked = sorted(
                self.latency, key=lambda name: (self.isolated(name), self.latency[name], self.until[name], name)
            )
            broker = ranked[self.turn % max(1, len(ranked) // 2)]
            self.turn += 1
            own = [queue for queue in queues if queue.broker == broker]
            if own:
                found = own[self.at % len(own)]
                self.at += 1
            else:
                del self.latency[broker], self.until[broker]
        return found or self.scan(queues, lambda broker: True)

    def v5(self, queues: list[Any], last: str | None) -> Any:
        def reachable(broker: str) -> bool:
            return broker not in self.unreachable and broker != last

        return (
            self.scan(queues, lambda broker: reachable(broker) and not self.isolated(broker))
            or self.scan(queues, reachable)
            or self.scan(queues, lambda broker: broker != last)
            or self.scan(queues, lambda broker: True)
        )


some_broker = st.sampled_from("abcdz")
steps = st.one_of(
    st.tuples(st.just("choose"), st.one_of(st.none(), some_broker)),
    st.tuples(st.just("record"), some_broker, st.sampled_from([5, 120, 550, 700, 1800, 5000]), st.booleans()),
    st.tuples(st.just("lost"), some_broker),
    st.tuples(st.just("probed"), some_broker),
    st.tuples(st.just("wait"), st.sampled_from([1, 1999, 2000, 10_000, 30_000, 600_000])),
)


@pytest.mark.parametrize("preset", ["classic", "v5"])
@settings(max_examples=examples(300))
@given(script=st.lists(steps, max_size=40), layout=st.lists(st.sampled_from("abcd"), min_size=1, max_size=8))
def test_what_is_kept_between_choices_changes_no_choice(
    preset: str, script: list[tuple[Any, ...]], layout: list[str]
) -> None:
    clock, model = Clock(), Model(preset)
    chooser = chooser_of(preset, clock)
    queues = [queue for n, broker in enumerate(layout) for queue in queues_of(broker, topic="orders", each=n + 1)[n:]]
    route = PublishRoute.of(queues)
    for action, *args in script:
        if action == "choose":
            assert chooser.choose(route, *args) == model.choose(queues, *args)
        elif action == "record":
            broker, latency, failed = args
            chooser.record(broker, latency, failed=failed)
            model.record(broker, latency, failed, True)
        elif action == "lost":
            chooser.record(args[0], 3, failed=True, reachable=False)
            model.record(args[0], 3, True, False)
        elif action == "probed":
            chooser.probed(args[0], answered=True)
            model.unreachable.discard(args[0])
        else:
            clock.now += args[0]
            model.now += args[0]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (False, "RoundRobinChooser"),
        (None, "RoundRobinChooser"),
        (True, "ClassicFaultAvoidance"),
        ("classic", "ClassicFaultAvoidance"),
        ("v5", "V5FaultAvoidance"),
    ],
)
def test_presets(value: Any, kind: str) -> None:
    assert type(chooser_of(value, Clock())).__name__ == kind


def test_an_unknown_preset_is_answered_with_the_choices() -> None:
    with pytest.raises(ArgumentError, match="send_latency_fault='v4': give False or one of classic, v5"):
        chooser_of("v4", Clock())
