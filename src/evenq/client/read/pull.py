"""One pull: the request for messages of a queue, and what came of it."""

from __future__ import annotations

import msgspec

from evenq.client.net.remote import Remote, refusal
from evenq.model import MessageQueue
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.flags import PullFlag
from evenq.protocol.headers import PullRequest, PullResponse
from evenq.protocol.template import Template

__all__ = ["PullTemplates", "Pulled", "all_up_to", "pull", "pull_command", "pulled"]


class Pulled(msgspec.Struct, frozen=True, gc=False):
    """What came of a pull: the records as they were sent, and where to go on.

    ``moved`` says that the offset asked for is outside of what the queue holds; ``next_offset`` is then the nearest
    one that it does hold. ``suggested`` is the id of the replica to pull from next, 0 for the master.
    """

    body: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    moved: bool = False
    suggested: int = 0


def pull_command(
    group: str,
    queue: MessageQueue,
    offset: int,
    *,
    count: int,
    max_bytes: int | None = None,
    hold: float = 0.0,
    expression: str = "*",
    expression_type: str = "TAG",
) -> Command:
    """The request. With ``hold`` the broker may keep it that many seconds until something comes.

    The subscription travels with it: a group needs no heartbeat to pull, and a reconnect no waiting for one.
    """
    flags = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if hold else 0)
    header = PullRequest(
        consumer_group=group,
        broker_name=queue.broker,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        max_msg_bytes=max_bytes,
        sys_flag=int(flags),
        commit_offset=0,
        suspend_timeout_millis=round(hold * 1000),
        subscription=expression,
        expression_type=expression_type,
    )
    return Command(RequestCode.PULL_MESSAGE, ext=header.to_ext())


class PullTemplates:
    """The pulls of one queue, which differ in offset and count only: at once, or held by the broker if need be.

    >>> pulls = PullTemplates("billing", MessageQueue("orders", "broker-a", 0))
    >>> pulls.at_once.command(10, 32) == pull_command("billing", MessageQueue("orders", "broker-a", 0), 10, count=32)
    True
    """

    __slots__ = ("at_once", "held")

    def __init__(
        self,
        group: str,
        queue: MessageQueue,
        expression: str = "*",
        expression_type: str = "TAG",
        *,
        hold: float = 15.0,
    ) -> None:
        def template(seconds: float) -> Template:
            command = pull_command(
                group, queue, 0, count=0, hold=seconds, expression=expression, expression_type=expression_type
            )
            return Template(command, "queueOffset", "maxMsgNums")

        self.at_once, self.held = template(0.0), template(hold)


def pulled(address: str, answer: Command) -> Pulled:
    """Read the answer. Finding nothing is an answer like any other; only refusals are errors."""
    code = answer.code
    if code not in _ANSWERS:
        raise refusal(address, RequestCode.PULL_MESSAGE, answer)
    header = PullResponse.from_ext(answer.ext)
    return Pulled(
        answer.body if code == ResponseCode.SUCCESS else b"",
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        code == ResponseCode.PULL_OFFSET_MOVED,
        header.suggest_which_broker_id,
    )


def all_up_to(stop: int, answer: Command) -> bytes:
    """The records of an answer that has everything up to ``stop``, without reading more of it than that; nothing
    where it has not."""
    whole = answer.code == ResponseCode.SUCCESS and answer.ext.get("nextBeginOffset") == str(stop)
    return answer.body if whole else b""


_ANSWERS = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


async def pull(remote: Remote, address: str, command: Command, timeout: float) -> Pulled:
    return pulled(address, await remote.connections.request(address, command, timeout))
