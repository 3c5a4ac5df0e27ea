"""The number that says which RocketMQ a peer speaks like: its place in Java's list of versions."""

from __future__ import annotations

__all__ = ["version_text"]

# From 4.0.0 on the list is regular: ten patches a minor version, ten of those a major one, each with a snapshot first.
_FIRST, _END = 212, 612


def version_text(number: int) -> str:
    """The version as people write it.

    >>> version_text(493), version_text(494), version_text(100), version_text(2000)
    ('5.4.0', '5.4.1-SNAPSHOT', '3.x', '6 or later')
    """
    if not _FIRST <= number < _END:
        return "3.x" if number < _FIRST else "6 or later"
    release, is_final = divmod(number - _FIRST, 2)
    return f"{4 + release // 100}.{release // 10 % 10}.{release % 10}{'' if is_final else '-SNAPSHOT'}"
