from collections.abc import Callable

from evenq.model import MessageQueue
from evenq.protocol import bodies
from evenq.protocol.codes import RequestCode
from evenq.testing import Clock
from tests.broker.peers import Peer

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]


def lock(peer: Peer, group: str, queues: list[MessageQueue] = QUEUES) -> list[MessageQueue]:
    body = bodies.LockRequest(consumer_group=group, client_id=peer.client_id, mq_set=queues)
    return sorted(bodies.LockResponse.decode(peer.ask(RequestCode.LOCK_BATCH_MQ, body=body.encode()).body).queues)


def unlock(peer: Peer, group: str, owner: str) -> None:
    body = bodies.LockRequest(consumer_group=group, client_id=owner, mq_set=QUEUES)
    assert peer.ask(RequestCode.UNLOCK_BATCH_MQ, body=body.encode()).code == 0


def test_one_client_at_a_time(connect: Callable[..., Peer], group: str, broker_clock: Clock) -> None:
    first, second = connect("c1"), connect("c2")
    assert lock(first, group) == QUEUES
    assert lock(second, group) == []
    assert lock(first, group, QUEUES[:1]) == QUEUES[:1]
    broker_clock.advance(61)
    assert lock(second, group) == QUEUES


def test_anybody_may_let_go_in_the_owners_name(connect: Callable[..., Peer], group: str) -> None:
    first, second = connect("c1"), connect("c2")
    lock(first, group)
    unlock(second, group, "c2")
    assert lock(second, group) == []
    unlock(second, group, "c1")
    assert lock(second, group) == QUEUES
