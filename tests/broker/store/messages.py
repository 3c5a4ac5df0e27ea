"""Messages for tests of the store, and what comes back of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from evenq.broker.store.files import OS_FILES, Files
from evenq.broker.store.store import NewMessage, Store
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.properties import encode_properties
from evenq.protocol.records import decode_messages
from evenq.protocol.view import MessageView

__all__ = ["HOST", "LOG_FILE", "batch", "bodies", "incoming", "open_store", "read_all", "read_through"]

LOG_FILE = 4096
HOST = "127.0.0.1:10911"


def open_store(
    directory: Path,
    now: float = 1_700_000_000.0,
    files: Files = OS_FILES,
    *,
    clock: Callable[[], float] | None = None,
) -> Store:
    """A store of small files, so that tests cross their borders."""
    clock = clock or (lambda: now)
    return Store(directory, HOST, clock=clock, log_file_size=LOG_FILE, queue_file_units=8, files=files)


def incoming(body: bytes | str, *, topic: str = "orders", queue_id: int = 0, tags: str | None = None) -> NewMessage:
    properties = {"KEYS": "k"} | ({"TAGS": tags} if tags else {})
    content = body.encode() if isinstance(body, str) else body
    return NewMessage(topic, queue_id, content, encode_properties(properties), tags, 1_699_999_999_000, "10.0.0.7:4711")


def batch(entries: Sequence[BatchEntry]) -> NewMessage:
    """Messages that are stored together."""
    return incoming(encode_batch(entries))._replace(properties="")


def read_all(store: Store, topic: str = "orders", queue_id: int = 0) -> list[MessageView]:
    """Every message of a queue, read a few at a time."""
    messages: list[MessageView] = []
    offset, end = store.bounds(topic, queue_id)
    while offset < end:
        found = store.read(topic, queue_id, offset, 3, 1 << 20)
        messages += decode_messages(found.body)
        offset = found.next_offset
    assert [message.queue_offset for message in messages] == list(range(*store.bounds(topic, queue_id)))
    return messages


def read_through(store: Store, topic: str = "orders", queue_id: int = 0) -> dict[int, bytes]:
    """Every message of a queue by its offset, as a consumer gets them that asks for one piece after the other. What
    cannot be unpacked is left out."""
    found: dict[int, bytes] = {}
    offset, end = store.bounds(topic, queue_id)
    while offset < end:
        read = store.read(topic, queue_id, offset, 32, 1 << 20)
        assert read.next_offset > offset
        found |= {view.queue_offset: view.body for view in decode_messages(read.body, poisoned=[])}
        offset = read.next_offset
    return found


def bodies(store: Store, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in read_all(store, topic, queue_id)]
