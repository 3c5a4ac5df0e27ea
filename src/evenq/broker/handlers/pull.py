"""Pulling: messages go out.

Behaviour
    A pull names a queue and an offset and gets what is there, as many as it asked for up to 4 MiB. Where nothing is
    there yet and the pull may wait, its answer comes with the next message or when its time is up. Tags are compared
    by hash; the client looks again. SQL92 expressions are decided here, by the properties of each message. A group that
    was reset is told where to go on instead.

Codes
    PULL_MESSAGE, LITE_PULL_MESSAGE

Not implemented
    Pulls are never sent to a replica: there are none.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import msgspec

from evenq.broker.filtering import is_sql, read_matching
from evenq.broker.handlers.pullanswers import found_answer, pull_answer
from evenq.broker.longpoll import WaitingPull
from evenq.broker.server import Connection, Handler, Refusal
from evenq.broker.sql import Filter
from evenq.broker.store.store import Read, ReadStatus
from evenq.errors import ArgumentError
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.filters import parse_tags, tag_code
from evenq.protocol.flags import Perm, PullFlag

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["Pulling"]

MAX_ANSWER = 4 * 1024 * 1024
_LEAST_BYTES = 100

_COMMIT_OFFSET = int(PullFlag.COMMIT_OFFSET)
_SUSPEND = int(PullFlag.SUSPEND)
_SUBSCRIPTION = int(PullFlag.SUBSCRIPTION)
_READ = int(Perm.READ)

# Java's own names of what came of a read that found nothing travel as the remark.
_ANSWERS = {
    ReadStatus.NO_MATCH: (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"),
    ReadStatus.EMPTY: (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE"),
    ReadStatus.AT_END: (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE"),
    ReadStatus.TOO_SMALL: (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL"),
    ReadStatus.TOO_LARGE: (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"),
}


@lru_cache(1024)
def _codes_of(expression: str | None) -> frozenset[int] | None:
    """The hashes of the tags of an expression; None for one that takes everything."""
    return frozenset(map(tag_code, parse_tags(expression or "*"))) or None


class Pulling:
    """The handlers of pulling."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LITE_PULL_MESSAGE: self._pull,
        }

    def _pull(
        self, request: Command, connection: Connection, *, deadline: float | None = None, last: bool = False
    ) -> Command | None:
        """Answer a pull, or let it wait: until ``deadline`` if it waited before, not at all if this is its ``last``
        try."""
        self._broker.server.check_room()
        header = headers.PullRequest.from_ext(request.ext)
        self._check(header, connection)
        wanted = self._filter(header)
        offsets = self._broker.offsets
        if header.sys_flag & _COMMIT_OFFSET and deadline is None and header.commit_offset >= 0:
            offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        moved = offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if moved is not None:
            first, end = self._broker.store.bounds(header.topic, header.queue_id)
            reset = Read(ReadStatus.TOO_SMALL, moved, first, end)
            return pull_answer(request, ResponseCode.PULL_OFFSET_MOVED, reset, "OFFSET_RESET")
        # at least one message, as with the Java broker: the Go client asks for 0, and one that reads on would spin
        limit = max(_LEAST_BYTES, min(header.max_msg_bytes or MAX_ANSWER, MAX_ANSWER))
        place = header.topic, header.queue_id, header.queue_offset, max(1, header.max_msg_nums), limit
        if isinstance(wanted, Filter):
            limits, now = self._broker.settings.limits, self._broker.server.now
            until = now() + limits.loop_budget_s
            found = read_matching(self._broker.store, *place, wanted, limits.max_sql_visits, until, now)
        else:
            found = self._broker.store.read(*place, wanted)
        if found.count:
            self._broker.traffic.sent(header.topic, header.consumer_group, found.count)
            offsets.pulled(header.consumer_group, header.topic, header.queue_id, found.next_offset)
            return found_answer(request, found)
        code, remark = _ANSWERS[found.status]
        if found.status is ReadStatus.EMPTY and header.queue_offset:
            code = ResponseCode.PULL_OFFSET_MOVED
        # one that a filter let nothing through for waits on, but not where there is more to look at
        waits = code == ResponseCode.PULL_NOT_FOUND or (
            deadline is not None
            and code == ResponseCode.PULL_RETRY_IMMEDIATELY
            and found.next_offset >= found.max_offset
        )
        if waits and header.sys_flag & _SUSPEND and not last and self._broker.waiting_pulls.has_room(connection):
            self._park(request, connection, header, found, deadline)
            return None
        offsets.pulled(header.consumer_group, header.topic, header.queue_id, found.next_offset)
        return pull_answer(request, code, found, remark)

    def _park(
        self, request: Command, connection: Connection, header: headers.PullRequest, found: Read, deadline: float | None
    ) -> None:
        if deadline is None:
            limits = self._broker.settings.limits
            deadline = self._broker.loop_time() + min(header.suspend_timeout_millis / 1000, limits.max_suspend_s)
        # Many pulls wait: each keeps only what its next try needs. Where a filter let nothing through, that goes on
        # behind what it has seen.
        needed = msgspec.structs.replace(
            header,
            queue_offset=found.next_offset,
            subscription=header.subscription if header.sys_flag & _SUBSCRIPTION else None,
            request_source=None,
            proxy_forward_client_id=None,
        )
        request.ext, request.body, request.remark = needed.to_ext(), b"", None

        def retry(late: bool) -> None:
            connection.serve([(request, partial(self._pull, deadline=deadline, last=late))])

        self._broker.waiting_pulls.park(WaitingPull(connection, header.topic, header.queue_id, deadline, retry))

    def _check(self, header: headers.PullRequest, connection: Connection) -> None:
        group = self._broker.group_configs.get(header.consumer_group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist: create it",
            )
        if not group.consume_enable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}")
        topic = self._broker.topics.get(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        if not topic.perm & _READ:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{connection.address}]",
            )

    def _filter(self, header: headers.PullRequest) -> Collection[int] | Filter | None:
        """What the group wants: the hashes of tags, a filter on properties, or None for everything."""
        if header.sys_flag & _SUBSCRIPTION:
            if is_sql(header.expression_type):
                return self._broker.sql_filters.get(header.subscription or "")
            self._broker.sql_filters.check(header.subscription or "")
            try:
                return _codes_of(header.subscription)
            except ArgumentError as error:
                raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        group = self._broker.groups.get(header.consumer_group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist: no member of {header.consumer_group} sent a heartbeat",
            )
        wanted = group.subscriptions.get(header.topic)
        if wanted is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: {header.consumer_group} does not subscribe to {header.topic}; "
                f"all members of a group must have the same subscriptions",
            )
        if wanted.sub_version < header.sub_version:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if is_sql(wanted.expression_type):
            return self._broker.sql_filters.get(wanted.sub_string)
        return wanted.code_set or None
