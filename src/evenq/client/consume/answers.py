"""What a member answers when brokers ask: how it is doing, where it is, and to go elsewhere.

Brokers pass these on for administrators: ``mqadmin consumerStatus``, dashboards, resets of offsets.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic

from evenq._version import __version__
from evenq.client.consume.dispatch import Outcome
from evenq.client.consume.stats import Stats
from evenq.client.group.held import H
from evenq.client.net.session import Session
from evenq.model import MessageQueue
from evenq.protocol.bodies import (
    ConsumerStatusBody,
    DirectResult,
    MemberQueue,
    QueueOffsets,
    RunningInfo,
    Subscription,
)
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.headers import ConsumeDirectly, ConsumerStatus, ResetOffset, RunningInfoRequest
from evenq.protocol.records import decode_messages
from evenq.protocol.view import MessageView

__all__ = ["Answers"]

log = logging.getLogger(__name__)

MIB = 1024 * 1024


class Answers(Generic[H]):
    """Serves the questions of brokers to one member.

    ``reset(holding, offset)`` lets a queue go on elsewhere. ``direct`` calls the handler with one message and gives its
    outcome or raises what it raises; a consumer that has no handler has none.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        holdings: Callable[[], Iterable[H]],
        subscriptions: Callable[[], Iterable[Subscription]],
        settings: Callable[[], dict[str, str]],
        reset: Callable[[H, int], Awaitable[None]],
        stats: Stats | None = None,
        direct: Callable[[MessageView], Awaitable[Outcome]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._group = group
        self._holdings = holdings
        self._subscriptions = subscriptions
        self._settings = settings
        self._reset_one = reset
        self._stats = stats
        self._direct = direct
        self._clock = clock
        self._wall = wall
        self._began = wall()

    def serve(self) -> None:
        """Answer from now on."""
        self._session.on(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        self._session.on(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status)
        self._session.on(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running)
        self._session.on(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume)

    def running_info(self, *, stacks: bool = False) -> RunningInfo:
        """What this member is doing, by Java's names."""
        wanted = sorted(self._subscriptions(), key=lambda each: each.topic)
        stats = self._stats
        return RunningInfo(
            properties={
                "consumerGroup": self._group,
                "PROP_NAMESERVER_ADDR": ";".join(self._session.name_servers.addresses),
                "PROP_CLIENT_VERSION": f"evenq {__version__}",
                "PROP_CONSUMER_START_TIMESTAMP": str(round(self._began * 1000)),
                **self._settings(),
            },
            subscription_set=wanted,
            mq_table={holding.queue: self._describe(holding) for holding in self._holdings()},
            status_table={each.topic: stats.of(each.topic) for each in wanted} if stats is not None else {},
            jstack=thread_stacks() if stacks else None,
        )

    async def _running(self, command: Command) -> Command:
        header = RunningInfoRequest.from_ext(command.ext)
        if header.consumer_group != self._group:
            return self._not_here(command, header.consumer_group)
        return command.reply(body=self.running_info(stacks=header.jstack_enable).encode())

    async def _status(self, command: Command) -> Command:
        header = ConsumerStatus.from_ext(command.ext)
        offsets: dict[MessageQueue, int] = {}
        if header.group == self._group:
            holdings = [holding for holding in self._holdings() if header.topic in ("", holding.queue.topic)]
            offsets = {holding.queue: holding.committable for holding in holdings}
        return command.reply(body=ConsumerStatusBody(message_queue_table=offsets).encode())

    async def _reset(self, command: Command) -> Command:
        header = ResetOffset.from_ext(command.ext)
        if header.group == self._group and command.body:
            wanted = QueueOffsets.decode(command.body).offset_table
            for holding in list(self._holdings()):
                offset = wanted.get(holding.queue)
                if offset is not None:
                    log.info("%s goes on at %d, as the broker says", holding.queue, offset)
                    await self._reset_one(holding, offset)
        return command.reply()

    async def _consume(self, command: Command) -> Command:
        header = ConsumeDirectly.from_ext(command.ext)
        if header.consumer_group != self._group or self._direct is None:
            return self._not_here(command, header.consumer_group)
        [message] = decode_messages(command.body, broker=header.broker_name or "")
        began = self._clock()
        remark = None
        try:
            outcome = await self._direct(message)
        except Exception as error:  # noqa: BLE001 - it is the handler's, and what is asked for
            result, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
        else:
            result = "CR_SUCCESS" if outcome is None else "CR_LATER"
        spent = round((self._clock() - began) * 1000)
        order = self._settings().get("PROP_CONSUMEORDERLY") == "true"
        answer = DirectResult(order=order, consume_result=result, remark=remark, spent_time_mills=spent)
        return command.reply(body=answer.encode())

    def _not_here(self, command: Command, group: str) -> Command:
        return command.reply(
            ResponseCode.SYSTEM_ERROR, remark=f"The Consumer Group <{group}> not exist in this consumer"
        )

    def _describe(self, holding: H) -> MemberQueue:
        cached = holding.cached
        return MemberQueue(
            commit_offset=holding.committable,
            cached_msg_min_offset=cached.first,
            cached_msg_max_offset=cached.last,
            cached_msg_count=cached.count,
            cached_msg_size_in_mib=cached.bytes // MIB,
            locked=holding.lease.locked,
            last_lock_timestamp=self._wall_ms(holding.lease.granted_at),
            last_pull_timestamp=self._wall_ms(holding.pulled_at),
            last_consume_timestamp=self._wall_ms(holding.consumed_at),
        )

    def _wall_ms(self, moment: float) -> int:
        """A time of the clock that only counts, as a time of day; 0 for never."""
        return round((self._wall() - (self._clock() - moment)) * 1000) if moment > 0 else 0


def thread_stacks() -> str:
    """Where every thread of this process is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f'"{names.get(ident, ident)}"\n{"".join(traceback.format_stack(frame))}'
        for ident, frame in sys._current_frames().items()
    ]
    return "\n".join(parts)
