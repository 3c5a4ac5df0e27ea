"""``evenq group``: consumer groups, their members, how far they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, TypedDict

import typer

from evenq.cli.options import (
    NAMESRV,
    AsJson,
    Namesrv,
    Topic,
    administer,
    command_group,
    read_pair,
    read_queue,
    read_time,
)
from evenq.cli.output import glance, print_json, print_table
from evenq.client.admin import Admin, DeadLetter, GroupSettings, Place, QueueProgress
from evenq.errors import ArgumentError, PartlySent
from evenq.model import MessageQueue

__all__ = ["app"]

app = command_group("Consumer groups: list, create, change, delete; members, progress, reset; dead letters.")

Group = Annotated[str, typer.Argument(help="The consumer group's name.")]

RETRIES = typer.Option(help="How often a message that failed is tried again.")
RETRY_QUEUES = typer.Option(help="Queues on each broker for messages that are tried again.")
CONSUME = typer.Option(help="Whether the group may consume.")
BEGIN = typer.Option(help="Given up at this time or later, e.g. 2030-12-31T23:59:59.")
END = typer.Option(help="Given up at this time or earlier.")


@app.command("list")
def list_groups(
    every: Annotated[bool, typer.Option("--all", help="Also those of RocketMQ itself.")] = False,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """All consumer groups."""
    _print_settings(administer(namesrv, lambda admin: admin.groups(system=every)), as_json)


@app.command()
def create(
    group: Group,
    max_retries: Annotated[int, RETRIES] = 16,
    retry_queues: Annotated[int, RETRY_QUEUES] = 1,
    consume: Annotated[bool, CONSUME] = True,
    broker: Annotated[list[str] | None, typer.Option(help="Only on this broker; may be given again.")] = None,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Create a consumer group on all brokers, or on some."""

    async def work(admin: Admin) -> tuple[GroupSettings, ...]:
        if await _settings(admin, group):
            raise ArgumentError("group", group, "it is there already: change it with evenq group update")
        await admin.create_group(
            group, max_retries=max_retries, retry_queues=retry_queues, consume=consume, brokers=broker
        )
        return await _settings(admin, group)

    _print_settings(administer(namesrv, work), as_json)


@app.command()
def update(
    group: Group,
    max_retries: Annotated[int | None, RETRIES] = None,
    retry_queues: Annotated[int | None, RETRY_QUEUES] = None,
    consume: Annotated[bool | None, CONSUME] = None,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Change a consumer group; what is not given stays as it is."""

    async def work(admin: Admin) -> tuple[GroupSettings, ...]:
        await admin.update_group(group, max_retries=max_retries, retry_queues=retry_queues, consume=consume)
        return await _settings(admin, group)

    _print_settings(administer(namesrv, work), as_json)


@app.command()
def delete(
    group: Group,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="Let a group of this name go on there.")] = False,
    dead_letters: Annotated[bool, typer.Option("--dead-letters", help="Delete its dead letters too.")] = False,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Delete a consumer group that has no members online."""
    administer(namesrv, lambda admin: admin.delete_group(group, keep_offsets=keep_offsets, dead_letters=dead_letters))
    if as_json:
        print_json({"deleted": group})
    else:
        print(f"group {group} is deleted")


@app.command()
def members(group: Group, namesrv: Namesrv = NAMESRV, as_json: AsJson = False) -> None:
    """Who is in a group now, what it subscribes to, and where members differ that must agree."""
    found = administer(namesrv, lambda admin: admin.members(group, compare=True))
    if as_json:
        print_json(found)
        return
    if not found.members:
        print(f"group {group} has no members online")
        return
    print_table(
        ["member", "address", "language", "version", "brokers"],
        [[each.client_id, each.address, each.language, each.version, each.brokers] for each in found.members],
    )
    print()
    print_table(["topic", "subscription"], found.subscriptions.items())
    if found.differences:
        print()
        print_table(["WARNING: messages may be lost: members differ in"], [[each] for each in found.differences])


@app.command()
def progress(
    group: Group,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    strategy: Annotated[str, typer.Option(help="How members share that do not tell what they hold.")] = "AVG",
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """How far a group is in each queue, and who holds the queue. A member with a ? does not say so itself."""
    found = administer(namesrv, lambda admin: admin.progress(group, topic, strategy=strategy))
    if as_json:
        print_json(found)
        return
    print_table(
        ["topic", "queue", "offset", "end", "lag", "consumed up to", "member"],
        [
            [each.queue.topic, each.queue, each.offset, each.end, each.lag, each.consumed_at, _member(each)]
            for each in found.queues
        ],
        footer=["all", "", "", "", found.lag],
    )


@app.command()
def reset(
    group: Group,
    topic: Topic,
    to: Annotated[str | None, typer.Option(help="first, last, or a time such as 2030-12-31T23:59:59.")] = None,
    offset: Annotated[
        list[str] | None, typer.Option(metavar="QUEUE=OFFSET", help="broker-a:3=120; may be given again.")
    ] = None,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Move a group: to the first messages, behind the last, to a time, or to offsets. Its members go there too."""
    place = _place(topic, to, offset or [])
    moved = administer(namesrv, lambda admin: admin.reset(group, topic, place))
    if as_json:
        print_json(moved)
    else:
        print_table(["queue", "before", "after"], [[each.queue, each.before, each.after] for each in moved])


@app.command("dead-letters")
def dead_letters(
    group: Group,
    limit: Annotated[int, typer.Option(help="At most so many, the newest.")] = 32,
    begin: Annotated[str | None, BEGIN] = None,
    end: Annotated[str | None, END] = None,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Messages that a group gave up: where they were sent to, under which id, how often it had them."""
    span = _span(begin, end)
    found = administer(namesrv, lambda admin: admin.dead_letters(group, limit=limit, **span))
    if as_json:
        print_json(found)
        return
    if not found:
        print(_none_of(group, span))
        return
    print_table(
        ["given up", "topic", "id", "tries", "keys", "tags", "dead letter", "body"],
        [
            [
                each.message.stored_at,
                each.topic,
                each.message.unique_key,
                each.tries,
                each.message.keys,
                each.message.tags,
                each.message.msg_id,
                glance(each.message.body),
            ]
            for each in found
        ],
    )


@app.command()
def resend(
    group: Group,
    letter: Annotated[
        list[str] | None,
        typer.Option(
            "--id", help="Only this one: the producer's id, the broker's, or the dead letter's; may be given again."
        ),
    ] = None,
    begin: Annotated[str | None, BEGIN] = None,
    end: Annotated[str | None, END] = None,
    namesrv: Namesrv = NAMESRV,
    as_json: AsJson = False,
) -> None:
    """Send dead letters again, to this group only. They stay among the dead letters: a second time sends them twice."""
    span = _span(begin, end)
    outcomes: Sequence[object]
    try:
        outcomes = administer(namesrv, lambda admin: admin.resend_dead_letters(group, letter or None, **span))
    except PartlySent as error:
        outcomes = error.results
    sent = [each.message.msg_id for each in outcomes if isinstance(each, DeadLetter)]
    failed = [str(each) for each in outcomes if isinstance(each, Exception)]
    if as_json:
        print_json({"group": group, "sent": sent, "failed": failed})
    elif not outcomes:
        print(_none_of(group, span))
    else:
        print(f"{len(sent)} of {len(outcomes)} dead letters of group {group} are sent again, to this group only")
        for each in failed:
            print(f"not sent: {each}")
    if failed:
        raise typer.Exit(1)


class _Span(TypedDict):
    begin: datetime | None
    end: datetime | None


def _span(begin: str | None, end: str | None) -> _Span:
    return {
        "begin": None if begin is None else read_time(begin, argument="--begin"),
        "end": None if end is None else read_time(end, argument="--end"),
    }


def _none_of(group: str, span: _Span) -> str:
    return f"group {group} has no dead letters{' of this time' if any(span.values()) else ''}"


async def _settings(admin: Admin, group: str) -> tuple[GroupSettings, ...]:
    return tuple(each for each in await admin.groups(system=True) if each.group == group)


def _print_settings(groups: tuple[GroupSettings, ...], as_json: bool) -> None:
    if as_json:
        print_json(groups)
        return
    print_table(
        ["group", "may consume", "retries", "retry queues", "brokers"],
        [[each.group, each.consume, each.max_retries, each.retry_queues, each.brokers] for each in groups],
    )


def _member(progress: QueueProgress) -> str | None:
    holder = progress.holder
    return None if holder is None else f"{holder.member}{'' if holder.told else ' ?'}"


def _place(topic: str, to: str | None, offsets: list[str]) -> Place:
    if (to is None) == (not offsets):
        raise ArgumentError("--to", to, "give either --to or --offset")
    match to:
        case "first":
            return "first"
        case "last":
            return "last"
        case None:
            return dict(_queue_offset(topic, text) for text in offsets)
        case _:
            return read_time(to, argument="--to")


def _queue_offset(topic: str, text: str) -> tuple[MessageQueue, int]:
    queue, offset = read_pair(text, argument="--offset")
    if not offset.isdigit():
        raise ArgumentError("--offset", text, "give a queue and its offset, e.g. broker-a:3=120")
    return read_queue(topic, queue, argument="--offset"), int(offset)
