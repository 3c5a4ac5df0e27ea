"""Cases for the tests of the protocol: what Java wrote, and records made up at random."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from hypothesis import strategies as st

from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.compression import Compression, compress
from evenq.protocol.flags import SysFlag
from evenq.protocol.ids import host_text, pack_host
from evenq.protocol.records import encode_record

VECTORS = Path(__file__).parent.parent / "vectors"


def load(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]


def java_host(text: str) -> str:
    """A host of the vectors (``1.2.3.4|9298``) as evenq writes it."""
    host, _, port = text.partition("|")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


ints = st.integers(-(2**31), 2**31 - 1)
offsets = st.integers(0, 2**62)
milliseconds = st.integers(0, 4_000_000_000_000)
# as they are written after a round trip: an IPv6 address can be written in many ways
hosts = st.one_of(
    st.builds("{}:{}".format, st.ip_addresses(v=4), st.integers(0, 65535)),
    st.builds("[{}]:{}".format, st.ip_addresses(v=6), st.integers(0, 65535)),
).map(lambda text: host_text(pack_host(text)))
topics = st.one_of(st.text(min_size=1, max_size=20), st.just("t" * 200))
# whole properties, and pieces of them in any order: no value, no name, no last mark, twice the same name
property_texts = st.one_of(
    st.dictionaries(
        st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "user_id_1", "user_id_2", "ключ"]), st.text(max_size=12)
    ).map(lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())),
    st.lists(st.sampled_from(["KEYS", "TAGS", "\x01", "\x02", "\x00", "v", "价值"]), max_size=12).map("".join),
)
bodies = st.binary(max_size=60)


@st.composite
def packed_bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """A body as it is stored, and the flags that say how."""
    body = draw(bodies)
    kinds: list[Compression | Literal["plain", "batch"]] = ["plain", "plain", "ZLIB", "LZ4", "ZSTD", "batch"]
    match draw(st.sampled_from(kinds)):
        case "plain":
            return body, draw(st.sampled_from([0, 4, 8, SysFlag.MULTI_TAGS]))
        case "batch":
            entries = draw(st.lists(st.builds(BatchEntry, bodies, property_texts, ints), max_size=3))
            return encode_batch(entries), SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
        case method:
            return compress(body, method)


@st.composite
def records(draw: st.DrawFn, *, batches: bool = True) -> bytes:
    """One record of any kind that there is."""
    body, flags = draw(packed_bodies().filter(lambda packed: batches or not packed[1] & SysFlag.INNER_BATCH))
    return encode_record(
        topic=draw(topics),
        body=body,
        queue_id=draw(ints),
        queue_offset=draw(offsets),
        commit_log_offset=draw(offsets),
        born_timestamp=draw(milliseconds),
        born_host=draw(hosts),
        store_timestamp=draw(milliseconds),
        store_host=draw(hosts),
        properties=draw(property_texts),
        sys_flag=flags,
        flag=draw(ints),
        reconsume_times=draw(ints),
        prepared_transaction_offset=draw(offsets),
    )


@st.composite
def mutations(draw: st.DrawFn, originals: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that were right until some were changed, cut out or put in."""
    data = bytearray(draw(originals))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["set", "cut", "put", "end"])):
            case "set" if at < len(data):
                data[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1]))
            case "cut":
                del data[at : at + draw(st.integers(1, 8))]
            case "put":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case "end":
                del data[at:]
            case _:
                pass
    return bytes(data)
