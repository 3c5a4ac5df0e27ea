"""Free ports for servers that must know them before they start."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

__all__ = ["BROKER", "NAMESRV", "free_ports"]

# The ports that a server takes, relative to its own: a broker has its "VIP channel" two below, its slaves one above.
NAMESRV = (0,)
BROKER = (-2, 0, 1)

# Below the ports that the system hands out to clients, so that none of those takes a port while a broker restarts.
_RANGE = range(20_000, 32_000)


def free_ports(*families: tuple[int, ...]) -> list[int]:
    """A port for each family of offsets, such that all ports of all families are free now and differ."""
    with ExitStack() as held:
        return [_free_port(offsets, held) for offsets in families]


def _free_port(offsets: tuple[int, ...], held: ExitStack) -> int:
    for _ in range(1000):
        port = random.choice(_RANGE)
        with ExitStack() as tried:
            try:
                for offset in offsets:
                    tried.enter_context(socket.create_server(("127.0.0.1", port + offset)))
            except OSError:
                continue
            held.enter_context(tried.pop_all())
            return port
    raise RuntimeError(f"no free ports from {_RANGE.start} to {_RANGE.stop}")
