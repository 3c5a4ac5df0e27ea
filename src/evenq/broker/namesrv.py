"""The name server: brokers register with it, clients ask it where the queues of a topic are.

Behaviour
    A broker is dropped when its connection closes or after 120 s of silence. Until then no other one is registered
    under its name and id, or at its address, and it leaves over its own connection only. A topic whose write permission
    was taken stays so until its broker registers changed topics. Nothing is kept on disk: brokers register every 30 s,
    so a name server that starts anew knows everything again soon.

Codes
    GET_ROUTEINFO_BY_TOPIC, GET_BROKER_CLUSTER_INFO, REGISTER_BROKER, UNREGISTER_BROKER, BROKER_HEARTBEAT,
    QUERY_DATA_VERSION, GET_BROKER_MEMBER_GROUP, GET_ALL_TOPIC_LIST_FROM_NAMESERVER, GET_TOPICS_BY_CLUSTER,
    GET_SYSTEM_TOPIC_LIST_FROM_NS, DELETE_TOPIC_IN_NAMESRV, WIPE_WRITE_PERM_OF_BROKER, ADD_WRITE_PERM_OF_BROKER,
    PUT_KV_CONFIG, GET_KV_CONFIG, DELETE_KV_CONFIG, GET_KVLIST_BY_NAMESPACE

Not implemented
    Static topics, acting masters, units, the name server's own configuration.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Callable

from evenq.broker.limits import Limits
from evenq.broker.routes import SILENCE_SECONDS, BrokerId, RouteTable
from evenq.broker.server import Connection, Handler, Server
from evenq.errors import StateError
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.supervision import Supervisor

__all__ = ["NameServer"]

log = logging.getLogger(__name__)

_ORDER_TOPICS = "ORDER_TOPIC_CONFIG"

# From this version on clients read standard JSON; older ones want fastjson's unquoted numbers.
_STANDARD_JSON_SINCE = 401


class NameServer:
    """A name server on one port."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, limits: Limits | None = None) -> None:
        self.routes: RouteTable[Connection] = RouteTable(clock)
        self.address = ""
        self._kv: dict[str, dict[str, str]] = {}
        self.server = Server("name server", on_close=self._lost, limits=limits)
        self._housekeeping: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> None:
        self.address = self.server.bind(host, port)
        await self.server.start(self._handlers())
        self._housekeeping = asyncio.create_task(Supervisor("housekeeping of the name server").repeat(self._keep_house))

    async def stop(self) -> None:
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        await self.server.stop()

    async def _keep_house(self) -> None:
        await asyncio.sleep(1)
        for broker in self.routes.expire():
            log.warning("name server: broker %s at %s was silent too long, dropped", broker.name, broker.address)

    def _lost(self, connection: Connection) -> None:
        for broker in self.routes.lose(connection):
            log.info("name server: broker %s at %s is gone", broker.name, broker.address)

    def _handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._clusters,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._broker_members,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._cluster_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write,
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv,
        }

    def _route(self, request: Command, connection: Connection) -> Command:
        header = headers.RouteRequest.from_ext(request.ext)
        route = self.routes.route(header.topic)
        if route is None or not route.broker_datas:
            return request.reply(
                ResponseCode.TOPIC_NOT_EXIST,
                remark=f"No topic route info in name server for the topic: {header.topic}; create it, "
                f"or send to it where brokers may create topics",
            )
        order = self._kv.get(_ORDER_TOPICS, {}).get(header.topic)
        if order is not None:
            route = bodies.TopicRoute(
                broker_datas=route.broker_datas, queue_datas=route.queue_datas, order_topic_conf=order
            )
        standard = bool(header.accept_standard_json_only) or request.version >= _STANDARD_JSON_SINCE
        return request.reply(body=route.encode(standard=standard))

    def _clusters(self, request: Command, connection: Connection) -> Command:
        return request.reply(body=self.routes.clusters().encode())

    def _register(self, request: Command, connection: Connection) -> Command:
        header = headers.RegisterBroker.from_ext(request.ext)
        if header.body_crc32 and header.body_crc32 != zlib.crc32(request.body) & 0x7FFFFFFF:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark="the body does not match its CRC32")
        if header.compressed:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                remark="compressed registration is not supported: set compressedRegister=false",
            )
        body = bodies.RegisterBody.decode(request.body) if request.body else bodies.RegisterBody()
        topics = body.topic_config_serialize_wrapper
        broker = BrokerId(header.cluster_name, header.broker_name, header.broker_addr, header.broker_id)
        silence = (header.heartbeat_timeout_millis or SILENCE_SECONDS * 1000) / 1000
        try:
            self.routes.register(broker, topics.topic_config_table.values(), topics.data_version, connection, silence)
        except StateError as error:
            log.warning("name server: %s wants another broker's place: %s", connection.address, error)
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
        known = self.routes.brokers().get(header.broker_name)
        master = known.master if known is not None and header.broker_id != 0 else None
        return request.reply(
            ext=headers.RegisterBrokerResponse(master_addr=master).to_ext(),
            body=bodies.KvTable(table=self._kv.get(_ORDER_TOPICS, {})).encode(),
        )

    def _unregister(self, request: Command, connection: Connection) -> Command:
        header = headers.UnregisterBroker.from_ext(request.ext)
        broker = BrokerId(header.cluster_name, header.broker_name, header.broker_addr, header.broker_id)
        try:
            self.routes.unregister(broker, connection)
        except StateError as error:
            log.warning("name server: %s is not that broker: %s", connection.address, error)
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
        return request.reply()

    def _heartbeat(self, request: Command, connection: Connection) -> Command:
        header = headers.BrokerHeartbeat.from_ext(request.ext)
        self.routes.heard(header.cluster_name, header.broker_addr)
        return request.reply()

    def _data_version(self, request: Command, connection: Connection) -> Command:
        header = headers.DataVersionRequest.from_ext(request.ext)
        self.routes.heard(header.cluster_name, header.broker_addr)
        known = self.routes.version(header.cluster_name, header.broker_addr)
        changed = known is None or known != bodies.DataVersion.decode(request.body)
        return request.reply(
            ext=headers.DataVersionResponse(changed=changed).to_ext(), body=b"" if known is None else known.encode()
        )

    def _broker_members(self, request: Command, connection: Connection) -> Command:
        name, cluster = request.ext.get("brokerName", ""), request.ext.get("clusterName", "")
        known = self.routes.brokers().get(name)
        members = bodies.BrokerMembers(
            cluster=cluster, broker_name=name, broker_addrs={} if known is None else known.broker_addrs
        )
        return request.reply(body=bodies.BrokerMembersBody(broker_member_group=members).encode())

    def _all_topics(self, request: Command, connection: Connection) -> Command:
        return request.reply(body=bodies.TopicNames(topic_list=self.routes.topics()).encode())

    def _cluster_topics(self, request: Command, connection: Connection) -> Command:
        cluster = headers.ClusterTopics.from_ext(request.ext).cluster
        return request.reply(body=bodies.TopicNames(topic_list=self.routes.topics(cluster)).encode())

    def _system_topics(self, request: Command, connection: Connection) -> Command:
        clusters = self.routes.clusters()
        names = [*clusters.cluster_addr_table, *clusters.broker_addr_table]
        addresses = [data.master for data in clusters.broker_addr_table.values() if data.master]
        body = bodies.TopicNames(topic_list=names, broker_addr=addresses[0] if addresses else None)
        return request.reply(body=body.encode())

    def _delete_topic(self, request: Command, connection: Connection) -> Command:
        self.routes.delete_topic(headers.DeleteTopic.from_ext(request.ext).topic)
        return request.reply()

    def _wipe_write(self, request: Command, connection: Connection) -> Command:
        count = self.routes.set_write(headers.BrokerNameRequest.from_ext(request.ext).broker_name, False)
        return request.reply(ext=headers.WipedResponse(wipe_topic_count=count).to_ext())

    def _add_write(self, request: Command, connection: Connection) -> Command:
        count = self.routes.set_write(headers.BrokerNameRequest.from_ext(request.ext).broker_name, True)
        return request.reply(ext=headers.WipedResponse(add_topic_count=count).to_ext())

    def _put_kv(self, request: Command, connection: Connection) -> Command:
        header = headers.KvPut.from_ext(request.ext)
        self._kv.setdefault(header.namespace, {})[header.key] = header.value
        return request.reply()

    def _get_kv(self, request: Command, connection: Connection) -> Command:
        header = headers.KvKey.from_ext(request.ext)
        value = self._kv.get(header.namespace, {}).get(header.key)
        if value is None:
            return request.reply(
                ResponseCode.QUERY_NOT_FOUND, remark=f"No config item, Namespace: {header.namespace} Key: {header.key}"
            )
        return request.reply(ext=headers.KvValue(value=value).to_ext())

    def _delete_kv(self, request: Command, connection: Connection) -> Command:
        header = headers.KvKey.from_ext(request.ext)
        self._kv.get(header.namespace, {}).pop(header.key, None)
        return request.reply()

    def _list_kv(self, request: Command, connection: Connection) -> Command:
        namespace = headers.KvNamespace.from_ext(request.ext).namespace
        if namespace not in self._kv:
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark=f"No config item, Namespace: {namespace}")
        return request.reply(body=bodies.KvTable(table=self._kv[namespace]).encode())
