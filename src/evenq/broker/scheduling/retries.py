"""Where messages go that a group could not consume: to its retry topic, in the end to its dead letters."""

from __future__ import annotations

import random
from collections.abc import Mapping

from evenq.broker.admission import INT32, TIMERS
from evenq.broker.scheduling.parked import copy_for
from evenq.broker.server import Refusal
from evenq.broker.state.groups import GroupConfigs
from evenq.broker.state.locks import QueueLocks
from evenq.broker.state.topics import Topics, dead_letter_topic, retry_topic
from evenq.broker.store.store import NewMessage
from evenq.model import Property
from evenq.protocol import headers
from evenq.protocol.bodies import GroupConfig
from evenq.protocol.codes import ResponseCode
from evenq.protocol.flags import Perm, SysFlag
from evenq.protocol.view import MessageView

__all__ = ["RETRY_PREFIX", "Retries"]

RETRY_PREFIX = retry_topic("")
_TRANSACTION = int(SysFlag.TRANSACTION)
_DEAD_LETTER_QUEUES = 1

# The level of the first redelivery; each one after it waits at the next level.
_FIRST_LEVEL = 3


class Retries:
    """Decides what becomes of a message that a group could not consume, and makes the topics for it."""

    def __init__(self, topics: Topics, groups: GroupConfigs, locks: QueueLocks) -> None:
        self._topics = topics
        self._groups = groups
        self._locks = locks

    def group(self, name: str) -> GroupConfig:
        found = self._groups.get(name)
        if found is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}: create it")
        return found

    def sent_back(
        self, message: MessageView, header: headers.SendBack, group: GroupConfig
    ) -> tuple[NewMessage, dict[str, str]]:
        """What is to be stored, and with which properties, for a message that a member gave back."""
        dead = message.reconsume_times >= _limit(header.max_reconsume_times, group) or header.delay_level < 0
        level = 0 if dead else header.delay_level or _FIRST_LEVEL + message.reconsume_times
        properties = {Property.RETRY_TOPIC: message.topic, Property.ORIGIN_ID: message.msg_id}
        own = {name: value for name, value in message.properties.items() if name not in TIMERS}
        properties |= {**own, Property.DELAY: str(level), Property.WAIT: "false"}
        again = copy_for(message, *self._place(group, dead), properties)
        # without the bits of a transaction, which would make it one that was committed from the start of the log
        return again._replace(
            sys_flag=again.sys_flag & ~_TRANSACTION,
            reconsume_times=min(again.reconsume_times + 1, INT32[1]),
            prepared_transaction_offset=0,
        ), properties

    def redirected(
        self, message: NewMessage, properties: Mapping[str, str], max_times: int | None
    ) -> tuple[NewMessage, dict[str, str]]:
        """The same for a message that a client sends to a retry topic itself: Java members do so where a broker does
        not take one back. Of a group that consumes in order nothing is tried again."""
        group = self.group(message.topic.removeprefix(RETRY_PREFIX))
        if message.reconsume_times > _limit(max_times, group) or self._locks.is_locked(group.group_name):
            topic, queue_id = self._place(group, dead=True)
            return message._replace(topic=topic, queue_id=queue_id), {**properties, Property.DELAY: "-1"}
        return message, dict(properties)

    def _place(self, group: GroupConfig, dead: bool) -> tuple[str, int]:
        """The topic and queue for the next time, or for the last."""
        queues = _DEAD_LETTER_QUEUES if dead else group.retry_queue_nums
        name = dead_letter_topic(group.group_name) if dead else retry_topic(group.group_name)
        topic = self._topics.create_for_group(name, queues)
        if not topic.perm & Perm.WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        count = min(queues, topic.write_queue_nums)
        if count < 1:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{name}] has no queue that can be written")
        return name, random.randrange(count)


def _limit(asked: int | None, group: GroupConfig) -> int:
    return group.retry_max_times if asked is None else asked
