"""The settings of consumer groups on one broker: what a group may do, how often it is redelivered to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from evenq.broker.limits import Limits
from evenq.broker.server import Refusal
from evenq.protocol.bodies import DataVersion, GroupConfig, GroupConfigTable
from evenq.protocol.codes import ResponseCode
from evenq.protocol.names import group_error

__all__ = ["GroupConfigs"]

# The groups that a Java broker has from the start, in its order.
_SYSTEM = (
    "TOOLS_CONSUMER FILTERSRV_CONSUMER SELF_TEST_C_GROUP CID_ONS-HTTP-PROXY CID_ONSAPI_PULL CID_ONSAPI_PERMISSION "
    "CID_ONSAPI_OWNER CID_RMQ_SYS_TRANS".split()
)


class GroupConfigs:
    """The settings by group. ``changed`` is called after each change, to save it."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        saved: GroupConfigTable | None = None,
        auto_create: bool = True,
        limits: Limits | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self.auto_create = auto_create
        self._limits = limits or Limits()
        self._changed = changed
        saved = saved or GroupConfigTable()
        self._table = {name: GroupConfig(group_name=name) for name in _SYSTEM} | saved.subscription_group_table
        self._forbidden = saved.forbidden_table
        self._version: DataVersion = saved.data_version

    def get(self, group: str) -> GroupConfig | None:
        """The settings of a group, created where it is missing and that is allowed."""
        known = self._table.get(group)
        if known is None and self.auto_create and group_error(group) is None:
            return self.put(GroupConfig(group_name=group))
        return known

    def __contains__(self, group: str) -> bool:
        return group in self._table

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(self._table.values())

    def put(self, config: GroupConfig) -> GroupConfig:
        """Create a group, or change its settings. More groups or retry queues than the limits allow are refused."""
        name, queues, most = config.group_name, config.retry_queue_nums, self._limits.max_queues_per_topic
        if queues > most:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"subscription group [{name}] cannot have {queues} retry queues: give at most {most}",
            )
        if name not in self._table and len(self._table) - len(_SYSTEM) >= self._limits.max_groups:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"subscription group [{name}] is not created: there are {self._limits.max_groups}, the most that are "
                f"allowed; delete one",
            )
        self._table[config.group_name] = config
        self._touch()
        return config

    def delete(self, group: str) -> bool:
        if self._table.pop(group, None) is None:
            return False
        self._touch()
        return True

    def _touch(self) -> None:
        self._version = self._version.next(int(self._clock() * 1000))
        self._changed()

    def table(self) -> GroupConfigTable:
        """All of it, as it is saved."""
        return GroupConfigTable(
            subscription_group_table=dict(self._table), forbidden_table=self._forbidden, data_version=self._version
        )
