"""The keys of many records at once, against the records read one by one."""

from hypothesis import given
from hypothesis import strategies as st

from evenq.broker.store.index_keys import find_keys, key_hash
from evenq.model import java_string_hash
from evenq.protocol.flags import SysFlag
from evenq.protocol.properties import encode_properties
from evenq.protocol.records import decode_messages, encode_record

BASE = 1 << 30
# a key that makes, with the topic "t", Java's least number of all, which has no positive counterpart
LEAST = "vjmnfmk"

texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
names = st.sampled_from(["UNIQ_KEY", "KEYS", "XKEYS", "KEYS2", "MY_UNIQ_KEY", "TAGS"])
properties = st.dictionaries(names, texts).map(encode_properties)
# what a body may hold to mislead whoever looks for properties
bodies = st.sampled_from([b"", b"KEYS\x01no\x02", b"\x02UNIQ_KEY\x01no\x02", bytes(300), b"\x01\x02" * 20])
records = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["t", "orders", "ü" * 20, "long" * 50]),
        "body": bodies,
        "properties": properties
        | st.sampled_from(["", "KEYS\x01a b", "KEYS\x01x\x02KEYS\x01y\x02", "KEYS\x01 a  b \x02"]),
        "born_host": st.sampled_from(["127.0.0.1:1", "[::1]:1"]),
        "store_host": st.sampled_from(["127.0.0.1:1", "[2001:db8::1]:1"]),
        "sys_flag": st.sampled_from([0, int(SysFlag.PREPARED), int(SysFlag.COMMIT), int(SysFlag.ROLLBACK)]),
        "store_timestamp": st.integers(0, 2**40),
    }
)


def encode(fields: list[dict[str, object]]) -> bytes:
    data = b""
    for number, record in enumerate(fields):
        data += encode_record(
            queue_id=0,
            queue_offset=number,
            commit_log_offset=BASE + len(data),
            born_timestamp=0,
            **record,  # type: ignore[arg-type]
        )
    return data


def one_by_one(data: bytes) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for message in decode_messages(data):
        if message.sys_flag & SysFlag.TRANSACTION != SysFlag.ROLLBACK:
            own = [key for key in message.properties.get("KEYS", "").split(" ") if key]
            all_keys = own if message.unique_key is None else [message.unique_key, *own]
            hashes = [key_hash(message.topic, key) for key in all_keys]
            found += [(each, message.commit_log_offset, message.store_timestamp) for each in hashes]
    return found


@given(st.lists(records, max_size=12), st.integers(0, 80))
def test_all_keys_are_found_with_place_and_time(fields: list[dict[str, object]], torn: int) -> None:
    data = encode(fields)

    keys = find_keys(data + data[:torn], BASE)

    found = zip(keys.hashes.tolist(), keys.offsets.tolist(), keys.times.tolist(), strict=True)
    assert list(found) == one_by_one(data)
    assert (keys.end, keys.blank) == (BASE + len(data), False)


def test_the_marker_of_an_empty_rest_ends_the_records() -> None:
    blank = (1000).to_bytes(4, "big") + bytes.fromhex("cbd43194")

    keys = find_keys(blank + bytes(992), BASE)

    assert (len(keys), keys.end, keys.blank) == (0, BASE, True)


@given(texts, texts)
def test_one_key_is_hashed_as_java_does(topic: str, key: str) -> None:
    assert key_hash(topic, key) == abs(java_string_hash(f"{topic}#{key}")) % (1 << 31)


def test_the_least_number_of_all_has_a_place() -> None:
    record = {
        "topic": "t",
        "body": b"",
        "properties": encode_properties({"KEYS": LEAST}),
        "born_host": "127.0.0.1:1",
        "store_host": "127.0.0.1:1",
        "sys_flag": 0,
        "store_timestamp": 0,
    }
    assert java_string_hash(f"t#{LEAST}") == -(1 << 31)
    assert key_hash("t", LEAST) == 0
    assert find_keys(encode([record]), BASE).hashes.tolist() == [0]
