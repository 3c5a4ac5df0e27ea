"""``evenq message``: to find messages and look at them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from evenq.cli.options import NAMESRV, AsJson, Namesrv, Topic, administer, command_group, read_queue, read_time
from evenq.cli.output import cell, glance, print_json, print_table
from evenq.client.admin import Admin, MessageTrace
from evenq.errors import ArgumentError, TopicNotFound
from evenq.protocol.traces import TRACE_TOPIC
from evenq.protocol.view import MessageView

__all__ = ["app"]

app = command_group("Messages: by id, by key, by place; their trace.")

_UNTRACED = "clients tell the trace with trace=True, about 2 s later, or give --topic"


@app.command()
def get(
    msg_id: Annotated[str, typer.Argument(help="The broker's id; with --topic the producer's.")],
    topic: Annotated[str | None, typer.Option(help="Look the producer's id (unique key) up in this topic.")] = None,
    body: Annotated[bool, typer.Option("--body", help="Write the body and nothing else, byte by byte.")] = False,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """One message, whole."""

    async def work(admin: Admin) -> MessageView:
        if topic is None:
            return await admin.message(msg_id)
        found = await admin.messages_by_unique_key(topic, msg_id)
        if not found:
            raise ArgumentError("msg_id", msg_id, f"topic {topic!r} has no message with this unique key")
        return found[0]

    message = administer(namesrv, work)
    if body:
        sys.stdout.buffer.write(message.body)
    elif as_json:
        print_json(message)
    else:
        _print_message(message)


@app.command()
def find(
    topic: Topic,
    key: Annotated[str, typer.Argument(help="One of the message's keys.")],
    begin: Annotated[str | None, typer.Option(help="Stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option(help="Stored at this time or earlier.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many, the newest.")] = 32,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Messages with a key."""
    first = begin and read_time(begin, argument="--begin")
    last = end and read_time(end, argument="--end")
    found = administer(
        namesrv,
        lambda admin: admin.messages_by_key(topic, key, begin=first or None, end=last or None, limit=limit),
    )
    _print_list(found, as_json)


@app.command()
def read(
    topic: Topic,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="broker-a:3")],
    offset: Annotated[int, typer.Argument(help="Where to begin.")],
    count: Annotated[int, typer.Option(help="How many messages.")] = 10,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """What a queue holds from an offset on. No group is touched."""
    place = read_queue(topic, queue, argument="QUEUE")
    _print_list(administer(namesrv, lambda admin: admin.messages_at(place, offset, count)), as_json)


@app.command()
def trace(
    msg_id: Annotated[str, typer.Argument(help="The producer's id (unique key) of the message.")],
    topic: Annotated[str, typer.Option(help="The topic that the trace is told to.")] = TRACE_TOPIC,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Who sent a message and who consumed it, as far as clients tell the trace."""

    async def work(admin: Admin) -> MessageTrace:
        try:
            found = await admin.trace(msg_id, topic=topic)
        except TopicNotFound:
            raise ArgumentError("--topic", topic, f"there is no such topic: {_UNTRACED}") from None
        if not found:
            raise ArgumentError("msg_id", msg_id, f"topic {topic} tells nothing of it: {_UNTRACED}")
        return found

    found = administer(namesrv, work)
    if as_json:
        print_json(found)
    else:
        _print_trace(found)


def _print_trace(found: MessageTrace) -> None:
    """A table of each kind of event that there is."""
    sends: list[list[object]] = [
        [
            each.at,
            each.group,
            each.client,
            each.topic,
            each.broker or each.store_host,
            each.took_ms,
            each.kind,
            "SEND_OK" if each.ok else "not SEND_OK",
        ]
        for each in found.sends
    ]
    ends: list[list[object]] = [[each.at, each.group, each.client, each.state, each.from_check] for each in found.ends]
    recalls: list[list[object]] = [[each.at, each.group, each.client, each.ok] for each in found.recalls]
    deliveries: list[list[object]] = [
        [each.began or each.ended, each.group, each.client, each.tries, each.took_ms, each.outcome]
        for each in found.deliveries
    ]
    tables = (
        (["sent", "producer group", "client", "topic", "broker", "ms", "kind", "status"], sends),
        (["transaction ended", "producer group", "client", "state", "broker had asked"], ends),
        (["taken back", "producer group", "client", "done"], recalls),
        (["consumed", "consumer group", "client", "tries before", "ms", "outcome"], deliveries),
    )
    for number, (columns, rows) in enumerate((columns, rows) for columns, rows in tables if rows):
        if number:
            print()
        print_table(columns, rows)


def _print_message(message: MessageView) -> None:
    about = {
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.queue_offset,
        "stored": message.stored_at,
        "born": message.born_at,
        "born on": message.born_host,
        "broker's id": message.msg_id,
        "unique key": message.unique_key,
        "keys": message.keys,
        "tags": message.tags,
        "delivered again": message.reconsume_times,
    }
    print_table(["", ""], about.items())
    print_table(["property", "value"], sorted(message.properties.items()))
    print()
    print(cell(message.body))


def _print_list(messages: tuple[MessageView, ...], as_json: bool) -> None:
    if as_json:
        print_json(messages)
        return
    print_table(
        ["queue", "offset", "stored", "keys", "tags", "broker's id", "body"],
        [
            [each.queue, each.queue_offset, each.stored_at, each.keys, each.tags, each.msg_id, glance(each.body)]
            for each in messages
        ],
    )
