"""Lists of addresses, and the local address that others see of us."""

from __future__ import annotations

import socket

from evenq.errors import ArgumentError
from evenq.protocol.address import Address

__all__ = ["local_ip", "name_servers"]


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
