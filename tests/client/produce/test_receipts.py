import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.client.produce.receipts import BatchReceipts, JoinedReceipts
from evenq.model import MessageQueue, SendResult, SendStatus

QUEUE = MessageQueue("t", "b", 1)


def batch(count: int, offset: int = 10) -> BatchReceipts:
    ids = ",".join(f"ID{offset + n}" for n in range(count))
    return BatchReceipts(SendStatus.FLUSH_DISK_TIMEOUT, QUEUE, offset, [f"K{offset + n}" for n in range(count)], ids)


def expected(count: int, offset: int = 10) -> list[SendResult]:
    return [
        SendResult(
            status=SendStatus.FLUSH_DISK_TIMEOUT,
            queue=QUEUE,
            offset=offset + n,
            msg_id=f"K{offset + n}",
            offset_msg_id=f"ID{offset + n}",
        )
        for n in range(count)
    ]


def test_each_message_of_a_batch_has_its_own_receipt() -> None:
    got = batch(3)
    assert list(got) == expected(3)
    assert (got[-1], got[1:]) == (expected(3)[-1], expected(3)[1:])
    with pytest.raises(IndexError, match="there are 3 receipts, none at 3"):
        got[3]


def test_a_topic_of_batches_gives_one_id_for_all() -> None:
    got = BatchReceipts(SendStatus.SEND_OK, QUEUE, 5, ["K1", "K2"], "ONE")
    assert [(each.offset, each.offset_msg_id) for each in got] == [(5, "ONE"), (6, "ONE")]


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(-30, 30), st.slices(20))
def test_joined_receipts_are_those_of_the_parts_one_after_the_other(sizes: list[int], at: int, part: slice) -> None:
    joined = JoinedReceipts([batch(size, 100 * n) for n, size in enumerate(sizes)])
    flat = [each for n, size in enumerate(sizes) for each in expected(size, 100 * n)]
    assert (list(joined), len(joined), joined[part]) == (flat, len(flat), flat[part])
    if -len(flat) <= at < len(flat):
        assert joined[at] == flat[at]
    else:
        with pytest.raises(IndexError):
            joined[at]
