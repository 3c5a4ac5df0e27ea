"""Addresses: ``host:port``."""

from __future__ import annotations

from dataclasses import dataclass

from evenq.errors import ArgumentError

__all__ = ["Address"]

_DIGITS_OF_A_PORT = 5
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port.

    >>> Address.parse("[::1]:9876").host, str(Address.parse("localhost:9876"))
    ('::1', 'localhost:9876')
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, argument: str = "address", bare: bool = False) -> Address:
        """Read ``host:port``. An IPv6 address stands in brackets, since its end looks like a port; ``bare`` takes one
        without them, as some brokers tell theirs.

        >>> Address.parse("fe80::1:10911", bare=True)
        Address(host='fe80::1', port=10911)
        """
        host, _, port = text.strip().rpartition(":")
        has_brackets = host.startswith("[") and host.endswith("]")
        name = host[1:-1] if has_brackets else host
        is_port = port.isascii() and port.isdigit() and len(port) <= _DIGITS_OF_A_PORT and 0 < int(port) <= _MAX_PORT
        is_host = bool(name) and not any(mark in name for mark in "[] ")
        if not is_port or not is_host or (":" in name and not has_brackets and not bare):
            raise ArgumentError(argument, text, "give host:port, e.g. 127.0.0.1:9876 or [::1]:9876")
        return cls(name, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
