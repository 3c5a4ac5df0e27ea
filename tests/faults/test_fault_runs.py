"""Groups under random faults: nothing is lost, every queue has a holder, nothing comes twice without a reason."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from evenq.testing import cluster
from tests.clusters import create_topic
from tests.faults.run import HOLDER_S, FaultRun
from tests.harness.scale import scaled

pytestmark = pytest.mark.live

QUEUES = 6
KINDS = ["push", "orderly", "lite"]


@pytest.mark.parametrize("number", range(scaled(1, 5)))
@pytest.mark.parametrize("strategy", ["AVG", "STICKY"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_survives_random_faults(
    kind: str, strategy: str, number: int, rng: random.Random, tmp_path: Path
) -> None:
    with cluster(brokers=1) as embedded:
        create_topic(embedded.namesrv, "orders", queues=QUEUES)
        run = FaultRun(
            rng,
            embedded,
            "orders",
            "billing",
            tmp_path,
            strategy=strategy,
            kind=kind,
            queues={f"broker-a-{number}" for number in range(QUEUES)},
        )
        outcome = run.run(faults=scaled(4, 8))
    print(outcome)
    assert not outcome.lost, outcome
    assert not outcome.no_holder, outcome
    assert outcome.holder_s < HOLDER_S, outcome
    assert not outcome.overlaps, outcome
    assert not outcome.unexplained, outcome
