"""Groups on both brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evenq import Admin, ArgumentError, Message, PushConsumer
from evenq.client.admin import GroupSettings
from tests.client.admin.real_only import real_only
from tests.clusters import AnyCluster
from tests.realmq import JavaHost
from tests.waiting import wait_until

BOTH = ("broker-a", "broker-b")


def settings(admin: Admin, group: str) -> list[GroupSettings]:
    return [settings for settings in admin.groups() if settings.group == group]


def test_a_group_is_made_changed_and_deleted(admin: Admin, group: str) -> None:
    admin.create_group(group, max_retries=3, retry_queues=2)
    made = GroupSettings(group=group, brokers=BOTH, consume=True, broadcast=True, max_retries=3, retry_queues=2)
    assert settings(admin, group) == [made]
    admin.update_group(group, consume=False)
    changed = GroupSettings(group=group, brokers=BOTH, consume=False, broadcast=True, max_retries=3, retry_queues=2)
    assert settings(admin, group) == [changed]
    admin.delete_group(group)
    assert settings(admin, group) == []


def test_settings_that_differ_come_apart(admin: Admin, group: str) -> None:
    admin.create_group(group, max_retries=1, brokers=["broker-a"])
    admin.create_group(group, max_retries=2, brokers=["broker-b"])
    assert [(each.brokers, each.max_retries) for each in settings(admin, group)] == [
        (("broker-a",), 1),
        (("broker-b",), 2),
    ]


def test_groups_of_rocketmq_itself_are_listed_on_request(admin: Admin, group: str) -> None:
    admin.create_group(group)
    every = [each.group for each in admin.groups(system=True)]
    own = [each.group for each in admin.groups()]
    assert every == sorted(every)
    assert group in own
    assert {"TOOLS_CONSUMER", "SELF_TEST_C_GROUP", "CID_RMQ_SYS_TRANS"} <= set(every) - set(own)


def test_members_are_told_with_what_they_subscribe_to(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, java: JavaHost
) -> None:
    ours = PushConsumer(any_cluster.namesrv, group, instance="ours", begin="first")
    ours.subscribe(wide, "paid || refunded")
    ours.start(lambda messages: None)
    theirs = java.push(any_cluster.namesrv, group, {wide: "paid || refunded"}, instance="theirs")

    def both() -> bool:
        return {client.brokers for client in admin.members(group).members} == {BOTH} and len(
            admin.members(group).members
        ) == 2

    wait_until(both, "both members at both brokers")
    found = admin.members(group, compare=True)
    ours.close()
    assert found.differences == ()
    assert {client.client_id: (client.language, client.version) for client in found.members} == {
        ours.client_id: ("PYTHON", "5.4.0"),
        theirs.client_id: ("JAVA", "5.4.0"),
    }
    assert all(client.address.startswith("127.0.0.1:") for client in found.members)
    assert found.model == "CLUSTERING"
    assert found.subscriptions == {wide: "paid || refunded", f"%RETRY%{group}": "*"}


def test_java_members_too_are_compared(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, java: JavaHost
) -> None:
    with PushConsumer(any_cluster.namesrv, group, instance="ours", strategy="AVG_BY_CIRCLE") as ours:
        ours.subscribe(wide, "paid")
        ours.start(lambda messages: None)
        theirs = java.push(any_cluster.namesrv, group, {wide: "*"}, instance="theirs")
        expected = (
            f"subscription of topic {wide}: * ({theirs.client_id}), paid ({ours.client_id})",
            f"strategy: AVG ({theirs.client_id}), AVG_BY_CIRCLE ({ours.client_id})",
        )
        wait_until(lambda: admin.members(group, compare=True).differences == expected, "the differences")


def test_a_group_without_members_has_none(admin: Admin, group: str) -> None:
    admin.create_group(group)
    found = admin.members(group)
    assert (found.members, found.subscriptions, found.model, found.begin) == ((), {}, None, None)


def test_a_group_with_members_online_is_not_deleted(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str
) -> None:
    with PushConsumer(any_cluster.namesrv, group, instance="c1") as consumer:
        consumer.subscribe(wide)
        consumer.start(lambda messages: None)
        with pytest.raises(ArgumentError, match=rf"members online \({consumer.client_id}\): stop them first"):
            admin.delete_group(group)
        assert f"%RETRY%{group}" in admin.topics(system=True)
    wait_until(lambda: not admin.members(group).members, "the member gone")
    admin.delete_group(group)
    assert settings(admin, group) == []
    assert f"%RETRY%{group}" not in admin.topics(system=True)


def test_the_producers_of_a_group_are_told(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, java: JavaHost
) -> None:
    producer = java.producer(any_cluster.namesrv, group)
    producer.send([Message(wide, b"x")] * 4)
    # Java's producers make themselves known after 1 s, or 30 s later
    found = wait_until(lambda: admin.producers(group), "a producer")
    assert [(client.client_id, client.language, client.version) for client in found[group]] == [
        (producer.client_id, "JAVA", "5.4.0")
    ]
    assert admin.producers(f"{group}-other") == {}


@real_only
def test_all_producers_are_told_by_group(
    any_cluster: AnyCluster, admin: Admin, wide: str, group: str, java: JavaHost
) -> None:
    producer = java.producer(any_cluster.namesrv, group)
    producer.send([Message(wide, b"x")] * 4)
    wait_until(lambda: [len(one.brokers) for one in admin.producers().get(group, ())] == [2], "a producer at both")
    assert [client.client_id for client in admin.producers()[group]] == [producer.client_id]
    assert admin.producers()[group] == admin.producers(group)[group]


def test_the_consumers_of_a_topic_are_told(admin: Admin, wide: str, group: str) -> None:
    admin.create_group(group)
    assert admin.consumers(wide) == ()
    admin.reset(group, wide, "first")
    assert admin.consumers(wide) == (group,)


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (lambda admin: admin.create_group("g", max_retries=-1), "max_retries=-1: give 0 or more"),
        (lambda admin: admin.create_group("g", retry_queues=0), "retry_queues=0: give 1 or more"),
        (lambda admin: admin.update_group("never-there", consume=True), "group='never-there': no broker knows"),
        (lambda admin: admin.delete_group("never-there"), "group='never-there': no broker knows"),
    ],
)
def test_what_cannot_be_is_refused_here(admin: Admin, act: Callable[[Admin], object], complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        act(admin)
