"""What members must have in common is compared as Java and evenq members tell it."""

from __future__ import annotations

from functools import partial

import pytest

from evenq.balance import StrategyLike, strategy
from evenq.balance.rooms import room_of
from evenq.client.agreement import MODEL, STRATEGY, Told, describe, differences
from evenq.model import MessageQueue
from evenq.protocol.bodies import RunningInfo
from evenq.protocol.filters import SQL92, TAG, subscription

JAVA = "org.apache.rocketmq.client.consumer.rebalance."


def by_hand(group: str, member: str, queues: object, members: object) -> list[MessageQueue]:
    return []


def told(
    member: str, rule: str | None = "AVG", model: str = "CLUSTERING", kind: str = TAG, **subscriptions: str
) -> Told:
    properties = {MODEL: model} | ({STRATEGY: rule} if rule is not None else {})
    wanted = [subscription(topic, text, version=0, expression_type=kind) for topic, text in subscriptions.items()]
    return Told.by(member, RunningInfo(properties=properties, subscription_set=wanted))


def found(*members: Told) -> list[str]:
    return [str(each) for each in differences(members)]


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ("AVG", "AVG"),
        ("STICKY", "STICKY"),
        (strategy("CONSISTENT_HASH"), "CONSISTENT_HASH(virtual_nodes=10, hash=evenq.balance.hashing.ring_hash)"),
        (strategy("CONFIG", queues=[MessageQueue("t", "b", 0)]), "CONFIG"),
        (
            strategy("MACHINE_ROOM_NEARBY", inner=by_hand, broker_room=room_of, member_room=room_of),
            f"MACHINE_ROOM_NEARBY(inner={__name__}.by_hand, member_room=evenq.balance.rooms.room_of, "
            "broker_room=evenq.balance.rooms.room_of)",
        ),
        (by_hand, f"{__name__}.by_hand"),
        (partial(by_hand, "g"), "functools.partial"),
    ],
    ids=["AVG", "STICKY", "CONSISTENT_HASH", "CONFIG", "nearby", "function", "partial"],
)
def test_a_strategy_is_described_with_its_settings(chosen: StrategyLike, text: str) -> None:
    assert describe(chosen) == text


def test_members_that_agree_do_not_differ() -> None:
    ours = told("a", orders="paid || refunded", bills="*")
    theirs = told("b", JAVA + "AllocateMessageQueueAveragely@4f2b", orders="refunded||paid", bills="*")
    silent = told("c", None, orders="refunded||paid", bills="*")
    retries = Told.by("d", RunningInfo(subscription_set=[subscription("%RETRY%g", version=0)]))
    assert found(ours, theirs, silent) == []
    assert retries.subscriptions == {}


def test_different_subscriptions_are_named_with_members() -> None:
    assert found(told("a", orders="paid"), told("b", orders="*"), told("c", orders="paid", bills="*")) == [
        "subscription of topic bills: * (c), none (a, b)",
        "subscription of topic orders: * (b), paid (a, c)",
    ]
    assert found(told("a", orders="total > 1", kind=SQL92), *(told(name, orders="*") for name in "bcdef")) == [
        "subscription of topic orders: * (b, c, d and 2 more), SQL92 total > 1 (a)"
    ]


def test_different_settings_of_one_strategy_are_named() -> None:
    few, many = (describe(strategy("CONSISTENT_HASH", virtual_nodes=nodes)) for nodes in (10, 20))
    assert found(told("a", few), told("b", many)) == [
        "settings of the strategy: virtual_nodes=10, hash=evenq.balance.hashing.ring_hash (a), "
        "virtual_nodes=20, hash=evenq.balance.hashing.ring_hash (b)"
    ]
    # Java members name the class of their strategy only
    assert found(told("a", few), told("b", JAVA + "AllocateMessageQueueConsistentHash@1")) == []


def test_different_strategies_and_models_are_named() -> None:
    circle = told("b", JAVA + "AllocateMessageQueueAveragelyByCircle@1")
    assert found(told("a"), circle) == ["strategy: AVG (a), AVG_BY_CIRCLE (b)"]
    assert found(told("a"), told("b", "STICKY")) == ["strategy: AVG (a), STICKY (b)"]
    assert found(told("a"), told("b", None, "BROADCASTING")) == ["message model: BROADCASTING (b), CLUSTERING (a)"]


def test_sticky_members_go_by_avg_beside_java() -> None:
    java = told("b", JAVA + "AllocateMessageQueueAveragely@1")
    assert found(told("a", "STICKY"), java) == []
    assert found(told("a", "STICKY"), told("c", "com.acme.Rule$$Lambda/0x1@1")) == []


def test_members_of_config_have_lists_of_their_own() -> None:
    lists = [describe(strategy("CONFIG", queues=[MessageQueue("t", "b", n)])) for n in range(2)]
    assert found(told("a", lists[0]), told("b", lists[1])) == []
