"""The cluster itself, on both brokers; what goes wrong is injected into an embedded one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from evenq import (
    Admin,
    ArgumentError,
    ConnectError,
    LitePullConsumer,
    Message,
    Producer,
    RefusedError,
    SendResult,
    StateError,
)
from evenq.client.admin import BrokerStatus
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.testing import cluster
from tests.clusters import AnyCluster, brokers
from tests.waiting import wait_until


def test_brokers_are_listed_with_their_addresses(any_cluster: AnyCluster, admin: Admin) -> None:
    assert [(each.name, each.cluster, each.broker_id, each.address) for each in admin.brokers()] == [
        (name, "DefaultCluster", 0, address) for name, address in sorted(brokers(any_cluster.namesrv).items())
    ]
    assert admin.masters() == brokers(any_cluster.namesrv)


def test_a_broker_tells_how_it_does(admin: Admin) -> None:
    status = wait_until(lambda: status_of(admin, "broker-b"), "an answer")
    assert status.broker == admin.brokers()[1]
    assert status.version.split()[-1].count(".") == 2
    assert status.started is not None
    assert timedelta(0) < datetime.now(UTC) - status.started < timedelta(hours=1)
    assert status.figures["brokerActive"] == "true"
    assert min(status.rate_in, status.rate_out) >= 0


def status_of(admin: Admin, broker: str) -> BrokerStatus | None:
    """The broker's status; a Java broker has no answer in its first second."""
    try:
        return admin.broker_status(broker)
    except RefusedError as error:
        if "NoSuchElementException" in error.remark:
            return None
        raise


def test_a_broker_tells_its_settings(admin: Admin) -> None:
    found = admin.broker_settings("broker-b")
    assert (found["brokerName"], found["brokerClusterName"]) == ("broker-b", "DefaultCluster")


def test_what_was_counted_is_told(admin: Admin, wide: str, sent: list[SendResult]) -> None:
    # figures of a minute are there when it is over; that there is a counter at all is there at once
    found = wait_until(lambda: admin.counters("TOPIC_PUT_NUMS", wide), "a counter")
    assert set(found) == {receipt.queue.broker for receipt in sent}
    assert all(counters.day.total >= 0 for counters in found.values())
    assert admin.counters("TOPIC_PUT_NUMS", f"{wide}-other") == {}


@pytest.mark.live
def test_a_broker_without_write_permission_gets_no_messages(topic: str, group: str) -> None:
    with cluster(2) as own, Admin(own.namesrv) as admin:
        admin.create_topic(topic, queues=1)

        def sent_to() -> set[str]:
            with Producer(own.namesrv) as producer:
                return {producer.send(Message(topic, b"x")).queue.broker for _ in range(4)}

        assert sent_to() == {"broker-a", "broker-b"}
        concerned = admin.set_writable("broker-a", False)
        assert 1 < concerned <= len(admin.topics(system=True))
        assert sent_to() == {"broker-b"}
        with LitePullConsumer(own.namesrv, group, begin="first") as consumer:
            consumer.subscribe(topic)
            read: set[str] = set()

            def both() -> bool:
                read.update(message.queue.broker for message in consumer.poll(0.1))
                return len(read) == 2

            wait_until(both, "messages of both brokers")
        assert admin.set_writable("broker-a", True) >= concerned
        assert sent_to() == {"broker-a", "broker-b"}
        with pytest.raises(ArgumentError, match="brokers='broker-z': there is no such broker"):
            admin.set_writable("broker-z", False)


def test_an_unknown_broker_is_an_error_that_names_the_known(admin: Admin) -> None:
    with pytest.raises(ArgumentError, match=r"broker='broker-z \(0\)'.*it knows broker-a \(0\), broker-b \(0\)"):
        admin.broker_status("broker-z")


@pytest.mark.live
def test_a_broker_that_does_not_answer_is_named() -> None:
    with cluster(brokers=2) as own, Admin(own.namesrv) as admin:
        own.brokers["broker-b"].faults.add(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, error=ResponseCode.SYSTEM_BUSY)
        with pytest.raises(RefusedError, match=admin.masters()["broker-b"]):
            admin.groups()


@pytest.mark.live
def test_a_name_server_without_brokers_says_so() -> None:
    with cluster(brokers=1) as own, Admin(own.namesrv) as admin:
        own.stop_broker("broker-a")
        assert admin.brokers() == ()
        with pytest.raises(ConnectError, match="knows no broker: start one"):
            admin.create_topic("t")


def test_without_a_name_server_nothing_is_known() -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(ConnectError, match=r"no name server answers.*127\.0\.0\.1:1"):
        admin.topics()


def test_a_closed_admin_client_says_so(embedded_cluster: AnyCluster) -> None:
    admin = Admin(embedded_cluster.namesrv)
    admin.close()
    with pytest.raises(StateError, match="closed"):
        admin.brokers()
