"""The harness itself: Java clients, the admin tool and the servers do what the other interop tests count on."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenq.balance import Strategy, assign, strategy
from evenq.model import Begin, Message, MessageQueue
from tests.clusters import AnyCluster, create_topic
from tests.realmq import JavaError, JavaHost, JavaMember, RealCluster
from tests.waiting import wait_until


def bodies(*members: JavaMember) -> Counter[bytes]:
    return Counter(received.message.body for member in members for received in member.messages)


def all_queues(cluster: AnyCluster, topic: str, count: int) -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for broker in sorted(cluster.brokers) for number in range(count)]


def test_java_members_share_what_a_java_producer_sends(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=4)
    members = [java.push(any_cluster.namesrv, group, topic, begin=Begin.FIRST) for _ in range(2)]
    producer = java.producer(any_cluster.namesrv)
    wait_until(lambda: [len(member.assignment()) for member in members] == [4, 4], "4 queues for each of the members")
    assert sorted(members[0].assignment() + members[1].assignment()) == all_queues(any_cluster, topic, 4)

    sent: list[Message] = []
    for mode in ("sync", "async", "oneway", "batch"):
        batch = [
            Message(
                topic,
                f"{mode} {n} ".encode() + bytes(range(256)),
                keys=[f"{mode}-{n}"],
                tags=mode,
                properties={"é": "ü"},
            )
            for n in range(20)
        ]
        receipts = producer.send(batch, mode)
        assert len(receipts) == {"oneway": 0, "batch": 1}.get(mode, 20)
        assert all(receipt.ok and receipt.queue.topic == topic for receipt in receipts)
        sent += batch
    wait_until(lambda: len(bodies(*members)) == len(sent), lambda: f"all messages: {bodies(*members)}")

    assert bodies(*members) == Counter(message.body for message in sent)
    by_key = {message.keys: message for message in sent}
    for member in members:
        held = member.assignment()
        for received in member.messages:
            assert received.message.queue in held
            assert received.message.properties.items() >= by_key[received.message.keys].wire_properties().items()


ROOMS = {"broker-a": "east", "broker-b": "west", "one": "east", "two": "west"}


@pytest.mark.parametrize(
    ("chosen", "settings"),
    [
        (strategy("AVG"), {}),
        (strategy("AVG_BY_CIRCLE"), {}),
        (strategy("CONSISTENT_HASH", virtual_nodes=3), {"virtual_nodes": 3}),
        (
            strategy(
                "MACHINE_ROOM_NEARBY",
                inner="AVG_BY_CIRCLE",
                broker_room=ROOMS.__getitem__,
                member_room=lambda member: ROOMS[member.partition("@")[2]],
            ),
            {"inner": "AVG_BY_CIRCLE", "broker_rooms": ROOMS, "member_rooms": ROOMS},
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_java_members_use_the_strategy_they_are_given(
    embedded_cluster: AnyCluster, java: JavaHost, topic: str, group: str, chosen: Strategy, settings: dict[str, Any]
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=5)
    name = chosen.name.partition("-")[0]
    members = [
        java.push(embedded_cluster.namesrv, group, topic, strategy=name, instance=instance, **settings)
        for instance in ("one", "two")
    ]
    queues = all_queues(embedded_cluster, topic, 5)
    shares = assign(chosen, queues, [member.client_id for member in members])
    wanted = {member: sorted(share) for member, share in shares.items()}

    def held() -> dict[str, list[MessageQueue]]:
        return {member.client_id: member.assignment() for member in members}

    wait_until(lambda: held() == wanted, lambda: f"the shares {wanted}: there is {held()}")


def test_lite_pull_reads_a_flood_in_order(any_cluster: AnyCluster, java: JavaHost, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=2)
    flood = java.producer(any_cluster.namesrv).flood(topic, 300, size=40, mode="ordered", argument="same")
    assert (flood.failed, flood.errors) == (0, [])

    got = java.lite_pull(any_cluster.namesrv, group, topic, begin=Begin.FIRST).wait_for(300)

    assert [int(received.message.body) for received in got] == list(range(300))
    assert {len(received.message.body) for received in got} == {40}
    assert len({received.message.queue for received in got}) == 1


def test_an_orderly_listener_that_fails_gets_the_message_again_before_the_next(
    real_cluster: RealCluster, java: JavaHost, topic: str, group: str
) -> None:
    create_topic(real_cluster.namesrv, topic, queues=1)
    numbered = [Message(topic, b"%d" % n, properties={"n": str(n)}) for n in range(1, 5)]
    java.producer(real_cluster.namesrv).send(numbered, "ordered", argument="same")

    member = java.push(
        real_cluster.namesrv, group, {topic: "n > 2"}, sql=True, orderly=True, fail_times=1, begin=Begin.FIRST
    )

    assert [received.message.body for received in member.wait_for(4)] == [b"3", b"3", b"4", b"4"]


def test_a_killed_member_leaves_its_queues_to_the_others(
    real_cluster: RealCluster, java: JavaHost, own_java: Callable[[], JavaHost], topic: str, group: str
) -> None:
    create_topic(real_cluster.namesrv, topic, queues=2)
    stays = java.push(real_cluster.namesrv, group, topic, strategy="AVG_BY_CIRCLE")
    killed = own_java().push(real_cluster.namesrv, group, topic, strategy="AVG_BY_CIRCLE")
    wait_until(lambda: len(killed.assignment()) == len(stays.assignment()) == 2, "two queues for each")

    killed.kill()

    assert stays.wait_ready(4) == all_queues(real_cluster, topic, 2)
    with pytest.raises(JavaError, match="its JVM has ended"):
        killed.assignment()


def test_mqadmin_answers_and_its_errors_are_raised(any_cluster: AnyCluster, java: JavaHost) -> None:
    printed = java.mqadmin("clusterList", "-n", any_cluster.namesrv)

    rows = [line.split()[:2] for line in printed.splitlines() if line.startswith("DefaultCluster")]
    assert rows == [["DefaultCluster", "broker-a"], ["DefaultCluster", "broker-b"]]
    with pytest.raises(JavaError, match="No topic route info"):
        java.mqadmin("topicRoute", "-n", any_cluster.namesrv, "-t", "there-is-none")


def test_a_killed_broker_comes_back_with_its_messages(java: JavaHost, topic: str, group: str, tmp_path: Path) -> None:
    with RealCluster(brokers=1, data=tmp_path) as cluster:
        create_topic(cluster.namesrv, topic, queues=1)
        assert java.producer(cluster.namesrv).flood(topic, 10, mode="sync").failed == 0
        cluster.kill_broker("broker-a")
        assert cluster.brokers == {}
        cluster.start_broker("broker-a")

        member = java.push(cluster.namesrv, group, topic, begin=Begin.FIRST)

        assert sorted(int(received.message.body) for received in member.wait_for(10)) == list(range(10))
        member.stop()
    assert (tmp_path / "broker-a" / "commitlog").is_dir()


@pytest.mark.live
def test_no_jvm_outlives_a_killed_test_run(tmp_path: Path) -> None:
    program = """
import sys, time
from tests.realmq import JavaHost, RealCluster
with RealCluster(brokers=1) as cluster, JavaHost() as host:
    print(*cluster.pids, host.pid, flush=True)
    time.sleep(60)
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=root, env=environment, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        pids = [int(pid) for pid in run.stdout.readline().split()]
        run.send_signal(signal.SIGKILL)
    assert len(pids) == 3

    wait_until(lambda: not any(is_running(pid) for pid in pids), f"the end of the JVMs {pids}")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
