import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenq.broker.store.consumequeue import ConsumeQueue
from evenq.broker.store.store import ReadStatus, Store
from evenq.errors import ArgumentError
from evenq.protocol.batch import BatchEntry
from evenq.protocol.filters import tag_code
from evenq.protocol.records import COMMIT_LOG_OFFSET_AT, decode_messages, encode_record
from tests.broker.store.messages import HOST, LOG_FILE, batch, bodies, incoming, open_store, read_all


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def test_a_message_comes_back_as_it_was_sent(store: Store) -> None:
    stored = store.append(incoming("hello", tags="paid", queue_id=2))
    store.commit()
    (message,) = read_all(store, queue_id=2)
    assert (message.topic, message.body, message.tags, message.keys) == ("orders", b"hello", "paid", ("k",))
    assert (message.queue_id, message.queue_offset, message.commit_log_offset) == (2, 0, stored.log_offset)
    assert (message.born_host, message.store_host) == ("10.0.0.7:4711", HOST)
    assert (message.born_timestamp, message.store_timestamp) == (1_699_999_999_000, 1_700_000_000_000)


def test_offsets_count_by_queue(store: Store) -> None:
    places = [store.append(incoming(str(number), queue_id=number % 2)).queue_offset for number in range(6)]
    store.commit()
    assert places == [0, 0, 1, 1, 2, 2]
    assert store.bounds("orders", 0) == (0, 3)
    assert store.bounds("orders", 9) == (0, 0)


def test_a_batch_stands_together(store: Store) -> None:
    store.append(incoming("before"))
    entries = [BatchEntry(b"%d" % number, f"KEYS\x01k{number}\x02", number) for number in range(5)]
    stored = store.append_batch(batch(entries))
    store.commit()
    messages = read_all(store)[1:]
    assert stored.queue_offset == 1
    assert [message.commit_log_offset for message in messages] == stored.log_offsets
    assert [(message.body, message.keys[0], message.flag) for message in messages] == [
        (b"0", "k0", 0), (b"1", "k1", 1), (b"2", "k2", 2), (b"3", "k3", 3), (b"4", "k4", 4)
    ]  # fmt: skip
    assert (messages[0].born_host, messages[0].store_timestamp) == ("10.0.0.7:4711", 1_700_000_000_000)


def test_a_batch_is_stored_as_its_messages_would_be(tmp_path: Path) -> None:
    entries = [BatchEntry(b"x" * number, f"KEYS\x01k\x02TAGS\x01t{number % 2}\x02") for number in range(8)]
    one, other = open_store(tmp_path / "one"), open_store(tmp_path / "other")
    one.append_batch(batch(entries))
    for number in range(8):
        other.append(incoming(b"x" * number, tags=f"t{number % 2}"))
    for opened in (one, other):
        opened.close()
    for name in ("commitlog", "consumequeue/orders/0"):
        (mine,), (its,) = (list((tmp_path / place / name).iterdir()) for place in ("one", "other"))
        assert mine.read_bytes() == its.read_bytes()


def test_a_batch_that_does_not_fit_goes_to_the_next_file_as_a_whole(store: Store) -> None:
    store.append(incoming(b"x" * (LOG_FILE - 400)))
    stored = store.append_batch(batch([BatchEntry(b"y" * 100)] * 3))
    store.commit()
    assert stored.log_offsets[0] == LOG_FILE
    assert len(bodies(store)) == 4


def test_tags_of_a_batch_can_be_filtered(store: Store) -> None:
    tags = ["", "TAGS\x01paid\x02", "KEYS\x01TAGS\x02", "KEYS\x01k\x02TAGS\x01paid\x02", "XTAGS\x01paid\x02"]
    store.append_batch(batch([BatchEntry(b"%d" % number, text) for number, text in enumerate(tags)]))
    store.commit()
    found = store.read("orders", 0, 0, 32, 1 << 20, {tag_code("paid")})
    assert [message.body for message in decode_messages(found.body)] == [b"1", b"3"]


def test_more_than_a_file_is_refused(store: Store) -> None:
    with pytest.raises(ArgumentError, match="at most 4088 fit into one file"):
        store.append(incoming(b"x" * LOG_FILE))
    assert store.bounds("orders", 0) == (0, 0)


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (0, ReadStatus.FOUND, 3),
        (2, ReadStatus.FOUND, 3),
        (3, ReadStatus.AT_END, 3),
        (4, ReadStatus.TOO_LARGE, 3),
        (-1, ReadStatus.TOO_SMALL, 0),
    ],
)
def test_a_read_says_where_to_go_on(store: Store, offset: int, status: ReadStatus, next_offset: int) -> None:
    for number in range(3):
        store.append(incoming(str(number)))
    store.commit()
    found = store.read("orders", 0, offset, 32, 1 << 20)
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (status, next_offset, 0, 3)
    assert found.count == len(decode_messages(found.body))


def test_a_queue_that_never_held_anything_is_empty(store: Store) -> None:
    assert store.read("orders", 0, 0, 32, 1 << 20).status is ReadStatus.EMPTY


def test_a_read_is_bounded_by_count_and_by_bytes_but_gives_one_message(store: Store) -> None:
    for _ in range(10):
        store.append(incoming(b"x" * 200))
    store.commit()
    size = len(store.read("orders", 0, 0, 1, 1).body)
    assert store.read("orders", 0, 0, 4, 1 << 20).count == 4
    assert store.read("orders", 0, 0, 32, 3 * size).count == 3
    assert store.read("orders", 0, 0, 32, 3 * size - 1).count == 2
    assert store.read("orders", 0, 0, 32, 1).count == 1


def test_a_filter_skips_and_goes_on_behind_what_it_saw(store: Store) -> None:
    for number in range(30):
        store.append(incoming(str(number), tags="abc"[number % 3]))
    store.commit()
    found = store.read("orders", 0, 0, 4, 1 << 20, {tag_code("b")})
    assert [message.body for message in decode_messages(found.body)] == [b"1", b"4", b"7", b"10"]
    assert found.next_offset == 13
    nothing = store.read("orders", 0, 5, 4, 1 << 20, {tag_code("z")})
    assert (nothing.status, nothing.next_offset) == (ReadStatus.NO_MATCH, 30)


def test_queues_that_mix_in_the_log_are_read_apart(store: Store) -> None:
    for number in range(40):
        store.append(incoming(b"%d" % number * 20, queue_id=number % 4))
    store.commit()
    assert store.log.end > LOG_FILE
    for queue_id in range(4):
        assert bodies(store, queue_id=queue_id) == [b"%d" % number * 20 for number in range(queue_id, 40, 4)]


def test_offsets_are_found_by_time(tmp_path: Path) -> None:
    now = [0.0]
    store = Store(tmp_path, HOST, clock=lambda: now[0], log_file_size=LOG_FILE, queue_file_units=8)
    for second in (10, 20, 20, 30):
        now[0] = second
        store.append(incoming("x"))
    store.commit()
    lower = {ms: store.offset_at("orders", 0, ms) for ms in (0, 10_000, 15_000, 20_000, 25_000, 30_000, 99_000)}
    assert lower == {0: 0, 10_000: 0, 15_000: 1, 20_000: 1, 25_000: 3, 30_000: 3, 99_000: 4}
    upper = {ms: store.offset_at("orders", 0, ms, upper=True) for ms in (0, 10_000, 20_000, 25_000, 99_000)}
    assert upper == {0: 0, 10_000: 0, 20_000: 2, 25_000: 2, 99_000: 3}
    assert [store.time_of("orders", 0, offset) for offset in (0, 3, 4)] == [10_000, 30_000, None]
    store.close()


def test_a_message_is_found_by_its_place_in_the_log(store: Store) -> None:
    first, second = store.append(incoming("one")), store.append(incoming("two"))
    for _ in ("staged", "written"):
        message = store.message_at(second.log_offset)
        assert message is not None
        assert message.body == b"two"
        assert store.message_at(first.log_offset + 1) is None
        assert store.message_at(10**9) is None
        store.commit()


def test_settling_names_the_queues_that_got_something(store: Store) -> None:
    store.append(incoming("a", queue_id=1))
    store.append(incoming("b", queue_id=3))
    store.append(incoming("c", queue_id=1))
    assert list(store.commit()) == [("orders", 1), ("orders", 3)]
    assert not store.commit()


def test_a_deleted_topic_is_gone_and_starts_anew(store: Store, tmp_path: Path) -> None:
    store.append(incoming("old"))
    store.append(incoming("other", topic="bills"))
    store.commit()
    store.delete_topic("orders")
    assert store.bounds("orders", 0) == (0, 0)
    store.append(incoming("new"))
    store.commit()
    assert bodies(store) == [b"new"]
    assert bodies(store, topic="bills") == [b"other"]


@pytest.mark.parametrize(
    ("topic", "queue_id"), [("../x", 0), ("", 0), ("x" * 256, 0), ("orders", -1), ("orders", 1 << 31)]
)
def test_what_cannot_be_a_queue_makes_no_directory(store: Store, tmp_path: Path, topic: str, queue_id: int) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArgumentError, match="queue="):
        store.append(incoming("x", topic=topic, queue_id=queue_id))
    assert sorted(tmp_path.rglob("*")) == before
    assert store.log.end == 0


@pytest.mark.parametrize("ending", ["close", "kill"])
def test_a_record_of_an_impossible_topic_stops_no_start(tmp_path: Path, ending: str) -> None:
    store = open_store(tmp_path / "data")
    name = "..%2Fx"
    made = ConsumeQueue(tmp_path / "data" / "consumequeue" / name / "0", name, 0, 8)
    store._queues[name, 0] = made
    store.append(incoming("bad", topic=name))
    store.append(incoming("good"))
    store.commit()
    if ending == "close":
        store.close()
    else:
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        store.close()
    again = open_store(tmp_path / ("data" if ending == "close" else "copy"))
    assert bodies(again) == [b"good"]
    assert again.bounds(name, 0) == (0, 0)
    again.close()


def test_a_body_that_looks_like_a_record_is_none(store: Store) -> None:
    forged = encode_record(
        topic="orders", body=b"forged", queue_id=0, queue_offset=0, commit_log_offset=0, born_timestamp=1,
        born_host="127.0.0.1:1", store_timestamp=2, store_host="127.0.0.1:2",
    )  # fmt: skip
    stored = store.append(incoming(forged))
    store.commit()
    at = stored.log_offset + store.record_at(stored.log_offset).index(forged)  # type: ignore[union-attr]
    forged = forged[:COMMIT_LOG_OFFSET_AT] + at.to_bytes(8) + forged[COMMIT_LOG_OFFSET_AT + 8 :]
    store.log.overwrite(at, forged)
    assert store.record_at(at) is None
    assert store.message_at(at) is None


def test_a_short_checkpoint_lets_all_of_the_log_be_read(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append(incoming("here"))
    store.commit()
    store.close()
    (tmp_path / "checkpoint").write_bytes(b"0123456789")
    (tmp_path / "checkpoint.bak").unlink(missing_ok=True)
    (tmp_path / "abort").touch()
    again = open_store(tmp_path)
    assert bodies(again) == [b"here"]
    again.close()
