"""``evenq topic``: topics, their routes and what they hold."""

from __future__ import annotations

from typing import Annotated

import typer

from evenq.cli.options import NAMESRV, AsJson, Namesrv, Topic, administer, command_group, read_pair
from evenq.cli.output import print_json, print_table
from evenq.client.admin import Admin, Permission, TopicPart
from evenq.errors import ArgumentError, TopicNotFound

__all__ = ["app"]

app = command_group("Topics: list, create, change, delete; where they are and what they hold.")

Perm = Annotated[Permission, typer.Option(help="What may be done with its queues: read, write.")]


@app.command("list")
def list_topics(
    every: Annotated[bool, typer.Option("--all", help="Also those of RocketMQ itself and of groups.")] = False,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """All topics."""
    names = administer(namesrv, lambda admin: admin.topics(system=every))
    if as_json:
        print_json(names)
    else:
        print_table(["topic"], [[name] for name in names])


@app.command()
def create(
    topic: Topic,
    queues: Annotated[int, typer.Option(help="Queues on each broker.")] = 8,
    perm: Perm = "rw",
    order: Annotated[bool, typer.Option(help="Keep the layout fixed, for messages in order.")] = False,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An attribute of RocketMQ's; may be given again."),
    ] = None,
    broker: Annotated[list[str] | None, typer.Option(help="Only on this broker; may be given again.")] = None,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Create a topic on all brokers, or on some.

    --attribute queue.type=BatchCQ lets brokers store each batch as one record: for bulk data.
    """
    attributes = dict(read_pair(text, argument="--attribute") for text in attribute or ())

    async def work(admin: Admin) -> tuple[TopicPart, ...]:
        if await _exists(admin, topic):
            raise ArgumentError("topic", topic, "it is there already: change it with evenq topic update")
        await admin.create_topic(topic, queues=queues, perm=perm, order=order, attributes=attributes, brokers=broker)
        return await admin.route(topic)

    _print_route(administer(namesrv, work), as_json)


@app.command()
def update(
    topic: Topic,
    queues: Annotated[int | None, typer.Option(help="Queues to read and to write on each broker.")] = None,
    read_queues: Annotated[int | None, typer.Option(help="Queues to read.")] = None,
    write_queues: Annotated[int | None, typer.Option(help="Queues to write.")] = None,
    perm: Annotated[Permission | None, typer.Option(help="What may be done with its queues: read, write.")] = None,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Change a topic; what is not given stays as it is."""

    async def work(admin: Admin) -> tuple[TopicPart, ...]:
        await admin.update_topic(topic, queues=queues, read_queues=read_queues, write_queues=write_queues, perm=perm)
        return await admin.route(topic)

    _print_route(administer(namesrv, work), as_json)


@app.command()
def delete(topic: Topic, namesrv: Namesrv = NAMESRV, as_json: AsJson = False) -> None:
    """Delete a topic and its messages, on all brokers and name servers."""
    administer(namesrv, lambda admin: admin.delete_topic(topic))
    if as_json:
        print_json({"deleted": topic})
    else:
        print(f"topic {topic} is deleted")


@app.command()
def route(topic: Topic, namesrv: Namesrv = NAMESRV, as_json: AsJson = False) -> None:
    """Where a topic is: its brokers and queues."""
    _print_route(administer(namesrv, lambda admin: admin.route(topic)), as_json)


@app.command()
def status(topic: Topic, namesrv: Namesrv = NAMESRV, as_json: AsJson = False) -> None:
    """What each queue of a topic holds."""
    found = administer(namesrv, lambda admin: admin.topic_status(topic))
    if as_json:
        print_json(found)
        return
    print_table(
        ["queue", "first offset", "next offset", "messages", "last stored"],
        [[each.queue, each.min_offset, each.max_offset, each.messages, each.last_stored] for each in found.queues],
        footer=["all", "", "", found.messages],
    )


async def _exists(admin: Admin, topic: str) -> bool:
    try:
        return bool(await admin.route(topic))
    except TopicNotFound:
        return False


def _print_route(parts: tuple[TopicPart, ...], as_json: bool) -> None:
    if as_json:
        print_json(parts)
        return
    print_table(
        ["broker", "cluster", "read queues", "write queues", "perm", "addresses"],
        [[part.broker, part.cluster, part.read_queues, part.write_queues, part.perm, part.addresses] for part in parts],
    )
