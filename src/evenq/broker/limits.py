"""What a name server or broker takes from its clients: bytes, numbers and times, and what is refused over each."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from evenq.errors import ArgumentError
from evenq.protocol.codes import CUT_REMARK
from evenq.protocol.frames import DEFAULT_LIMIT

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one server. Names ending in ``_s`` are seconds, those with ``bytes`` bytes; the rest are counts.

    docs/behaviour.md says what a client is told that comes to one of them.
    """

    # A connection is closed after so long without a complete request, unless something of it waits for its answer.
    idle_timeout_s: float = 120.0
    # so long after the first byte of a request its last one must be there
    partial_frame_timeout_s: float = 30.0
    max_connections: int = 10_000
    max_frame_bytes: int = DEFAULT_LIMIT
    # of requests that are not complete yet, over all connections
    max_buffered_frame_bytes: int = 256 * 1024 * 1024
    # of answers that a client does not read, and that all such clients together do not read
    max_unsent_bytes: int = 1024 * 1024
    max_unsent_total_bytes: int = 256 * 1024 * 1024
    # requests that one client is asked and has not answered, and answers that one client still waits for
    max_peer_requests: int = 64
    # pulls that wait for a message: of one connection, and of all
    max_parked_pulls: int = 4096
    max_parked_pulls_total: int = 100_000
    # how long a pull may wait for a message
    max_suspend_s: float = 60.0
    # characters of a filter that a pull or a subscription gives
    max_sql_chars: int = 16 * 1024
    # nodes of an SQL filter times messages, in one pull
    max_sql_visits: int = 200_000
    # of compiled SQL filters that are kept, about: each is many small objects, which slow down every look for garbage
    max_sql_cache_bytes: int = 4 * 1024 * 1024
    max_queues_per_topic: int = 16_384
    max_topics: int = 50_000
    max_groups: int = 50_000
    max_batch_messages: int = 10_000
    # queues, topics, groups or entries in the answer to an administrative request
    max_admin_rows: int = 10_000
    # so long requests are handled in one round of the loop, and one pull looks for what its filter lets through
    loop_budget_s: float = 0.002

    def cut_remark(self, count: int) -> str | None:
        """What the answer to an administrative request says if it cannot hold ``count`` rows."""
        most = self.max_admin_rows
        return f"{CUT_REMARK}{most} of {count}: this broker gives no more at a time" if count > most else None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            is_time = field.name.endswith("_s")
            is_number = isinstance(value, int | float) if is_time else isinstance(value, int)
            if isinstance(value, bool) or not is_number or not (math.isfinite(value) and value > 0):
                kind = "a finite number of seconds" if is_time else "a whole number"
                raise ArgumentError(field.name, value, f"give {kind}, more than 0")
