"""The names of topics and groups: what they may be, which ones are RocketMQ's own, and the namespace before them."""

from __future__ import annotations

import re

__all__ = [
    "DEAD_LETTER",
    "NOT_FOR_SENDING",
    "PATH_LIMIT",
    "RETRY",
    "TOPIC_LIMIT",
    "group_error",
    "is_system_topic",
    "may_send",
    "reply_topic",
    "topic_error",
    "with_namespace",
    "without_namespace",
]

# In front of a group's name: where messages wait that it could not consume, and where they end.
RETRY = "%RETRY%"
DEAD_LETTER = "%DLQ%"

# Topics of the broker's own books: a client that wrote there would corrupt them.
NOT_FOR_SENDING = frozenset(
    "SCHEDULE_TOPIC_XXXX RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRANS_OP_HALF_TOPIC TRANS_CHECK_MAX_TIME_TOPIC "
    "SELF_TEST_TOPIC OFFSET_MOVED_EVENT".split()
)
_SYSTEM = NOT_FOR_SENDING.union("TBW102 BenchmarkTest RMQ_SYS_TRACE_TOPIC CHECKPOINT_TOPIC".split())
_SYSTEM_PREFIX = "rmq_sys_"
# every cluster has one topic for replies, whoever asked
_REPLY_POSTFIX = "_REPLY_TOPIC"

# what a topic's name may have at most, unless a broker is set otherwise
TOPIC_LIMIT = 127

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
# Topics are directories of a broker: no name may be longer, whatever the broker is set to.
PATH_LIMIT = 255
# a group's name is a part of its topics' names
_GROUP_LIMIT = 120


def topic_error(topic: str, longest: int = TOPIC_LIMIT) -> str | None:
    """What is wrong with a topic's name, or None.

    >>> topic_error("orders"), topic_error("or ders")
    (None, "topic 'or ders' has characters other than %, |, a-z, A-Z, 0-9, _ and -")
    """
    return _error("topic", topic, PATH_LIMIT if topic.startswith((RETRY, DEAD_LETTER)) else longest)


def group_error(group: str) -> str | None:
    """What is wrong with a group's name, or None.

    >>> group_error("billing"), group_error("g" * 121) is None
    (None, False)
    """
    return _error("group", group, _GROUP_LIMIT)


def _error(kind: str, name: str, limit: int) -> str | None:
    if not name.strip():
        return f"the {kind}'s name is blank"
    if not _NAME.fullmatch(name):
        return f"{kind} {name!r} has characters other than %, |, a-z, A-Z, 0-9, _ and -"
    if len(name) > limit:
        return f"{kind} {name!r} has {len(name)} characters; at most {limit} are possible"
    return None


def is_system_topic(topic: str) -> bool:
    """Whether a topic is RocketMQ's own, the same in every namespace."""
    return topic in _SYSTEM or topic.startswith(_SYSTEM_PREFIX) or topic.endswith(_REPLY_POSTFIX)


def may_send(topic: str) -> bool:
    """Whether clients may send to a topic: not to one of the broker's own books.

    >>> may_send("orders"), may_send("RMQ_SYS_TRACE_TOPIC"), may_send("rmq_sys_wheel_timer")
    (True, True, False)
    """
    return topic not in NOT_FOR_SENDING and not topic.startswith(_SYSTEM_PREFIX)


def reply_topic(cluster: str) -> str:
    """The topic of a cluster in which replies are stored."""
    return cluster + _REPLY_POSTFIX


def with_namespace(namespace: str, name: str) -> str:
    """A topic or group as it is called on the wire; one that has its namespace already stays as it is.

    >>> with_namespace("shop", "orders"), with_namespace("shop", "%RETRY%billing"), with_namespace("", "orders")
    ('shop%orders', '%RETRY%shop%billing', 'orders')
    """
    prefix, own = _split(name)
    if not namespace or is_system_topic(name) or own.startswith(f"{namespace}%"):
        return name
    return f"{prefix}{namespace}%{own}"


def without_namespace(namespace: str, name: str) -> str:
    """The inverse of :func:`with_namespace`; a name of another namespace stays as it is.

    >>> without_namespace("shop", "shop%orders"), without_namespace("shop", "%RETRY%shop%billing")
    ('orders', '%RETRY%billing')
    """
    prefix, own = _split(name)
    return prefix + own.removeprefix(f"{namespace}%") if namespace else name


def _split(name: str) -> tuple[str, str]:
    """The mark of a group's own topic, if there is one, and the rest."""
    for prefix in (RETRY, DEAD_LETTER):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
