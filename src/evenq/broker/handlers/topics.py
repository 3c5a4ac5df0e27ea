"""Administration of topics and groups: create, change, delete, list.

Behaviour
    A change is saved and registered with the name servers at once. A deleted topic's messages stay in the log until
    that is cleaned; its queues and offsets are gone.

Codes
    UPDATE_AND_CREATE_TOPIC, UPDATE_AND_CREATE_TOPIC_LIST, DELETE_TOPIC_IN_BROKER, GET_ALL_TOPIC_CONFIG,
    GET_TOPIC_CONFIG, GET_SYSTEM_TOPIC_LIST_FROM_BROKER, UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, DELETE_SUBSCRIPTIONGROUP, GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    GET_SUBSCRIPTIONGROUP_CONFIG

Not implemented
    Static topics; queues of batches and compaction, which a topic can ask for by its attributes.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import msgspec

from evenq.broker.server import Connection, Handler, Refusal
from evenq.broker.state.topics import alter_attributes, parse_attribute_changes
from evenq.errors import ArgumentError
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.names import group_error, topic_error

if TYPE_CHECKING:
    from evenq.broker.broker import Broker

__all__ = ["TopicHandlers"]

T = TypeVar("T")


class TopicHandlers:
    """The handlers of topics' and groups' settings."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._put_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._put_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_topics,
            RequestCode.GET_TOPIC_CONFIG: self._topic,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._put_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._put_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete_group,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._group,
        }

    def _put_topic(self, request: Command, connection: Connection) -> Command:
        header = headers.CreateTopic.from_ext(request.ext)
        self._put(
            bodies.TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                topic_filter_type=header.topic_filter_type,
                topic_sys_flag=header.topic_sys_flag or 0,
                order=header.order,
                attributes=parse_attribute_changes(header.attributes),
            )
        )
        return request.reply()

    def _put_topics(self, request: Command, connection: Connection) -> Command:
        for config in bodies.TopicConfigList.decode(request.body).topic_config_list:
            self._put(config)
        return request.reply()

    def _put(self, config: bodies.TopicConfig) -> None:
        """Create or change a topic, whose attributes are changes."""
        topic = config.topic_name
        error = topic_error(topic, self._broker.settings.max_topic)
        if error is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, error)
        if topic in self._broker.topics.system:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")
        known = self._broker.topics.get(topic)
        try:
            attributes = alter_attributes(known.attributes if known else {}, config.attributes, new=known is None)
        except ArgumentError as wrong:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(wrong)) from None
        self._broker.topics.put(msgspec.structs.replace(config, attributes=attributes))

    def _delete_topic(self, request: Command, connection: Connection) -> Command:
        topic = headers.DeleteTopic.from_ext(request.ext).topic
        if topic in self._broker.topics.system:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")
        self._broker.deletions.delete(topic)
        return request.reply()

    def _all_topics(self, request: Command, connection: Connection) -> Command:
        self._broker.server.check_room()
        table = self._broker.topics.table()
        configs, cut = self._first(table.topic_config_table)
        return request.reply(body=msgspec.structs.replace(table, topic_config_table=configs).encode(), remark=cut)

    def _first(self, table: dict[str, T]) -> tuple[dict[str, T], str | None]:
        """As much of a table as one answer may hold, and the remark that it was cut if it was."""
        limits = self._broker.settings.limits
        return dict(islice(table.items(), limits.max_admin_rows)), limits.cut_remark(len(table))

    def _topic(self, request: Command, connection: Connection) -> Command:
        topic = request.ext.get("topic", "")
        config = self._broker.topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return request.reply(body=config.encode())

    def _system_topics(self, request: Command, connection: Connection) -> Command:
        return request.reply(body=bodies.TopicNames(topic_list=sorted(self._broker.topics.system)).encode())

    def _put_group(self, request: Command, connection: Connection) -> Command:
        self._put_config(bodies.GroupConfig.decode(request.body))
        return request.reply()

    def _put_groups(self, request: Command, connection: Connection) -> Command:
        for config in bodies.GroupConfigList.decode(request.body).group_config_list:
            self._put_config(config)
        return request.reply()

    def _put_config(self, config: bodies.GroupConfig) -> None:
        error = group_error(config.group_name)
        if error is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, error)
        self._broker.group_configs.put(config)

    def _delete_group(self, request: Command, connection: Connection) -> Command:
        header = headers.DeleteGroup.from_ext(request.ext)
        self._broker.group_configs.delete(header.group_name)
        if header.clean_offset:
            self._broker.offsets.forget_group(header.group_name)
        return request.reply()

    def _all_groups(self, request: Command, connection: Connection) -> Command:
        self._broker.server.check_room()
        table = self._broker.group_configs.table()
        configs, cut = self._first(table.subscription_group_table)
        return request.reply(body=msgspec.structs.replace(table, subscription_group_table=configs).encode(), remark=cut)

    def _group(self, request: Command, connection: Connection) -> Command:
        name = headers.GroupConfigRequest.from_ext(request.ext).group
        config = self._broker.group_configs.get(name)
        if config is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}")
        return request.reply(body=config.encode())
