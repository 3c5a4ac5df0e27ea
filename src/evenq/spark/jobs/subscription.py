"""What a checkpoint was made for, so that it is not used for something else.

A checkpoint knows how far each queue was read. Read something else with it, come back, and queues that it has forgotten
in between are read from their beginning: messages would come twice. So what is read is written down beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from evenq.errors import ArgumentError
from evenq.spark.jobs.files import Files, join

__all__ = ["check_same", "remember", "subscription"]

# What decides which messages are read at all.
_NAMES = ("subscribe", "subscribePattern", "assign", "tags", "sql")
_FILE = "evenq-subscription.json"


def subscription(options: Mapping[str, str]) -> dict[str, str]:
    """What is read, of all options; topics in order.

    >>> subscription({"namesrv": "x:1", "SUBSCRIBE": "b, a"})
    {'subscribe': 'a,b'}
    """
    given = {name.lower(): text for name, text in options.items()}
    found = {name: given[name.lower()] for name in _NAMES if name.lower() in given}
    if "subscribe" in found:
        found["subscribe"] = ",".join(sorted({topic.strip() for topic in found["subscribe"].split(",")}))
    return found


def check_same(before: Mapping[str, str], now: Mapping[str, str], checkpoint: str) -> None:
    """Topics may be added; nothing else may change."""
    for name in _NAMES:
        old, new = before.get(name), now.get(name)
        added = name == "subscribe" and old and new and set(old.split(",")) <= set(new.split(","))
        if old != new and not added:
            raise ArgumentError(
                name,
                new,
                f"the checkpoint {checkpoint} was made for {old!r}: give the same (topics may be added), or another "
                "checkpoint and another table",
            )


def remember(files: Files, checkpoint: str, now: Mapping[str, str]) -> None:
    """Note what a checkpoint is for, or see that it is for that."""
    path = join(checkpoint, _FILE)
    noted = files.read(path)
    before = None if noted is None else json.loads(noted)
    if before is not None:
        check_same(before, now, checkpoint)
    if before != dict(now):
        files.write(path, json.dumps(dict(now)).encode())
