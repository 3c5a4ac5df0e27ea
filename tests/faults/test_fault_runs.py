"""Groups under random faults: nothing is lost, every queue has a holder, nothing comes twice without a reason."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from evenq.broker.state import groups, locks
from evenq.testing import EmbeddedCluster, cluster
from tests.clusters import create_topic
from tests.faults.run import HOLDER_S, FaultRun, Outcome
from tests.harness.scale import scaled
from tests.realmq import RealCluster

pytestmark = pytest.mark.live

QUEUES = 6
TOPIC, GROUP = "orders", "billing"
FAULTS = scaled(5, 8)

# in `make test` one of them; each starts a broker several times
EVERY_CASE = list(product(["push", "lite", "orderly"], ["AVG", "STICKY"]))
JAVA_CASES = EVERY_CASE[: scaled(1, 6)]

every_kind = pytest.mark.parametrize("kind", ["push", "orderly", "lite"])
every_strategy = pytest.mark.parametrize("strategy", ["AVG", "STICKY"])


def check(outcome: Outcome) -> None:
    print(outcome)
    assert outcome.sent > 0, outcome
    assert not outcome.lost, outcome
    assert not outcome.no_holder, outcome
    assert outcome.holder_s < HOLDER_S, outcome
    assert not outcome.overlaps, outcome
    assert not outcome.unexplained, outcome


def cut_some(embedded: EmbeddedCluster, rng: random.Random) -> None:
    """Close half of all connections without a goodbye."""

    def close() -> None:
        connections = [each for broker in embedded.brokers.values() for each in broker.server.connections]
        for connection in rng.sample(connections, len(connections) // 2):
            connection.close()

    embedded.call(close)


def names(brokers: int = 1) -> set[str]:
    return {f"broker-{broker}-{number}" for broker in "ab"[:brokers] for number in range(QUEUES // brokers)}


@pytest.mark.parametrize("number", range(scaled(1, 5)))
@every_strategy
@every_kind
def test_a_group_survives_random_faults(
    kind: str, strategy: str, number: int, rng: random.Random, tmp_path: Path
) -> None:
    brokers = 1 + number % 2
    with cluster(brokers=brokers) as embedded:
        create_topic(embedded.namesrv, TOPIC, queues=QUEUES // brokers)
        run = FaultRun(
            rng, embedded, TOPIC, GROUP, tmp_path,
            strategy=strategy, kind=kind, queues=names(brokers), cut=lambda rng: cut_some(embedded, rng),
        )  # fmt: skip
        check(run.run(FAULTS))


@pytest.mark.parametrize(("kind", "strategy"), EVERY_CASE[-scaled(1, 6) :])
def test_members_that_were_stopped_for_longer_than_their_locks(
    kind: str, strategy: str, rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker gives their locks to others and takes them for gone: with all times shortened, while they stand."""
    monkeypatch.setattr(locks, "LOCK_SECONDS", 4.0)
    monkeypatch.setattr(groups, "SILENCE_SECONDS", 4.0)
    with cluster(brokers=1) as embedded:
        create_topic(embedded.namesrv, TOPIC, queues=QUEUES)
        run = FaultRun(
            rng, embedded, TOPIC, GROUP, tmp_path,
            strategy=strategy, kind=kind, queues=names(), lease_s=2.0, stop_s=7.0,
        )  # fmt: skip
        check(run.run(FAULTS))


@pytest.mark.interop
@pytest.mark.parametrize(("kind", "strategy"), JAVA_CASES)
def test_a_group_survives_random_faults_of_the_java_broker(
    kind: str, strategy: str, rng: random.Random, tmp_path: Path
) -> None:
    with RealCluster(brokers=1) as real:
        create_topic(real.namesrv, TOPIC, queues=QUEUES)
        run = FaultRun(
            rng, real, TOPIC, GROUP, tmp_path,
            strategy=strategy, kind=kind, queues=names(), kill_broker=real.kill_broker,
        )  # fmt: skip
        check(run.run(FAULTS))


@pytest.mark.parametrize(("strategy", "times"), [("AVG", 1), ("AVG", 2), ("STICKY", 1), ("STICKY", 2)])
def test_a_group_that_died_as_a_whole_goes_on_at_once(
    strategy: str, times: int, rng: random.Random, tmp_path: Path
) -> None:
    """Nobody can unlock in the names of the dead: their locks stay for a minute, and nobody may wait for that. Those
    that were taken instead are left behind when the group dies again."""
    with cluster(brokers=1) as embedded:
        create_topic(embedded.namesrv, TOPIC, queues=QUEUES)
        run = FaultRun(rng, embedded, TOPIC, GROUP, tmp_path, strategy=strategy, kind="push", queues=names())
        check(run.run_after_all_died(times))
