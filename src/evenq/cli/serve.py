"""``evenq serve``: a name server and brokers, until a signal ends them."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

import typer

from evenq.broker import BrokerSettings, Cluster
from evenq.broker.limits import Limits
from evenq.errors import ArgumentError

__all__ = ["serve"]

_DEFAULT = BrokerSettings()


def serve(
    brokers: Annotated[int, typer.Option(help="How many brokers: broker-a, broker-b, …", min=1)] = 1,
    data: Annotated[Path, typer.Option(help="Where messages and settings are kept.")] = Path("evenq-data"),
    host: Annotated[
        str, typer.Option(help="The address or name to listen on; clients are told its address.")
    ] = "127.0.0.1",
    allow_unauthenticated: Annotated[
        bool,
        typer.Option(
            "--allow-unauthenticated",
            help="Permit a --host that other machines can reach. Whoever reaches them may do everything: the "
            "broker knows no users.",
        ),
    ] = False,
    namesrv_port: Annotated[int, typer.Option(help="The name server's port; 0 for a free one.")] = 9876,
    broker_port: Annotated[
        int, typer.Option(help="The first broker's port, the next ones 10 on each; 0 for free ones.")
    ] = 10911,
    flush: Annotated[
        Literal["async", "sync"], typer.Option(help="What a sender waits for: the system, or the disk.")
    ] = "async",
    keep_hours: Annotated[float, typer.Option(help="How long messages are kept.")] = 72.0,
    keep_bytes: Annotated[
        int | None, typer.Option(help="How much of them is kept, in files of 1 GiB that go as a whole; all by default.")
    ] = None,
    max_message: Annotated[int, typer.Option(help="Bytes that a message may have.", min=1)] = _DEFAULT.max_message,
    max_topic: Annotated[
        int, typer.Option(help="Characters that a topic's name may have.", min=1)
    ] = _DEFAULT.max_topic,
    max_connections: Annotated[
        int, typer.Option(help="Connections that each server takes.", min=1)
    ] = _DEFAULT.limits.max_connections,
    max_held: Annotated[
        int, typer.Option(help="Bytes that each server holds for clients which do not read them.", min=1)
    ] = _DEFAULT.limits.max_unsent_total_bytes,
    max_admin_rows: Annotated[
        int, typer.Option(help="Topics, groups, queues or offsets in the answer to an administrator.", min=1)
    ] = _DEFAULT.limits.max_admin_rows,
) -> None:
    """Run a name server and brokers that RocketMQ clients can use.

    Prints `ready namesrv=HOST:PORT` when clients can connect. Stops cleanly on SIGINT and SIGTERM.
    """
    if not allow_unauthenticated and not _is_loopback(host):
        raise ArgumentError(
            "--host",
            host,
            "other machines may reach it, and this broker lets everybody do everything: add --allow-unauthenticated, "
            "or give 127.0.0.1",
        )
    _raise_file_limit()
    settings = BrokerSettings(
        flush=flush,
        keep_hours=keep_hours,
        keep_bytes=keep_bytes,
        max_message=max_message,
        max_topic=max_topic,
        limits=Limits(max_connections=max_connections, max_unsent_total_bytes=max_held, max_admin_rows=max_admin_rows),
    )
    asyncio.run(_serve(data, brokers, host, namesrv_port, broker_port, settings))


async def _serve(
    data: Path, brokers: int, host: str, namesrv_port: int, broker_port: int, settings: BrokerSettings
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    cluster = Cluster(
        data, brokers=brokers, host=host, namesrv_port=namesrv_port, broker_port=broker_port, settings=settings
    )
    await cluster.start()
    # What is here by now stays. To look for garbage in it would take 10 ms each time, in which clients wait.
    gc.collect()
    gc.freeze()
    print(f"ready namesrv={cluster.namesrv}", flush=True)
    await stopped.wait()
    await cluster.stop()


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address or name. One that cannot be looked up is refused later."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return True
    return all(ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)


def _raise_file_limit() -> None:
    """Allow as many open files as the system does: each queue has one, and each connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
