"""Membership: who is there, in which groups.

Behaviour
    A heartbeat makes a client a member of its groups. Every change of a group is told to all its members, once per
    round of the event loop however many changes there were. A group's retry topic is made at its first heartbeat.

Codes
    HEART_BEAT (both forms), UNREGISTER_CLIENT, GET_CONSUMER_LIST_BY_GROUP, CHECK_CLIENT_CONFIG,
    GET_CONSUMER_CONNECTION_LIST, GET_PRODUCER_CONNECTION_LIST, GET_ALL_PRODUCER_INFO

Not implemented
    Groups in unit mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq.broker.filter.matching import is_sql
from evenq.broker.server import Connection, Handler, Refusal
from evenq.broker.state.groups import Member
from evenq.broker.state.topics import retry_topic
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["MemberHandlers"]


class MemberHandlers:
    """The handlers of membership."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
        }

    def _heartbeat(self, request: Command, connection: Connection) -> Command:
        beat = bodies.Heartbeat.decode(request.body)
        changed = [self._consumer(beat, data, request, connection) for data in beat.consumer_data_set]
        for producer in beat.producer_data_set:
            self._broker.producers.heartbeat(producer.group_name, _member(beat.client_id, request, connection))
        answer = headers.HeartbeatResponse(
            supports_v2=True, subscription_changed=beat.heartbeat_fingerprint == 0 or any(changed)
        )
        return request.reply(ext=answer.to_ext())

    def _consumer(
        self, beat: bodies.Heartbeat, data: bodies.ConsumerData, request: Command, connection: Connection
    ) -> bool:
        """Take in one group of a heartbeat; whether its client must send its subscriptions again."""
        settings = self._broker.group_configs.get(data.group_name)
        if settings is None:
            return False
        self._broker.topics.create_for_group(retry_topic(data.group_name), settings.retry_queue_nums)
        known = self._broker.groups.get(data.group_name)
        # the short form leaves subscriptions out: whoever does not know them must be told
        stale = beat.without_sub if known is None else known.fingerprint != beat.heartbeat_fingerprint
        member = _member(beat.client_id, request, connection)
        if self._broker.groups.heartbeat(data, member, subscriptions=not beat.without_sub):
            self._broker.group_changed(data.group_name)
        group = self._broker.groups.get(data.group_name)
        assert group is not None
        group.fingerprint = beat.heartbeat_fingerprint
        return stale

    def _unregister(self, request: Command, connection: Connection) -> Command:
        header = headers.UnregisterClient.from_ext(request.ext)
        if header.producer_group:
            self._broker.producers.leave(header.producer_group, connection)
        if header.consumer_group and self._broker.groups.leave(header.consumer_group, connection):
            self._broker.group_changed(header.consumer_group)
        return request.reply()

    def _check_config(self, request: Command, connection: Connection) -> Command:
        wanted = bodies.ClientCheck.decode(request.body).subscription_data if request.body else None
        if wanted is not None and is_sql(wanted.expression_type):
            self._broker.sql_filters.get(wanted.sub_string)
        return request.reply()

    def _members(self, request: Command, connection: Connection) -> Command:
        name = headers.GroupRequest.from_ext(request.ext).consumer_group
        group = self._broker.groups.get(name)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return request.reply(body=bodies.Members(consumer_id_list=group.client_ids).encode())

    def _consumers(self, request: Command, connection: Connection) -> Command:
        name = headers.GroupRequest.from_ext(request.ext).consumer_group
        group = self._broker.groups.get(name)
        if group is None:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online: none of its members is here"
            )
        body = bodies.GroupConnections(
            connection_set=[_described(member) for member in group.members.values()],
            subscription_table=dict(group.subscriptions),
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return request.reply(body=body.encode())

    def _producers(self, request: Command, connection: Connection) -> Command:
        name = headers.ProducerGroupRequest.from_ext(request.ext).producer_group
        members = self._broker.producers.members(name)
        if not members:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist: none of its members is here"
            )
        return request.reply(
            body=bodies.ClientConnections(connection_set=[_described(member) for member in members]).encode()
        )

    def _all_producers(self, request: Command, connection: Connection) -> Command:
        producers = self._broker.producers
        table = {group: [_producer(member) for member in producers.members(group)] for group in producers.groups()}
        return request.reply(body=bodies.ProducerTable(data=table).encode())


def _producer(member: Member[Connection]) -> bodies.ProducerInfo:
    return bodies.ProducerInfo(
        client_id=member.client_id,
        remote_ip=member.channel.address,
        language=member.language,
        version=member.version,
        last_update_timestamp=int(member.seen * 1000),
    )


def _member(client_id: str, request: Command, connection: Connection) -> Member[Connection]:
    return Member(client_id, connection, request.language, request.version)


def _described(member: Member[Connection]) -> bodies.Connection:
    return bodies.Connection(
        client_id=member.client_id,
        client_addr=member.channel.address,
        language=member.language,
        version=member.version,
    )
