"""Strategies by name, and the division of a whole group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any, TypeAlias

from evenq.balance.ordering import sorted_members, sorted_queues
from evenq.balance.rooms import MachineRoom, MachineRoomNearby
from evenq.balance.strategies import (
    Average,
    Circle,
    Config,
    ConsistentHash,
    Custom,
    GroupStrategy,
    Members,
    Queues,
    Strategy,
    divide,
    takes_part,
)
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = ["STRATEGIES", "StrategyLike", "as_strategy", "assign", "strategy"]

StrategyLike: TypeAlias = Strategy | str | Callable[[str, str, Queues, Members], Iterable[MessageQueue]]
"""Wherever a strategy is asked for: the thing itself, its name, or a function that allocates."""

_NEARBY = "MACHINE_ROOM_NEARBY"
# this one is not computed: members claim queues by their locks
_FOR_CONSUMERS = "STICKY"

STRATEGIES: dict[str, type[GroupStrategy]] = {
    "AVG": Average,
    "AVG_BY_CIRCLE": Circle,
    "CONFIG": Config,
    "MACHINE_ROOM": MachineRoom,
    _NEARBY: MachineRoomNearby,
    "CONSISTENT_HASH": ConsistentHash,
}


def strategy(name: str, **params: Any) -> Strategy:
    """The strategy of that name.

    >>> strategy("CONSISTENT_HASH", virtual_nodes=20).name
    'CONSISTENT_HASH'
    >>> room = lambda name: name.partition("@")[0]
    >>> strategy("MACHINE_ROOM_NEARBY", inner="AVG", broker_room=room, member_room=room).name
    'MACHINE_ROOM_NEARBY-AVG'

    ======================= ==============================================
    name                    parameters
    ======================= ==============================================
    ``AVG``
    ``AVG_BY_CIRCLE``
    ``CONFIG``              ``queues``
    ``MACHINE_ROOM``        ``rooms``
    ``MACHINE_ROOM_NEARBY`` ``inner``, ``member_room``, ``queue_room`` (of a
                            ``MessageQueue``) or ``broker_room`` (of a
                            broker's name)
    ``CONSISTENT_HASH``     ``virtual_nodes=10``, ``hash`` (MD5)
    ======================= ==============================================

    ``inner`` may stand in the name instead, as members report it: ``MACHINE_ROOM_NEARBY-AVG``.
    """
    base, dash, inner = name.partition("-")
    if base == _NEARBY and dash and "inner" not in params:
        name, params = base, {"inner": inner, **params}
    if name not in STRATEGIES:
        raise ArgumentError("strategy", name, _remedy(name))
    _check_params(name, params)
    if name == _NEARBY:
        params["inner"] = as_strategy(params["inner"])
    return STRATEGIES[name](**params)


def as_strategy(value: StrategyLike) -> Strategy:
    """``value`` as a strategy: itself, by its name, or a plain function of group, member, queues and members."""
    if isinstance(value, str):
        return strategy(value)
    if isinstance(value, Strategy):
        return value
    if callable(value):
        return Custom(value, getattr(value, "__name__", type(value).__name__))
    raise ArgumentError("strategy", value, "give a strategy, its name, or a function that allocates")


def assign(
    strategy: StrategyLike, queues: Iterable[MessageQueue], members: Iterable[str], *, group: str = ""
) -> dict[str, list[MessageQueue]]:
    """The share of every member, in Java's order of members: what each would compute for itself.

    >>> queues = [MessageQueue("orders", "broker-a", n) for n in range(3)]
    >>> {member: [q.queue_id for q in share] for member, share in assign("AVG", queues, ["b", "a"]).items()}
    {'a': [0, 1], 'b': [2]}
    """
    all_queues, all_members = sorted_queues(queues), sorted_members(members)
    # The empty id sorts first, so checking one member checks them all.
    takes_part(group, all_members[0] if all_members else "-", all_queues, all_members)
    share = divide(as_strategy(strategy), group, all_queues, all_members)
    shares: dict[str, list[MessageQueue]] = {}
    for position, member in enumerate(all_members):
        if member not in shares:
            shares[member] = share(position)
    return shares


def _check_params(name: str, params: dict[str, Any]) -> None:
    """Every parameter that is needed, and none that the strategy does not know."""
    known = {field.name: field.default is MISSING for field in fields(STRATEGIES[name])}  # type: ignore[arg-type]
    takes = f"{name} takes {', '.join(known) or 'no parameters'}"
    for param, value in params.items():
        if param not in known:
            raise ArgumentError(param, value, takes)
    for param, needed in known.items():
        if needed and param not in params:
            raise ArgumentError(param, None, f"{takes}; give {param}")


def _remedy(name: str) -> str:
    from difflib import get_close_matches  # only a mistake needs it

    nearest = get_close_matches(name.upper().replace("-", "_"), [*STRATEGIES, _FOR_CONSUMERS], n=1)
    meant = f"did you mean {nearest[0]}? " if nearest and nearest[0] != name else ""
    return f"{meant}The strategies are {', '.join(STRATEGIES)}, and for consumers {_FOR_CONSUMERS}"
