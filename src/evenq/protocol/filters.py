"""What a group wants of a topic: tag expressions and SQL92, as the subscription that heartbeats carry."""

from __future__ import annotations

from collections.abc import Collection

from evenq.errors import ArgumentError
from evenq.model import java_string_hash
from evenq.protocol.bodies import Subscription

__all__ = ["EVERYTHING", "SQL92", "TAG", "parse_tags", "passes", "subscription", "tag_code"]

EVERYTHING = "*"
TAG = "TAG"
SQL92 = "SQL92"


def tag_code(tag: str | None) -> int:
    """What consume queues hold of a tag: Java's hash, and 0 for a message without one.

    >>> tag_code("TagA"), tag_code(None)
    (2598919, 0)
    """
    return java_string_hash(tag) if tag else 0


def parse_tags(expression: str) -> frozenset[str]:
    """The tags of an expression; none for ``*``, which takes everything.

    >>> sorted(parse_tags("paid || refunded")), parse_tags("*")
    (['paid', 'refunded'], frozenset())
    """
    if not expression or expression == EVERYTHING:
        return frozenset()
    tags = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    if not tags:
        raise ArgumentError("expression", expression, "give tags like 'paid || refunded', or '*' for everything")
    return tags


def subscription(topic: str, expression: str = EVERYTHING, *, version: int, expression_type: str = TAG) -> Subscription:
    """The subscription of a group to a topic. ``version`` is now, in milliseconds: the newest one counts.

    >>> subscription("orders", "paid", version=0).code_set
    {3433164}
    """
    if not topic:
        raise ArgumentError("topic", topic, "give the name of a topic")
    if not isinstance(expression, str):
        kind = "a string of tags, such as 'paid || refunded'" if expression_type == TAG else "a condition as a string"
        raise ArgumentError("expression", expression, f"give {kind}")
    tags = parse_tags(expression) if expression_type == TAG else frozenset()
    return Subscription(
        topic=topic,
        sub_string=expression or EVERYTHING,
        tags_set=set(tags),
        code_set=set(map(tag_code, tags)),
        sub_version=version,
        expression_type=expression_type,
    )


def passes(tags: Collection[str], tag: str | None) -> bool:
    """Whether a message with ``tag`` is wanted. The broker only compares hashes, so the client looks again."""
    return not tags or tag in tags
