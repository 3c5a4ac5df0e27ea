"""RocketMQ's remoting protocol, sans I/O: bytes in, values out, and back.

:mod:`frames <evenq.protocol.frames>` cuts a stream into commands, :mod:`headers <evenq.protocol.headers>` and
:mod:`bodies <evenq.protocol.bodies>` give them types, :mod:`records <evenq.protocol.records>` reads the messages of a
pull as objects and :mod:`columns <evenq.protocol.columns>` as Arrow columns (that one alone needs numpy and pyarrow).
"""

from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.frames import FrameParser
from evenq.protocol.records import decode_messages, encode_record

__all__ = ["Command", "FrameParser", "RequestCode", "ResponseCode", "decode_messages", "encode_record"]
