"""Dead letters: messages that a group gave up. To look at them, and to send them to the group again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from evenq.client.admin.base import milliseconds
from evenq.client.admin.groups import Groups
from evenq.client.admin.messages import Messages
from evenq.client.net.remote import refusal, together
from evenq.errors import ArgumentError, ConnectError, PartlySent, RefusedError, RemoteError, TopicNotFound
from evenq.model import MessageQueue, Property, SendStatus
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.compression import DEFAULT_THRESHOLD, compress
from evenq.protocol.headers import SendBack, SendRequestV2, SendResponse, ViewMessage
from evenq.protocol.ids import parse_message_id
from evenq.protocol.names import DEAD_LETTER, RETRY
from evenq.protocol.properties import encode_properties
from evenq.protocol.records import decode_messages
from evenq.protocol.view import MessageView

__all__ = ["DeadLetter", "DeadLetters"]

# What a broker is asked to take whatever it was tried before.
_ANY_TIMES = (1 << 31) - 1
# The delay before a message that is sent back comes: the shortest, 1 s.
_SOON = 1
# A broker chooses one of the queues of a group's retries by itself.
_ANY_QUEUE = -1
# The producer group of what Java's consumers send to a retry topic.
_SENDER = "CLIENT_INNER_PRODUCER"

# Answers that mean: stored, if with less safety than was asked for. They are the same numbers as its codes.
_STORED = frozenset(map(int, SendStatus))

# Properties of the message's way here, which would send it that way again: it is to come at once, counted from 0.
_OF_THE_WAY = frozenset(
    {
        Property.DELAY,
        Property.WAIT,
        Property.REAL_TOPIC,
        Property.REAL_QUEUE_ID,
        Property.RECONSUME_TIMES,
        Property.MAX_RECONSUME_TIMES,
        Property.HALF,
        Property.CLUSTER,
        *"MSG_REGION TRACE_ON POP_CK 1ST_POP_TIME CONSUME_START_TIME MIN_OFFSET MAX_OFFSET".split(),
    }
)
_OF_A_TIMER = "TIMER_"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that ``group`` gave up, after it had it ``tries`` times, as its brokers counted.

    ``topic`` is where it was sent to, ``origin_id`` the broker's id that it had there. ``message`` is what lies with
    the dead letters: its body, keys, tags and ``unique_key`` are those of the message that was sent, its ``stored_at``
    is when it was given up, its ``msg_id`` and queue are those of the dead letter.
    """

    group: str
    topic: str | None
    origin_id: str
    tries: int
    message: MessageView

    @property
    def ids(self) -> tuple[str, ...]:
        """By what it may be called: the producer's id, the broker's id of the message, and of the dead letter."""
        return tuple(filter(None, (self.message.unique_key, self.origin_id, self.message.msg_id)))


class DeadLetters(Messages, Groups):
    """What can be asked of dead letters and done with them."""

    async def dead_letters(
        self, group: str, *, limit: int = 32, begin: datetime | None = None, end: datetime | None = None
    ) -> tuple[DeadLetter, ...]:
        """The newest messages that the group gave up, at most ``limit``, the oldest first; those that it gave up from
        ``begin`` to ``end`` if given.

        They stay there until their broker deletes them by age, also when they were sent again. None of them is no
        error, a group that nobody knows is. The broker of RocketMQ 4 makes the topic of dead letters without read
        permission: it must be given before.
        """
        if limit < 1:
            raise ArgumentError("limit", limit, "give 1 or more")
        return await self._letters(group, begin, end, limit)

    async def resend_dead_letters(
        self,
        group: str,
        letters: Iterable[DeadLetter | str] | None = None,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
    ) -> tuple[DeadLetter, ...]:
        """Send dead letters again, to this group only; gives those that were sent, the oldest first.

        ``letters`` are what :meth:`dead_letters` gave, or ids: of the producer, of the broker, or of the dead letter
        itself. Without them all are sent, or those from ``begin`` to ``end``. A message that was given up more than
        once is sent once.

        Each goes to the group's topic of retries on the broker where it lies: published to its own topic, it would
        come to all other groups a second time. It keeps its body, tags, keys, unique key and own properties, comes at
        once, and counts as never tried: a handler sees ``reconsume_times`` 0, and the group has all of its tries
        again. Members that consume in order hold locks, under which brokers send all that comes for retries to the
        dead letters: to such a group each is given back as its members do it, and its tries are counted on.

        The dead letters stay where they are: who calls this twice sends them twice. Where some were not sent,
        :class:`~evenq.PartlySent` tells which; one whose broker did not answer may have been sent nevertheless.
        """
        masters = await self._chosen()
        await self._known_group(group, masters)
        chosen = _each_once(await self._chosen_letters(group, letters, begin, end))
        in_order = bool(chosen) and await self._consumes_in_order(group, masters)
        parts: dict[str, list[DeadLetter]] = {}
        for letter in chosen:
            parts.setdefault(letter.message.broker, []).append(letter)
        failed: dict[str, RemoteError] = {}
        for part in await together(
            *(self._resend_part(group, masters.get(broker), part, in_order) for broker, part in parts.items())
        ):
            failed |= part
        if failed:
            raise PartlySent(RETRY + group, [failed.get(letter.message.msg_id, letter) for letter in chosen])
        return tuple(chosen)

    async def _letters(
        self, group: str, begin: datetime | None, end: datetime | None, limit: int | None = None
    ) -> tuple[DeadLetter, ...]:
        """The newest ``limit`` dead letters, or all, of all brokers, by the time at which they were given up."""
        first = 0 if begin is None else milliseconds("begin", begin)
        last = None if end is None else milliseconds("end", end)
        queues = await self._letter_queues(group)
        found = await together(*(self._letters_of(queue, first, last, limit) for queue in queues))
        letters = [
            self._letter(group, message)
            for part in found
            for message in part
            if first <= message.store_timestamp and (last is None or message.store_timestamp <= last)
        ]
        letters.sort(key=_when_given_up)
        return tuple(letters[-limit:] if limit else letters)

    def _letter(self, group: str, message: MessageView) -> DeadLetter:
        properties = message.properties
        topic = properties.get(Property.RETRY_TOPIC) or properties.get(Property.REAL_TOPIC)
        return DeadLetter(
            group=self._own(group),
            # what a client sent to the dead letters itself has no topic of its own
            topic=None if topic is None or topic.startswith((RETRY, DEAD_LETTER)) else self._own(topic),
            origin_id=properties.get(Property.ORIGIN_ID) or message.msg_id,
            tries=message.reconsume_times,
            message=message,
        )

    async def _letter_queues(self, group: str) -> list[MessageQueue]:
        """The queues of the group's dead letters; none where it never had one."""
        topic = DEAD_LETTER + group
        try:
            parts = await self.route(topic)
        except TopicNotFound:
            await self._known_group(group, await self._chosen())
            return []
        closed = [part.broker for part in parts if "r" not in part.perm]
        if closed:
            raise ArgumentError(
                "group",
                group,
                f"its dead letters on {', '.join(closed)} may not be read: give topic {topic} read permission, "
                f"e.g. evenq topic update '{topic}' --perm rw",
            )
        return [MessageQueue(topic, part.broker, number) for part in parts for number in range(part.read_queues)]

    async def _letters_of(
        self, queue: MessageQueue, first: int, last: int | None, limit: int | None
    ) -> list[MessageView]:
        """The messages of one queue that may be wanted: its broker finds times by their neighbourhood only."""
        remote = self._session.remote
        wire = self._wire_queue(queue)
        address = (await self._session.routes.refresh(wire.topic)).address(queue.broker)
        start, stop = await together(remote.min_offset(address, wire), remote.max_offset(address, wire))
        if first and start < stop:
            start = max(start, await remote.offset_at(address, wire, first))
        if last is not None and start < stop:
            stop = min(stop, await remote.offset_at(address, wire, last + 1) + 1)
        if limit is not None:
            # one more, as the last one may be too new
            start = max(start, stop - limit - 1)
        return list(await self.messages_at(queue, start, stop - start)) if start < stop else []

    async def _chosen_letters(
        self, group: str, letters: Iterable[DeadLetter | str] | None, begin: datetime | None, end: datetime | None
    ) -> Sequence[DeadLetter]:
        if letters is None:
            return await self._letters(group, begin, end)
        wanted = [letters] if isinstance(letters, str) else list(letters)
        if begin is not None or end is not None:
            raise ArgumentError("letters", f"{len(wanted)} of them", "give letters or a time, not both")
        chosen = [letter for letter in wanted if isinstance(letter, DeadLetter)]
        for letter in chosen:
            if self._wire(letter.group) != self._wire(group):
                raise ArgumentError("letters", letter.message.msg_id, f"it is a dead letter of group {letter.group!r}")
        ids = [letter for letter in wanted if isinstance(letter, str)]
        if ids:
            # of several that have the same id, the newest
            known = {each: letter for letter in await self._letters(group, None, None) for each in letter.ids}
            for each in ids:
                if each not in known:
                    raise ArgumentError("letters", each, f"group {group!r} has no dead letter with this id")
            chosen += [known[each] for each in ids]
        return sorted(chosen, key=_when_given_up)

    async def _consumes_in_order(self, group: str, masters: dict[str, str]) -> bool:
        members = (await self.members(group)).members
        told = await together(*(self._running_info(masters, group, client) for client in members))
        return any(info is not None and info.properties.get("PROP_CONSUMEORDERLY") == "true" for info in told)

    async def _resend_part(
        self, group: str, address: str | None, letters: list[DeadLetter], in_order: bool
    ) -> dict[str, RemoteError]:
        """Send those of one broker, one after the other; gives what failed, by the dead letter's id."""
        failed: dict[str, RemoteError] = {}
        lost: RemoteError | None = None
        if address is None:
            lost = ConnectError(letters[0].message.broker, "this broker has no master now, and a slave takes nothing")
        for letter in letters:
            error = lost
            if error is None and address is not None:
                try:
                    await self._resend_one(address, letter, in_order)
                except RefusedError as refused:
                    error = refused
                except RemoteError as gone:
                    # the others would wait for the same
                    error = lost = gone
            if error is not None:
                name = letter.message.unique_key or letter.message.msg_id
                failed[letter.message.msg_id] = RemoteError(f"dead letter {name} of group {group}: {error}")
        return failed

    async def _resend_one(self, address: str, letter: DeadLetter, in_order: bool) -> None:
        message = letter.message
        if not in_order:
            _, offset = parse_message_id((await self._publish(address, letter)).msg_id)
            answer = await self._ask(address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=offset))
            message = decode_messages(answer.body, broker=message.broker)[0]
            if not message.topic.startswith(DEAD_LETTER):
                return
            # some lock of the group holds still: members that consume in order were here a minute ago
        header = SendBack(
            broker_name=message.broker,
            offset=message.commit_log_offset,
            group=self._wire(letter.group),
            delay_level=_SOON,
            origin_msg_id=letter.origin_id,
            origin_topic=None if letter.topic is None else self._wire(letter.topic),
            max_reconsume_times=_ANY_TIMES,
        )
        await self._session.remote.send_back(address, header)

    async def _publish(self, address: str, letter: DeadLetter) -> SendResponse:
        """Send the message to the group's retries, as if it had not been tried yet."""
        message = letter.message
        properties = {
            name: value
            for name, value in message.properties.items()
            if name not in _OF_THE_WAY and not name.startswith(_OF_A_TIMER)
        }
        properties[Property.ORIGIN_ID] = letter.origin_id
        if letter.topic is not None:
            properties[Property.RETRY_TOPIC] = self._wire(letter.topic)
        body, sys_flag = message.body, 0
        if len(body) > DEFAULT_THRESHOLD:
            body, sys_flag = compress(body, "ZLIB")
        header = SendRequestV2(
            producer_group=_SENDER,
            topic=RETRY + self._wire(letter.group),
            queue_id=_ANY_QUEUE,
            sys_flag=sys_flag,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=encode_properties(properties),
            broker_name=message.broker,
        )
        code = RequestCode.SEND_MESSAGE_V2
        request = Command(code, ext=header.to_ext(), body=body)
        answer = await self._session.remote.connections.request(address, request, self._session.timeouts.send)
        if answer.code not in _STORED:
            raise refusal(address, code, answer)
        return SendResponse.from_ext(answer.ext)


def _when_given_up(letter: DeadLetter) -> tuple[int, MessageQueue, int]:
    """In order of time; the same for those of one moment, whichever broker answers first."""
    return letter.message.store_timestamp, letter.message.queue, letter.message.queue_offset


def _each_once(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """The newest dead letter of each message; the oldest first."""
    newest = {letter.origin_id: letter for letter in sorted(letters, key=_when_given_up)}
    return sorted(newest.values(), key=_when_given_up)
