from datetime import UTC, datetime

import pytest
from hypothesis import given

from evenq.errors import ArgumentError
from evenq.protocol.ids import UniqueIds, host_text, message_id, pack_host, parse_message_id, unique_id_time
from tests.protocol.cases import hosts, offsets


@given(hosts, offsets)
def test_there_and_back(host: str, offset: int) -> None:
    assert host_text(pack_host(host)) == host
    assert parse_message_id(message_id(pack_host(host), offset)) == (host, offset)
    assert parse_message_id(message_id(pack_host(host), offset).lower()) == (host, offset)


@pytest.mark.parametrize("host", ["", "127.0.0.1", "localhost:1", "[::1:1", "::1:1", "1.2.3.4:x", "1.2.3.4:-1"])
def test_what_is_no_address(host: str) -> None:
    with pytest.raises(ArgumentError):
        pack_host(host)


@pytest.mark.parametrize("text", ["", "0A", "xyz", "0" * 30, "0" * 57])
def test_what_is_no_message_id(text: str) -> None:
    with pytest.raises(ArgumentError):
        parse_message_id(text)


def milliseconds(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type, misc]


class Clock:
    now = milliseconds(2025, 12, 31, 23, 59)

    def __call__(self) -> float:
        return self.now / 1000


def test_unique_ids() -> None:
    clock = Clock()
    ids = UniqueIds(address=bytes([127, 0, 0, 1]), pid=70_000, salt=1, clock=clock)
    made = [ids.next() for _ in range(3)]
    assert made[0][:20] == "7F00000111700000" + "0001"
    assert [int(each[-4:], 16) for each in made] == [0, 1, 2]
    assert {len(each) for each in made} == {32}
    assert unique_id_time(made[0], clock.now + 5) == clock.now


def test_many_ids_at_once_go_on_where_the_last_one_ended() -> None:
    clock = Clock()
    ids = UniqueIds(address=bytes(4), pid=1, salt=1, clock=clock)
    made = [ids.next(), *ids.take(3), ids.next()]
    clock.now += 1
    made += ids.take(2)
    assert [int(each[-4:], 16) for each in made] == list(range(7))
    assert [unique_id_time(each, clock.now) for each in made] == [clock.now - 1] * 5 + [clock.now] * 2


def test_a_new_month_begins_anew() -> None:
    clock = Clock()
    ids = UniqueIds(address=bytes(16), pid=1, salt=1, clock=clock)
    before = ids.next()
    clock.now = milliseconds(2026, 1, 1, 0, 0) + 7
    after = ids.next()
    assert (len(after), int(after[-12:-4], 16)) == (56, 7)
    assert unique_id_time(after, clock.now) == clock.now
    # more than now has passed of this month: it was the one before
    assert unique_id_time(before, clock.now) == milliseconds(2025, 12, 31, 23, 59)


def test_a_clock_set_back_over_the_month_does_no_harm() -> None:
    clock = Clock()
    clock.now = milliseconds(2026, 1, 1, 0, 0)
    ids = UniqueIds(address=bytes(4), pid=1, salt=1, clock=clock)
    clock.now -= 1
    assert unique_id_time(ids.next(), clock.now) == clock.now


def test_arguments_are_checked() -> None:
    with pytest.raises(ArgumentError, match="address"):
        UniqueIds(address=b"abc", pid=1, salt=1, clock=Clock())
    with pytest.raises(ArgumentError, match="unique_id"):
        unique_id_time("no", 0)
