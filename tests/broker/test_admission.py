"""What is admitted into the store, apart from the wire; what comes over it is tested in tests/broker/handlers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.admission import INT64, _batch_without_reserved, _may_be_reserved, wire_int
from evenq.protocol.batch import BatchEntry, decode_batch, encode_batch
from evenq.protocol.properties import encode_properties

REMOVED = [
    "REAL_TOPIC",
    "REAL_QID",
    "TIMER_OUT_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
    "TIMER_DEL_UNIQKEY",
    "TRANSACTION_CHECK_TIMES",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "__transactionId__",
    "INNER_NUM",
    "POP_CK",
    "RETRY_TOPIC",
    "ORIGIN_MESSAGE_ID",
]
OWN = ["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "DELAY", "REAL_TOPICS", "POP", "INSTANCE_ID", "X"]


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("+7", 7), ("-7", -7), ("9223372036854775807", INT64[1])])
def test_numbers_on_the_wire_are_read_as_java_reads_them(text: str, value: int) -> None:
    assert wire_int(text, *INT64) == value


@pytest.mark.parametrize(
    "text", [None, "", "x", " 7", "7\n", "1_0", "--7", "٣", "9" * 19, "0" * 20, "9" * 5000, "0" * 5000]
)
def test_what_is_no_number_of_64_bits_is_none(text: str | None) -> None:
    assert wire_int(text, *INT64) is None


def test_a_number_out_of_its_range_is_none() -> None:
    assert [wire_int(text, 0, 9) for text in ("-1", "0", "9", "10")] == [None, 0, 9, None]


@given(
    entries=st.lists(
        st.builds(
            BatchEntry,
            st.binary(max_size=40) | st.sampled_from([b"REAL_TOPIC\x01", b"\x01" * 9, b"TIMER_OUT_MS\x01x\x02"]),
            st.dictionaries(
                st.sampled_from(OWN + REMOVED), st.text("ab\x00\x01", min_size=1, max_size=9), max_size=4
            ).map(encode_properties),
            st.integers(0, 9),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_a_batch_keeps_all_but_the_brokers_properties(entries: list[BatchEntry]) -> None:
    batch = encode_batch(entries)
    wanted = [
        BatchEntry(
            entry.body,
            "".join(
                f"{pair}\x02" for pair in entry.properties.split("\x02")[:-1] if pair.split("\x01")[0] not in REMOVED
            ),
            entry.flag,
        )
        for entry in entries
    ]
    if wanted != entries:
        assert _may_be_reserved(batch)
    assert decode_batch(_batch_without_reserved(batch, "orders")) == wanted


def test_a_batch_of_ordinary_messages_is_not_looked_at_closely() -> None:
    entries = [BatchEntry(b"x" * 100, f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02") for number in range(100)]
    assert not _may_be_reserved(encode_batch(entries))
