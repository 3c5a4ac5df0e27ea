"""What a broker tells a name server (103): as JSON, or packed where it has very many topics."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from evenq.errors import ProtocolError
from evenq.protocol.bodies.base import Body
from evenq.protocol.bodies.route import DataVersion, TopicConfig, TopicConfigTable
from evenq.protocol.compression import decompress
from evenq.protocol.flags import SysFlag
from evenq.protocol.lenient import loads

__all__ = ["RegisterBody", "TopicConfigAndMapping"]

_INT = struct.Struct(">i")


class TopicConfigAndMapping(TopicConfigTable):
    """All topics of a broker as it registers them: static topics are passed on unread."""

    topic_queue_mapping_info_map: dict[str, Any] = {}
    topic_queue_mapping_detail_map: dict[str, Any] = {}
    mapping_data_version: DataVersion = DataVersion()


class RegisterBody(Body):
    """The topics of a broker."""

    topic_config_serialize_wrapper: TopicConfigAndMapping = TopicConfigAndMapping()
    filter_server_list: list[str] = []

    @classmethod
    def unpack(cls, data: bytes) -> RegisterBody:
        """Read the form that the header calls ``compressed``: zlib, and in it texts that each follow their length."""
        reader = _Texts(decompress(data, SysFlag.ZLIB))
        version = DataVersion.decode(reader.text())
        topics = [_topic(reader.text().decode(errors="replace")) for _ in range(reader.number())]
        return cls(
            topic_config_serialize_wrapper=TopicConfigAndMapping(
                topic_config_table={topic.topic_name: topic for topic in topics}, data_version=version
            )
        )


class _Texts:
    """Goes through texts that each follow their length."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        try:
            (number,) = _INT.unpack_from(self.data, self.at)
        except struct.error:
            raise ProtocolError(f"RegisterBody: {len(self.data)} bytes are cut off at {self.at}") from None
        self.at += 4
        return int(number)

    def text(self) -> bytes:
        begin = self.at + 4
        self.at = begin + self.number()
        if not begin <= self.at <= len(self.data):
            raise ProtocolError(f"RegisterBody: {len(self.data)} bytes are cut off at {begin}")
        return self.data[begin : self.at]


def _topic(text: str) -> TopicConfig:
    """A topic in one line: ``orders 8 8 6 SINGLE_TAG {}``. What comes after the kind of filter may be missing."""
    match text.split(" ", 5):
        case [name, read, write, perm, kind, *attributes]:
            fields = {
                "topicName": name,
                "readQueueNums": read,
                "writeQueueNums": write,
                "perm": perm,
                "topicFilterType": kind,
                "attributes": loads(attributes[0]) if attributes and attributes[0] else {},
            }
        case _:
            raise ProtocolError(f"RegisterBody: {text!r} is no topic")
    try:
        return msgspec.convert(fields, TopicConfig, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"RegisterBody: {text!r} is no topic: {error}") from None
