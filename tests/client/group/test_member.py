"""What a member is told before it joins."""

from __future__ import annotations

import pytest

from evenq import ArgumentError, LitePullConsumer, MessageQueue, PushConsumer, StateError
from evenq.balance import strategy
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer])
def test_the_strategy_may_be_set_until_the_start(
    kind: type[PushConsumer] | type[LitePullConsumer], embedded_cluster: AnyCluster, topic: str, group: str
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=2)
    chosen = MessageQueue(topic, "broker-b", 1)
    with kind(embedded_cluster.namesrv, group) as consumer:
        assert consumer.strategy == "AVG"
        with pytest.raises(ArgumentError, match="strategy='AVERAGE'"):
            consumer.strategy = "AVERAGE"
        assert consumer.strategy == "AVG"
        consumer.strategy = fixed = strategy("CONFIG", queues=[chosen])
        consumer.subscribe(topic)
        consumer.start(lambda messages: None) if isinstance(consumer, PushConsumer) else consumer.start()
        wait_until(lambda: consumer.queues == [chosen], "the queue that the strategy gives")
        with pytest.raises(StateError, match="set the strategy before start"):
            consumer.strategy = "STICKY"
        assert consumer.strategy is fixed
