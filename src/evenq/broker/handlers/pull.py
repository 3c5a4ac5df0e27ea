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

Nothing answers a pull that waits (:class:`WaitingPulls`): a woken one is tried again by whoever parked it, who may let
it wait on. The headers of answers that bring messages differ in four numbers only: they are made of one form.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import msgspec

from evenq.broker.filter.matching import is_sql, read_matching
from evenq.broker.filter.sql import Filter
from evenq.broker.limits import Limits
from evenq.broker.server import Connection, Handler, Refusal
from evenq.broker.store.store import Read, ReadStatus
from evenq.errors import ArgumentError
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import RESPONSE, Command, Serialize, frame_parts
from evenq.protocol.filters import parse_tags, tag_code
from evenq.protocol.flags import Perm, PullFlag

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["FOUND", "PullHandlers", "WaitingPull", "WaitingPulls", "found_answer", "pull_answer", "pull_ext"]

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


class PullHandlers:
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


_CROWDED = 1024
# So many woken pulls are tried again in one round of the loop.
_AT_ONCE = 64


@dataclass(slots=True, eq=False)
class WaitingPull:
    """A pull of ``connection`` for the queue, until ``deadline`` (by the clock of the table).

    ``retry`` tries it again; its argument is whether the time is up.
    """

    connection: Connection
    topic: str
    queue_id: int
    deadline: float
    retry: Callable[[bool], None]


class WaitingPulls:
    """The waiting pulls of a broker, by queue and by deadline.

    One call of ``schedule(when, callback)`` is outstanding at any time, for the earliest deadline: a pull that waits
    costs an entry in a table, not a task.
    """

    def __init__(
        self,
        schedule: Callable[[float, Callable[[], None]], object],
        now: Callable[[], float],
        limits: Limits | None = None,
    ) -> None:
        self._schedule = schedule
        self._now = now
        self._limits = limits or Limits()
        self._by_connection: dict[Connection, dict[WaitingPull, None]] = {}
        self._count = 0
        # those that messages came for and that are not tried again yet
        self._woken: deque[WaitingPull] = deque()
        self._by_queue: dict[tuple[str, int], dict[WaitingPull, None]] = {}
        self._deadlines: list[tuple[float, int, WaitingPull]] = []
        self._order = itertools.count()
        self._crowded = _CROWDED
        # when the outstanding timer goes off
        self._timer = float("inf")

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def has_room(self, connection: Connection) -> bool:
        """Whether one more pull of the connection may wait."""
        if connection.ended:
            return False
        own = self._by_connection.get(connection, ())
        return self._count < self._limits.max_parked_pulls_total and len(own) < self._limits.max_parked_pulls

    def park(self, pull: WaitingPull) -> None:
        self._count += 1
        self._by_connection.setdefault(pull.connection, {})[pull] = None
        pull.connection.wait()
        self._by_queue.setdefault((pull.topic, pull.queue_id), {})[pull] = None
        heapq.heappush(self._deadlines, (pull.deadline, next(self._order), pull))
        if len(self._deadlines) > self._crowded:
            self._sweep()
        self._arm()

    def _sweep(self) -> None:
        """Drop deadlines of pulls that were woken long ago: they must not pile up where messages come fast."""
        self._deadlines = [entry for entry in self._deadlines if self._waits(entry[2])]
        heapq.heapify(self._deadlines)
        self._crowded = max(_CROWDED, 2 * len(self._deadlines))

    def _waits(self, pull: WaitingPull) -> bool:
        return pull in self._by_queue.get((pull.topic, pull.queue_id), ())

    def queues(self, topic: str) -> list[tuple[str, int]]:
        """The queues of a topic that are waited for, also such as it has no more."""
        return [queue for queue in self._by_queue if queue[0] == topic]

    def arrived(self, queues: Iterable[tuple[str, int]]) -> None:
        """Messages came to these queues: wake all that wait there. Where they are many, others have their turn
        between."""
        idle = not self._woken
        for queue in queues:
            self._woken.extend(self._by_queue.pop(queue, ()))
        if idle:
            self._try_again()

    def _try_again(self) -> None:
        end = self._now() + self._limits.loop_budget_s
        try:
            for _ in range(min(_AT_ONCE, len(self._woken))):
                pull = self._woken.popleft()
                # one whose connection is gone was forgotten meanwhile
                if self._release(pull):
                    pull.retry(False)
                if self._now() > end:
                    break
        finally:
            if self._woken:
                self._schedule(self._now(), self._try_again)

    def _release(self, pull: WaitingPull) -> bool:
        """The pull waits no more; whether it did."""
        own = self._by_connection.get(pull.connection, {})
        if pull not in own:
            return False
        del own[pull]
        if not own:
            del self._by_connection[pull.connection]
        self._count -= 1
        pull.connection.done()
        return True

    def forget(self, connection: Connection) -> None:
        """Drop the pulls of a connection that is gone."""
        for pull in list(self._by_connection.get(connection, ())):
            if self._waits(pull):
                self._remove(pull)
            else:
                self._release(pull)

    def _remove(self, pull: WaitingPull) -> None:
        queue = (pull.topic, pull.queue_id)
        del self._by_queue[queue][pull]
        if not self._by_queue[queue]:
            del self._by_queue[queue]
        self._release(pull)

    def _arm(self) -> None:
        if self._deadlines and self._deadlines[0][0] < self._timer:
            self._timer = self._deadlines[0][0]
            self._schedule(self._timer, self._expire)

    def _expire(self) -> None:
        now = self._now()
        self._timer = float("inf")
        try:
            while self._deadlines and self._deadlines[0][0] <= now:
                _, _, pull = heapq.heappop(self._deadlines)
                # a pull that was woken meanwhile may still stand in the heap
                if self._waits(pull):
                    self._remove(pull)
                    pull.retry(True)
                if self._now() > now + self._limits.loop_budget_s:
                    break
        finally:
            self._arm()


# Java's own name of it travels as the remark
FOUND = "FOUND"

# stands for the number of the request until it is known
_OPAQUE = 1_234_567_890


def pull_ext(next_offset: object, min_offset: object, max_offset: object) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


_whole = Command(ResponseCode.SUCCESS, _OPAQUE, RESPONSE, remark=FOUND, ext=pull_ext("%d", "%d", "%d"))
_HEADER = _whole.parts("JSON")[1].replace(b"%d" % _OPAQUE, b"%d")


class _Found(Command, gc=False):
    """An answer whose header is written already, in the format that it was asked in."""

    header: bytes = b""

    def parts(self, serialize: Serialize | None = None) -> tuple[bytes, bytes, bytes]:
        return frame_parts(self.header, self.body)


def pull_answer(request: Command, code: ResponseCode, read: Read, remark: str) -> Command:
    """The answer to a pull, whatever came of it."""
    ext = pull_ext(read.next_offset, read.min_offset, read.max_offset)
    return request.reply(code, ext=ext, body=read.body, remark=remark)


def found_answer(request: Command, found: Read) -> Command:
    """The answer to a pull that found messages."""
    if request.serialize != "JSON":
        return pull_answer(request, ResponseCode.SUCCESS, found, FOUND)
    header = _HEADER % (found.next_offset, found.min_offset, found.max_offset, request.opaque)
    return _Found(ResponseCode.SUCCESS, request.opaque, RESPONSE, remark=FOUND, body=found.body, header=header)
