"""What a store keeps: by age, by size, and after any end."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.store.retention import DeletionPace, Retention, first_kept
from evenq.broker.store.store import ReadStatus, Store
from evenq.errors import ArgumentError
from tests.broker.store.messages import HOST, LOG_FILE, bodies, incoming, read_all
from tests.broker.stores import Hand

HOUR = 3_600_000
DAY = Retention(hours=24)


def opened(
    directory: Path,
    clock: Callable[[], float],
    retention: Retention = DAY,
    monotonic: Callable[[], float] | None = None,
) -> Store:
    return Store(
        directory,
        HOST,
        clock=clock,
        log_file_size=LOG_FILE,
        queue_file_units=8,
        retention=retention,
        monotonic=monotonic or clock,
    )


def fill(store: Store, hand: Hand, hours: int, *, per_hour: int = 4) -> None:
    """Some messages an hour over two queues, a log file every five hours or so."""
    for _ in range(hours):
        for number in range(per_hour):
            store.append(incoming(b"%d " % hand.ms + b"." * 100, queue_id=number % 2))
        store.commit()
        store.checkpoint()()
        hand.now += 3600


def files(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.iterdir())


def test_messages_go_with_their_file_when_all_of_it_is_too_old(tmp_path: Path) -> None:
    hand = Hand()
    store = opened(tmp_path, hand)
    fill(store, hand, 100)
    first, *_, last = read_all(store)
    file_hours = LOG_FILE / (4 * first.store_size)
    age = (hand.ms - first.store_timestamp) / HOUR
    assert 24 - 1 <= age <= 24 + 2 * file_hours + 1
    assert hand.ms - last.store_timestamp == HOUR
    assert store.bounds("orders", 0)[1] == 200
    assert store.log.start == files(tmp_path / "commitlog")[0] > 0
    store.close()


def test_reads_of_what_is_gone_are_told_where_to_go_on(tmp_path: Path) -> None:
    hand = Hand()
    store = opened(tmp_path, hand)
    fill(store, hand, 100)
    low, high = store.bounds("orders", 0)
    assert low > 0
    gone = store.read("orders", 0, low - 1, 32, 1 << 20)
    assert (gone.status, gone.next_offset, gone.min_offset, gone.max_offset) == (ReadStatus.TOO_SMALL, low, low, high)
    assert store.read("orders", 0, low, 32, 1 << 20).status is ReadStatus.FOUND
    assert store.time_of("orders", 0, low - 1) is None
    assert store.record_at(0) is None
    # a time before the first message means the first message
    assert store.offset_at("orders", 0, 0) == low
    store.close()


def test_consume_queues_keep_the_files_that_they_need(tmp_path: Path) -> None:
    hand = Hand()
    store = opened(tmp_path, hand)
    fill(store, hand, 100)
    low, _ = store.bounds("orders", 0)
    assert files(tmp_path / "consumequeue" / "orders" / "0")[0] == low // 8 * 8 * 20
    store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_that_nothing_is_left_of_goes_on_where_it_was(tmp_path: Path, clean: bool) -> None:
    hand = Hand()
    store = opened(tmp_path / "a", hand)
    for number in range(16):
        store.append(incoming(b"%d" % number, topic="seldom"))
    fill(store, hand, 60)
    assert store.bounds("seldom", 0) == (16, 16)
    if clean:
        store.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    again = opened(tmp_path / "b", hand)
    assert again.bounds("seldom", 0) == (16, 16)
    assert again.read("seldom", 0, 3, 32, 1 << 20).status is ReadStatus.TOO_SMALL
    assert again.append(incoming("once more", topic="seldom")).queue_offset == 16
    again.commit()
    assert bodies(again, "seldom") == [b"once more"]
    again.close()
    if not clean:
        store.close()


def test_a_kill_between_the_log_and_its_queues_is_made_good(tmp_path: Path) -> None:
    hand = Hand()
    store = opened(tmp_path / "a", hand, Retention(hours=1000))
    fill(store, hand, 40)
    store.close()
    first, second, *_ = files(tmp_path / "a" / "commitlog")
    (tmp_path / "a" / "commitlog" / f"{first:020d}").unlink()
    (tmp_path / "a" / "abort").touch()
    again = opened(tmp_path / "a", hand, Retention(hours=1000))
    assert again.log.start == second
    assert read_all(again)[0].commit_log_offset >= second
    assert again.bounds("orders", 0)[1] == 80
    again.close()


def test_the_size_is_kept_whatever_the_age(tmp_path: Path) -> None:
    hand = Hand()
    store = opened(tmp_path, hand, Retention(size=3 * LOG_FILE))
    fill(store, hand, 60)
    assert 2 * LOG_FILE <= store.log.end - store.log.start <= 3 * LOG_FILE
    store.retention = Retention(size=1)
    store.checkpoint()()
    assert files(tmp_path / "commitlog") == [store.log.start]
    assert bodies(store)
    store.close()


def test_nothing_goes_that_is_not_on_the_disk(tmp_path: Path) -> None:
    hand = Hand()
    store = opened(tmp_path, hand, Retention(size=1))
    for _ in range(100):
        store.append(incoming(b"." * 100))
    store.commit()
    wait = store.checkpoint()
    assert store.log.start == 0
    wait()
    store.checkpoint()()
    assert store.log.start > 0
    store.close()


@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=12),
    ages=st.lists(st.integers(0, 100), min_size=12, max_size=12),
    hours=st.integers(1, 100),
    limit=st.none() | st.integers(1, 5000),
)
def test_the_first_file_kept_is_the_first_that_must_be(
    sizes: list[int], ages: list[int], hours: int, limit: int | None
) -> None:
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    end = sum(sizes)
    # the hours since the first message of each file, which get fewer
    since = dict(zip(starts, sorted(ages, reverse=True), strict=False))
    now = 1000 * HOUR
    kept = first_kept(starts, end, lambda start: now - since[start] * HOUR, now, Retention(hours, limit))
    assert kept in starts
    following = [start for start in starts if start > kept]
    if following:
        assert since[following[0]] < hours
        assert limit is None or end - kept <= limit
    for gone, after in pairwise(starts):
        if gone < kept:
            assert since[after] >= hours or (limit is not None and end - gone > limit)


@pytest.mark.parametrize("wrong", [{"hours": 0}, {"hours": -1}, {"size": 0}])
def test_nothing_is_kept_for_no_time(wrong: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match="more than 0"):
        Retention(**wrong)


def filled(directory: Path, hand: Hand, steady: Hand) -> Store:
    """A store with many files whose clocks were right for long."""
    store = opened(directory, hand, Retention(hours=24), steady)
    for number in range(500):
        store.append(incoming(b"%d " % number + b"." * 200))
    store.commit()
    for clock in (hand, steady):
        clock.now += 1000
    store.checkpoint()()
    assert len(files(directory / "commitlog")) > 25
    return store


def moved(store: Store, seconds: float, *clocks: Hand) -> int:
    """How many files went with the next checkpoint, after clocks went on."""
    before = len(store.log.file_starts)
    for clock in clocks:
        clock.now += seconds
    store.checkpoint()()
    return before - len(store.log.file_starts)


def test_a_clock_that_is_ahead_for_a_moment_deletes_nothing(tmp_path: Path) -> None:
    hand, steady = Hand(), Hand(5.0)
    store = filled(tmp_path, hand, steady)
    assert moved(store, 4 * 86_400, hand) == 0
    assert moved(store, 300, hand, steady) == 0
    assert moved(store, -4 * 86_400, hand) == 0
    assert moved(store, 700, hand, steady) == 0
    # and when it is right to be so late, all goes on
    assert moved(store, 86_400, hand, steady) == 10
    store.close()


def test_a_clock_that_was_put_right_is_trusted_after_a_while(tmp_path: Path) -> None:
    hand, steady = Hand(), Hand(5.0)
    store = filled(tmp_path, hand, steady)
    assert moved(store, 4 * 86_400, hand) == 0
    assert moved(store, 599, hand, steady) == 0
    assert moved(store, 1, hand, steady) == 10
    assert moved(store, 59, hand, steady) == 0
    assert moved(store, 1, hand, steady) == 10
    store.close()


def test_nothing_goes_by_its_age_right_after_a_start(tmp_path: Path) -> None:
    hand, steady = Hand(), Hand(5.0)
    filled(tmp_path, hand, steady).close()
    hand.now += 4 * 86_400
    again = opened(tmp_path, hand, Retention(hours=24), steady)
    assert moved(again, 599, hand, steady) == 0
    assert moved(again, 1, hand, steady) == 10
    again.close()


def test_the_size_is_kept_whatever_the_clock_says(tmp_path: Path) -> None:
    hand, steady = Hand(), Hand(5.0)
    store = filled(tmp_path, hand, steady)
    store.retention = Retention(size=3 * LOG_FILE)
    assert moved(store, 4 * 86_400, hand) > 10
    store.close()


def test_files_that_went_for_their_size_leave_no_room_for_others() -> None:
    now = [1000.0]
    pace = DeletionPace(lambda: now[0], lambda: now[0])
    pace.allowance()
    now[0] += 600
    assert pace.allowance() == 10
    pace.deleted(12)
    assert pace.allowance() == 0
    now[0] += 60
    assert pace.allowance() == 10
