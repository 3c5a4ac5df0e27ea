"""RocketMQ's balancing, pure: data in, data out. No clock, randomness or socket of its own.

- consumers: :func:`strategy`, :func:`assign`, :func:`plan`; claims (``STICKY``) in :mod:`evenq.balance.sticky`
- measures: :func:`spread`, :func:`moved`, :func:`least_moves`, …; simulations in :mod:`evenq.balance.simulation`
  (one group) and :mod:`evenq.balance.groups` (a million, with numpy)
- producers: :func:`queue_chooser` (round robin, fault avoidance), the selectors
- Java's order and hashes: :func:`sorted_queues`, :func:`sorted_members`, :func:`java_hash`
"""

from evenq.balance.choosing import QueueChooser, RoundRobinChooser
from evenq.balance.faults import FaultPreset, queue_chooser
from evenq.balance.hashing import Long, java_hash, ring_hash
from evenq.balance.measures import gini, least_moves, load, moved, peak, spread, unheld
from evenq.balance.ordering import sorted_members, sorted_queues
from evenq.balance.plan import Plan, plan
from evenq.balance.registry import STRATEGIES, StrategyLike, as_strategy, assign, strategy
from evenq.balance.roundrobin import Counter, RoundRobin, act_for, on_behalf_of
from evenq.balance.routes import PublishRoute
from evenq.balance.selectors import (
    HashSelector,
    MachineRoomSelector,
    RandomSelector,
    Selector,
    SelectorLike,
    as_selector,
)
from evenq.balance.strategies import Strategy
from evenq.model import MessageQueue

__all__ = [
    "STRATEGIES",
    "Counter",
    "FaultPreset",
    "HashSelector",
    "Long",
    "MachineRoomSelector",
    "MessageQueue",
    "Plan",
    "PublishRoute",
    "QueueChooser",
    "RandomSelector",
    "RoundRobin",
    "RoundRobinChooser",
    "Selector",
    "SelectorLike",
    "Strategy",
    "StrategyLike",
    "act_for",
    "as_selector",
    "as_strategy",
    "assign",
    "gini",
    "java_hash",
    "least_moves",
    "load",
    "moved",
    "on_behalf_of",
    "peak",
    "plan",
    "queue_chooser",
    "ring_hash",
    "sorted_members",
    "sorted_queues",
    "spread",
    "strategy",
    "unheld",
]
