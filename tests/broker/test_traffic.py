"""What is counted of a broker's traffic."""

from pathlib import Path

from evenq.broker.store.store import Incoming, Store
from evenq.broker.traffic import BROKER_GET, BROKER_PUT, GROUP_GET, TOPIC_PUT, Traffic


def test_messages_in_are_counted_by_topic_and_out_by_topic_and_group(tmp_path: Path) -> None:
    store = Store(tmp_path, "127.0.0.1:10911", clock=lambda: 1.0)
    traffic = Traffic(store, "DefaultCluster")
    for topic, queue_id in (("orders", 0), ("orders", 0), ("orders", 1), ("bills", 0)):
        store.append(Incoming(topic, queue_id, b"x", "", None, 0, "127.0.0.1:1"))
    store.settle()
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
