import re

import pytest

from evenq import Intervals, PushConsumer
from evenq.client.group import doubles
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until


def test_a_client_id_that_is_used_twice_is_reported_with_both_addresses(
    any_cluster: AnyCluster, topic: str, group: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubles, "FIRST_LOOKS", (0.05, 0.05))
    create_topic(any_cluster.namesrv, topic, queues=1)

    def member(instance: str) -> PushConsumer:
        made = PushConsumer(any_cluster.namesrv, group, instance=instance, intervals=Intervals(heartbeat=0.2))
        made.subscribe(topic)
        made.start(lambda messages: None)
        return made

    with member("c1") as first, member("c2") as other, member("c1") as second:
        wait_until(lambda: first._inner._member.doubles.found, "the double found by the first")
        wait_until(lambda: second._inner._member.doubles.found, "the double found by the second")
        assert not other._inner._member.doubles.found
        assert first.client_id == second.client_id
    found = re.findall(
        r"client id (\S+) is used by more than one member of group \S+: at (\S+) \(this one\) and at (\S+)\. ",
        caplog.text,
    )
    assert {client_id for client_id, _, _ in found} == {first.client_id}
    pairs = {(ours, others) for _, ours, others in found}
    assert any((others, ours) in pairs for ours, others in pairs), "each names the other"


def test_a_member_alone_with_its_id_reports_nothing(
    any_cluster: AnyCluster, topic: str, group: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubles, "FIRST_LOOKS", (0.01, 0.01))
    create_topic(any_cluster.namesrv, topic, queues=1)
    with PushConsumer(any_cluster.namesrv, group, instance="c1", intervals=Intervals(heartbeat=0.02)) as member:
        member.subscribe(topic)
        member.start(lambda messages: None)
        watch = member._inner._member.doubles
        wait_until(lambda: all(watch._before.values()) and len(watch._before) == 2, "a look at both brokers")
        session = member._inner._session
        # a connection that breaks may be listed beside the new one for a moment

        def cut() -> None:
            for connection in list(session.connections._open.values()):
                connection.close()

        member._in_loop(cut)
        wait_until(lambda: session.connections.live(next(iter(watch._before))), "a new connection")
    assert "more than one member" not in caplog.text
