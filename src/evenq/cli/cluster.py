"""``evenq cluster``: the brokers, how they do, and which producers are connected to them."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from evenq.cli.options import NAMESRV, AsJson, Namesrv, administer, command_group
from evenq.cli.output import print_json, print_table
from evenq.client.admin import Admin, Broker, BrokerStatus
from evenq.errors import RemoteError

__all__ = ["app"]

app = command_group("The cluster: its brokers, how they do, who sends to them.")


@app.command("list")
def list_brokers(namesrv: Namesrv = NAMESRV, as_json: AsJson = False) -> None:
    """All brokers. One that does not answer is listed with what went wrong."""

    async def work(admin: Admin) -> list[tuple[Broker, BrokerStatus | None, str | None]]:
        return await asyncio.gather(*(_tried(admin, broker) for broker in await admin.brokers()))

    found = administer(namesrv, work)
    if as_json:
        print_json(
            [
                {"broker": broker, "error": error}
                | (
                    {}
                    if status is None
                    else {
                        "version": status.version,
                        "started": status.started,
                        "rate_in": status.rate_in,
                        "rate_out": status.rate_out,
                    }
                )
                for broker, status, error in found
            ]
        )
        return
    print_table(
        ["cluster", "broker", "id", "address", "version", "in/s", "out/s", "started"],
        [
            [broker.cluster, broker.name, broker.broker_id, broker.address, *_columns(status, error)]
            for broker, status, error in found
        ],
    )


@app.command()
def status(
    broker: Annotated[str, typer.Argument(help="The broker's name.")],
    broker_id: Annotated[int, typer.Option("--id", help="Which of the brokers of that name; 0 is the master.")] = 0,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """All figures that a broker tells of itself."""
    found = administer(namesrv, lambda admin: admin.broker_status(broker, broker_id=broker_id))
    if as_json:
        print_json(found)
    else:
        print_table(["figure", "value"], found.figures.items())


@app.command()
def producers(
    group: Annotated[str | None, typer.Argument(help="Only this producer group.")] = None,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """The producers that are connected."""
    found = administer(namesrv, lambda admin: admin.producers(group))
    if as_json:
        print_json(found)
        return
    print_table(
        ["group", "producer", "address", "language", "version", "brokers"],
        [
            [name, each.client_id, each.address, each.language, each.version, each.brokers]
            for name, clients in found.items()
            for each in clients
        ],
    )


async def _tried(admin: Admin, broker: Broker) -> tuple[Broker, BrokerStatus | None, str | None]:
    try:
        return broker, await admin.broker_status(broker.name, broker_id=broker.broker_id), None
    except RemoteError as error:
        return broker, None, str(error)


def _columns(status: BrokerStatus | None, error: str | None) -> list[object]:
    if status is None:
        return [error, None, None, None]
    return [status.version, status.rate_in, status.rate_out, status.started]
