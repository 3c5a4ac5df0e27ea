"""A broker that forgets: clients are told where to go on, tools find nothing of what is gone."""

from pathlib import Path

import pytest

from evenq.broker import BrokerSettings
from evenq.broker.store.index import Index
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.properties import encode_properties
from evenq.testing import Clock, cluster
from tests.broker.peers import Peer
from tests.broker.store.messages import incoming, open_store
from tests.waiting import wait_until

TOPIC = "orders"
SETTINGS = BrokerSettings(log_file_size=64 * 1024, keep_hours=1, housekeeping_seconds=0.02)
BODY = b"." * 330
IN_A_FILE = SETTINGS.log_file_size // len(BODY)


def ends(peer: Peer) -> tuple[int, int]:
    low = peer.ask(RequestCode.GET_MIN_OFFSET, headers.MinOffsetRequest(topic=TOPIC, queue_id=0))
    high = peer.ask(RequestCode.GET_MAX_OFFSET, headers.MaxOffsetRequest(topic=TOPIC, queue_id=0))
    return int(low.ext["offset"]), int(high.ext["offset"])


def has_key(peer: Peer, key: str) -> bool:
    header = headers.QueryMessage(topic=TOPIC, key=key, max_num=32, begin_timestamp=0, end_timestamp=1 << 62)
    return peer.ask(RequestCode.QUERY_MESSAGE, header).code == ResponseCode.SUCCESS


@pytest.mark.live
def test_what_is_too_old_is_gone_for_everybody(tmp_path: Path) -> None:
    clock = Clock()
    with (
        cluster(data=tmp_path, settings=SETTINGS, clock=clock.now) as running,
        Peer(running.brokers["broker-a"].address) as peer,
    ):
        for part in "old", "new":
            for number in range(400):
                peer.put(TOPIC, BODY, properties=encode_properties({"KEYS": f"{part}-{number}"}))
            assert has_key(peer, f"{part}-0")
            if part == "old":
                clock.advance(2 * 3600)
        # files go when they are on the disk, maybe one by one: all but the one that has the first new message
        low, high = wait_until(lambda: at if (at := ends(peer))[0] > 400 - IN_A_FILE else None, "old files to go")
        moved = peer.ask(RequestCode.PULL_MESSAGE, peer.pull_header(TOPIC, 0))
        assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, str(low))
        assert 0 < low <= 400
        assert high == 800
        assert {message.keys[0] for message in peer.pull(TOPIC, low)} >= {f"new-{number}" for number in range(400)}
        assert not has_key(peer, "old-0")
        assert has_key(peer, "new-399")
    with (
        cluster(data=tmp_path, settings=SETTINGS, clock=clock.now) as running,
        Peer(running.brokers["broker-a"].address) as peer,
    ):
        # one more file may have gone when the broker stopped
        assert low <= ends(peer)[0] <= 400
        assert ends(peer)[1] == high


def test_an_index_that_is_far_behind_goes_on_with_what_is_left(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    index = Index(tmp_path / "index", store.log, clock=lambda: 0.0)
    for _ in range(100):
        store.append(incoming(b"." * 100))
    store.commit()
    store.checkpoint()()
    store.log.drop_before(store.log.end)
    while index.advance():
        pass
    found = list(index.find("orders", "k", 0, 1 << 62))
    assert found
    assert min(found) == store.log.start
    index.close()
    store.close()
