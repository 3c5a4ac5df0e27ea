"""Addresses: ``host:port``, lists of them, and the local address that others see of us."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from evenq.errors import ArgumentError

__all__ = ["Address", "local_ip", "name_servers"]


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port.

    >>> Address.parse("[::1]:9876").host, str(Address.parse("localhost:9876"))
    ('::1', 'localhost:9876')
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, argument: str = "address") -> Address:
        host, colon, port = text.strip().rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ArgumentError(argument, text, "give host:port, e.g. 127.0.0.1:9876 or [::1]:9876")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_SEVERAL = "the name server's host:port; separate several by ';', e.g. a:9876;b:9876"


def name_servers(text: str) -> tuple[str, ...]:
    """The name servers of ``"a:9876;b:9876"``, in order.

    >>> name_servers("a:9876; b:9876")
    ('a:9876', 'b:9876')
    """
    if not isinstance(text, str):
        raise ArgumentError("namesrv", text, f"give one string: {_SEVERAL}")
    if "," in text or "/" in text:
        raise ArgumentError("namesrv", text, f"give {_SEVERAL}")
    found = tuple(str(Address.parse(part, argument="namesrv")) for part in text.split(";") if part.strip())
    if not found:
        raise ArgumentError("namesrv", text, f"give {_SEVERAL}")
    return found


def local_ip(peer: str) -> str:
    """The address of this machine on the way to ``peer``. Nothing is sent: a datagram socket only asks the routing."""
    address = Address.parse(peer)
    try:
        family, kind, proto, _, target = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
