"""Attributes of topics: what they may be, and how they are changed (``+message.type=FIFO,-reserve.time``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evenq.broker.admission import INT64, wire_int
from evenq.errors import ArgumentError

__all__ = ["alter", "parse_changes"]


def _is_number(value: str) -> bool:
    return wire_int(value, -1, INT64[1]) is not None


@dataclass(frozen=True, slots=True)
class _Attribute:
    """What values an attribute can have here, and whether it can be changed once the topic is there."""

    allows: Callable[[str], bool]
    wanted: str
    changeable: bool


def _one_of(*values: str, changeable: bool) -> _Attribute:
    return _Attribute(frozenset(values).__contains__, " or ".join(values), changeable)


_KNOWN = {
    "queue.type": _one_of("SimpleCQ", changeable=False),
    "cleanup.policy": _one_of("DELETE", changeable=False),
    "message.type": _one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", changeable=True),
    "reserve.time": _Attribute(_is_number, "a number of milliseconds, or -1", True),
}


def parse_changes(text: str | None) -> dict[str, str]:
    """Changes as a tool writes them, by signed name.

    >>> parse_changes("+message.type=FIFO,-reserve.time")
    {'+message.type': 'FIFO', '-reserve.time': ''}
    """
    changes: dict[str, str] = {}
    for part in (text or "").split(","):
        name, _, value = part.partition("=")
        if name in changes:
            raise ArgumentError("attributes", text, f"{name} comes twice")
        if name:
            changes[name] = value
    return changes


def alter(current: Mapping[str, str], changes: Mapping[str, str], *, new: bool = False) -> dict[str, str]:
    """The attributes after some changes; ``new`` for a topic that is only being made.

    >>> alter({"reserve.time": "5"}, {"+message.type": "FIFO", "-reserve.time": ""})
    {'message.type': 'FIFO'}
    """
    altered = dict(current)
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        known = _KNOWN.get(name)
        if known is None or sign not in ("+", "-"):
            raise ArgumentError("attributes", signed, f"give +name=value or -name, of {', '.join(_KNOWN)}")
        if not known.changeable and not new:
            raise ArgumentError("attributes", signed, f"{name} cannot be changed: delete the topic and make it anew")
        if sign == "-":
            if name not in current:
                raise ArgumentError("attributes", signed, f"the topic has no {name}")
            del altered[name]
        elif known.allows(value):
            altered[name] = value
        else:
            raise ArgumentError("attributes", f"{signed}={value}", f"{name} must be {known.wanted}")
    return altered
