"""Groups: which there are, who is in them; to create, change and delete them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import msgspec

from evenq.client.admin.base import is_system_group
from evenq.client.admin.topics import Topics
from evenq.client.agreement import Told, differences
from evenq.client.net.remote import together
from evenq.errors import ArgumentError, RefusedError, RemoteError, TopicNotFound
from evenq.model import java_order
from evenq.protocol.bodies import (
    ClientConnections,
    Connection,
    GroupConfig,
    GroupConfigTable,
    GroupNames,
    ProducerTable,
    RunningInfo,
)
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.headers import DeleteGroup, ProducerGroupRequest, RunningInfoRequest, TopicRequest
from evenq.protocol.versions import version_text

__all__ = ["Client", "GroupSettings", "Groups", "Membership"]


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a consumer group on these brokers.

    ``consume`` False stops all consumption. A message that failed is tried again ``max_retries`` times, from one of
    ``retry_queues`` queues on each broker, then it is a dead letter.
    """

    group: str
    brokers: tuple[str, ...]
    consume: bool
    broadcast: bool
    max_retries: int
    retry_queues: int


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A client of a group as brokers see it. ``brokers`` are those that it is connected to."""

    client_id: str
    address: str
    language: str
    version: str
    brokers: tuple[str, ...]


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """Who is in a consumer group, and what it reads: ``subscriptions`` are expressions by topic.

    ``model`` is ``CLUSTERING`` or ``BROADCASTING``; it is None, like ``begin``, while nobody is there. ``differences``
    are where members differ that must agree, if they were compared.
    """

    group: str
    model: str | None
    begin: str | None
    subscriptions: dict[str, str]
    members: tuple[Client, ...]
    differences: tuple[str, ...] = ()


class Groups(Topics):
    """What can be asked of groups and done with them."""

    async def groups(self, *, system: bool = False) -> tuple[GroupSettings, ...]:
        """All consumer groups, in order. One whose settings differ from broker to broker comes once for each kind.

        With a namespace it is the groups of that; with ``system`` also those of RocketMQ itself.
        """
        found: dict[tuple[Any, ...], list[str]] = {}
        for broker, table in (await self._group_tables(await self._chosen())).items():
            for name, config in table.items():
                if (system and is_system_group(name)) or (not is_system_group(name) and self._is_ours(name)):
                    found.setdefault(_settings(config), []).append(broker)
        return tuple(
            GroupSettings(
                group=self._own(name),
                brokers=tuple(brokers),
                consume=consume,
                broadcast=broadcast,
                max_retries=max_retries,
                retry_queues=retry_queues,
            )
            for (name, consume, broadcast, max_retries, retry_queues), brokers in sorted(
                found.items(), key=lambda item: java_order(item[0][0])
            )
        )

    async def consumers(self, topic: str) -> tuple[str, ...]:
        """The groups that consume the topic, or have done so."""
        addresses = await self._topic_masters(topic)
        answers = await self._ask_each(
            addresses, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequest(topic=self._wire(topic))
        )
        names = {name for answer in answers.values() for name in GroupNames.decode(answer.body).group_list}
        return tuple(sorted(map(self._own, names), key=java_order))

    async def create_group(
        self,
        group: str,
        *,
        max_retries: int = 16,
        retry_queues: int = 1,
        consume: bool = True,
        broadcast: bool = True,
        brokers: Collection[str] | None = None,
    ) -> None:
        """Make the consumer group on every master, or on these ``brokers``; or change it to these settings."""
        masters = await self._chosen(brokers)
        config = GroupConfig(group_name=self._wire(group))
        changes = _changes(max_retries=max_retries, retry_queues=retry_queues, consume=consume, broadcast=broadcast)
        body = msgspec.structs.replace(config, **changes).encode()
        await self._ask_each(masters, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    async def update_group(
        self,
        group: str,
        *,
        max_retries: int | None = None,
        retry_queues: int | None = None,
        consume: bool | None = None,
        broadcast: bool | None = None,
    ) -> None:
        """Change what is given, on every broker that has the group, and leave the rest as it is."""
        changes = _changes(max_retries=max_retries, retry_queues=retry_queues, consume=consume, broadcast=broadcast)
        masters = await self._chosen()
        known = await self._known_group(group, masters)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await together(
            *(
                self._ask(masters[broker], code, body=msgspec.structs.replace(config, **changes).encode())
                for broker, config in known.items()
            )
        )

    async def delete_group(self, group: str, *, keep_offsets: bool = False, dead_letters: bool = False) -> None:
        """Delete the group: its settings, its offsets and what waits for another try.

        Its dead letters stay unless they are to go too. With ``keep_offsets`` a group of the same name goes on where
        this one was. A group that has members online is not deleted: its members would make it anew.
        """
        masters = await self._chosen()
        await self._known_group(group, masters)
        online = (await self.members(group)).members
        if online:
            names = ", ".join(client.client_id for client in online)
            raise ArgumentError("group", group, f"it has members online ({names}): stop them first")
        header = DeleteGroup(group_name=self._wire(group), clean_offset=not keep_offsets)
        await self._ask_each(masters, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        for topic in [f"%RETRY%{group}"] + [f"%DLQ%{group}"] * dead_letters:
            try:
                await self.delete_topic(topic)
            except TopicNotFound:
                continue

    async def members(self, group: str, *, compare: bool = False) -> Membership:
        """Who is in the consumer group now, over all brokers, and what it subscribes to.

        A broker knows one subscription of a topic for the whole group. With ``compare`` each member is asked for its
        own, and for its strategy: where they differ, messages may be lost.
        """
        masters = await self._chosen()
        answers = await together(*(self._session.remote.connected(at, self._wire(group)) for at in masters.values()))
        found = {broker: answer for broker, answer in zip(masters, answers, strict=True) if answer is not None}
        some = next(iter(found.values()), None)
        clients = _clients((broker, answer.connection_set) for broker, answer in found.items())
        told = await together(*(self._told_by(masters, group, client) for client in clients if compare))
        return Membership(
            group=self._own(group),
            model=some.message_model if some else None,
            begin=some.consume_from_where if some else None,
            subscriptions={
                self._own(topic): subscription.sub_string
                for answer in found.values()
                for topic, subscription in sorted(answer.subscription_table.items())
            },
            members=clients,
            differences=tuple(map(str, differences(each for each in told if each is not None))),
        )

    async def producers(self, group: str | None = None) -> dict[str, tuple[Client, ...]]:
        """The producers that are connected, by producer group: all (of the namespace), or those of one group."""
        masters = await self._chosen()
        if group is not None:
            found = await together(*(self._producers_of(at, group) for at in masters.values()))
            clients = _clients(zip(masters, found, strict=True))
            return {self._own(group): clients} if clients else {}
        tables = {
            broker: ProducerTable.decode(answer.body).data
            for broker, answer in (await self._ask_each(masters, RequestCode.GET_ALL_PRODUCER_INFO)).items()
        }
        found_names = {name for table in tables.values() for name in table if self._is_ours(name)}
        return {
            self._own(name): _clients(
                (
                    broker,
                    [
                        Connection(
                            client_id=info.client_id,
                            client_addr=info.remote_ip.removeprefix("/"),
                            language=info.language,
                            version=info.version,
                        )
                        for info in table.get(name, [])
                    ],
                )
                for broker, table in tables.items()
            )
            for name in sorted(found_names, key=java_order)
        }

    async def _told_by(self, masters: dict[str, str], group: str, client: Client) -> Told | None:
        info = await self._running_info(masters, group, client)
        if info is None:
            return None
        told = Told.by(client.client_id, info)
        return replace(told, subscriptions={self._own(topic): text for topic, text in told.subscriptions.items()})

    async def _running_info(self, masters: dict[str, str], group: str, client: Client) -> RunningInfo | None:
        """What a member says of itself; None where it does not say."""
        header = RunningInfoRequest(consumer_group=self._wire(group), client_id=client.client_id)
        address = masters.get(client.brokers[0])
        if address is None:
            # the broker has left since it told of the member
            return None
        try:
            answer = await self._ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            return RunningInfo.decode(answer.body)
        except RemoteError:
            return None

    async def _producers_of(self, address: str, group: str) -> list[Connection]:
        try:
            answer = await self._ask(
                address,
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                ProducerGroupRequest(producer_group=self._wire(group)),
            )
        except RefusedError as error:
            # the answer to a group that has no producer on this broker
            if error.code == ResponseCode.SYSTEM_ERROR:
                return []
            raise
        return ClientConnections.decode(answer.body).connection_set

    async def _group_tables(self, masters: dict[str, str]) -> dict[str, dict[str, GroupConfig]]:
        """The settings of all groups, by broker. Asking for one group would make it where it is not."""
        answers = await self._ask_each(masters, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return {
            broker: GroupConfigTable.decode(answer.body).subscription_group_table for broker, answer in answers.items()
        }

    async def _known_group(self, group: str, masters: dict[str, str]) -> dict[str, GroupConfig]:
        """The settings of the group on each broker that has it; at least one does."""
        tables = await self._group_tables(masters)
        name = self._wire(group)
        known = {broker: table[name] for broker, table in tables.items() if name in table}
        if not known:
            raise ArgumentError("group", group, "no broker knows this consumer group: create it, or mind its spelling")
        return known


def _settings(config: GroupConfig) -> tuple[Any, ...]:
    return (
        config.group_name,
        config.consume_enable,
        config.consume_broadcast_enable,
        config.retry_max_times,
        config.retry_queue_nums,
    )


def _changes(
    *, max_retries: int | None, retry_queues: int | None, consume: bool | None, broadcast: bool | None
) -> dict[str, int | bool]:
    """What is to change, by the names of the protocol."""
    for name, value, least in (("max_retries", max_retries, 0), ("retry_queues", retry_queues, 1)):
        if value is not None and value < least:
            raise ArgumentError(name, value, f"give {least} or more")
    changes = {
        "retry_max_times": max_retries,
        "retry_queue_nums": retry_queues,
        "consume_enable": consume,
        "consume_broadcast_enable": broadcast,
    }
    return {name: value for name, value in changes.items() if value is not None}


def _clients(found: Iterable[tuple[str, Iterable[Connection]]]) -> tuple[Client, ...]:
    """The clients that brokers name, each once, with the brokers that know it."""
    known: dict[str, tuple[Connection, list[str]]] = {}
    for broker, connections in found:
        for connection in connections:
            known.setdefault(connection.client_id, (connection, []))[1].append(broker)
    return tuple(
        Client(
            client_id=client_id,
            address=connection.client_addr,
            language=connection.language,
            version=version_text(connection.version),
            brokers=tuple(brokers),
        )
        for client_id, (connection, brokers) in sorted(known.items(), key=lambda item: java_order(item[0]))
    )
