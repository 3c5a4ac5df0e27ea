"""The body of a batch whose messages are given ids that count on."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from evenq.model import Property
from evenq.protocol.batch import BODY_AT
from evenq.protocol.ids import UniqueRun
from evenq.protocol.properties import encode_properties

__all__ = ["ID_AFTER", "ID_BEFORE", "id_property_size", "named_batch"]

# what stands before an id and after it, as a property on the wire
ID_BEFORE, ID_AFTER = encode_properties({Property.UNIQUE_KEY: "|"}).split("|")
_BEFORE, _AFTER = ID_BEFORE.encode(), ID_AFTER.encode()
_pack_head = struct.Struct(">iiiii").pack
_pack_short = struct.Struct(">H").pack


def id_property_size(id_size: int) -> int:
    """The bytes of the property that an id of so many digits makes."""
    return len(_BEFORE) + id_size + len(_AFTER)


def named_batch(bodies: Sequence[bytes], own: Sequence[bytes], flags: Sequence[int], ids: UniqueRun) -> bytes:
    """The body of a batch; ``own`` are the messages' properties on the wire, to which their ids are added.

    >>> from evenq.protocol.batch import decode_batch
    >>> [entry] = decode_batch(named_batch([b"a"], [b"TAGS\\x01x\\x02"], [0], UniqueRun("7F", 255, 1)))
    >>> entry.body, entry.properties
    (b'a', 'TAGS\\x01x\\x02UNIQ_KEY\\x017F00FF\\x02')
    """
    # Column by column, and joined once: nothing is made for each message but the four digits of its id.
    count, stem = len(bodies), _BEFORE + ids.stem.encode()
    id_size = id_property_size(ids.id_size)
    sizes, own_sizes = list(map(len, bodies)), list(map(len, own))
    if len(set(sizes)) == len(set(own_sizes)) == len(set(flags)) == 1:
        heads = [_head(sizes[0], own_sizes[0] + id_size, flags[0])] * count
    else:
        heads = [_head(size, more + id_size, flag) for size, more, flag in zip(sizes, own_sizes, flags, strict=True)]
    if any(own_sizes):
        middles = [_pack_short(len(each) + id_size) + each + stem for each in own]
    else:
        middles = [_pack_short(id_size) + stem] * count
    pieces = [_AFTER] * (5 * count)
    pieces[::5], pieces[1::5], pieces[2::5], pieces[3::5] = heads, bodies, middles, ids.digits()
    return b"".join(pieces)


@lru_cache(4096)
def _head(body_size: int, properties_size: int, flag: int) -> bytes:
    """What stands before a body."""
    return _pack_head(BODY_AT + body_size + 2 + properties_size, 0, 0, flag, body_size)
