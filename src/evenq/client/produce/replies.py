"""Request and reply: a message that asks, and the one that answers it, straight to the client that asked."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping

from evenq.client.net.routes import Route
from evenq.client.net.session import Session
from evenq.client.produce.outgoing import Packer
from evenq.client.produce.sender import Select, Sender
from evenq.errors import ArgumentError, NoReply, RemoteError
from evenq.model import Message, MessageQueue, Property, SendResult
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.compression import decompress
from evenq.protocol.flags import SysFlag
from evenq.protocol.headers import PushReply
from evenq.protocol.ids import pack_host
from evenq.protocol.properties import decode_properties
from evenq.protocol.view import NOWHERE, MessageView, make_view

__all__ = ["Replies"]

log = logging.getLogger(__name__)

_REPLY = "reply"
# What a reply takes from its request.
_ADDRESS = (Property.CORRELATION_ID, Property.REPLY_TO, Property.TTL)


class Replies:
    """The requests of one producer that wait for their reply, and the replies that it gives."""

    def __init__(self, session: Session, sender: Sender, packer: Packer) -> None:
        self._session = session
        self._sender = sender
        self._packer = packer
        self._waiting: dict[str, asyncio.Future[MessageView]] = {}
        # topics whose brokers know how to reach us
        self._introduced: set[str] = set()
        session.on(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._arrived)

    async def request(self, message: Message, seconds: float, select: Select | None) -> MessageView:
        """Send a request and wait for its reply: both within ``seconds``."""
        correlation_id = uuid.uuid4().hex
        more = {
            Property.CORRELATION_ID: correlation_id,
            Property.REPLY_TO: self._session.client_id,
            Property.TTL: str(round(seconds * 1000)),
        }
        parcel = self._packer.message(message, more)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        reply: asyncio.Future[MessageView] = loop.create_future()
        self._waiting[correlation_id] = reply
        try:
            if message.topic not in self._introduced:
                async with asyncio.timeout_at(deadline):
                    await self._introduce(message.topic)
            await self._sender.send(parcel, deadline - loop.time(), select)
            async with asyncio.timeout_at(deadline):
                return await reply
        except RemoteError:
            raise
        except TimeoutError:
            raise NoReply(message.topic, correlation_id, seconds) from None
        finally:
            del self._waiting[correlation_id]

    async def reply(
        self, request: MessageView, body: bytes, properties: Mapping[str, str], seconds: float
    ) -> SendResult:
        """Answer a request. The broker hands it on at once; where it cannot, its refusal is raised."""
        found = request.properties
        missing = [name for name in (*_ADDRESS, Property.CLUSTER) if name not in found]
        if missing:
            raise ArgumentError("request", request.msg_id, f"it asks for no reply: it has no {', '.join(missing)}")
        message = Message(_reply_topic(found[Property.CLUSTER]), body, properties=properties)
        more = {Property.TYPE: _REPLY} | {name: found[name] for name in _ADDRESS}
        parcel = self._packer.message(message, more, code=int(RequestCode.SEND_REPLY_MESSAGE_V2))

        def near(route: Route) -> MessageQueue:
            # the broker that has the request knows the client that asked
            queues = route.writable
            return queues.by_broker.get(request.broker, queues.queues)[0]

        return await self._sender.send(parcel, seconds, near)

    async def _introduce(self, topic: str) -> None:
        """Make ourselves known to every broker that a reply may come by: those of the cluster's reply topic."""
        brokers = {queue.broker for queue in (await self._sender.route(topic)).writable.queues}
        info = await self._session.name_servers.cluster()
        for cluster, members in info.cluster_addr_table.items():
            if brokers & set(members):
                await self._session.routes.get(_reply_topic(cluster))
        await self._session.beat()
        self._introduced.add(topic)

    async def _arrived(self, command: Command) -> Command:
        header = PushReply.from_ext(command.ext)
        properties = decode_properties(header.properties or "")
        body = decompress(command.body, header.sys_flag) if header.sys_flag & SysFlag.COMPRESSED else command.body
        waiting = self._waiting.get(properties.get(Property.CORRELATION_ID, ""))
        if waiting is None or waiting.done():
            log.warning("a reply from %s came too late, or for somebody else: %s", header.born_host, properties)
        else:
            waiting.set_result(
                make_view(
                    topic=header.topic,
                    body=body,
                    queue_id=header.queue_id,
                    properties=properties,
                    store_timestamp=header.store_timestamp,
                    born_timestamp=header.born_timestamp,
                    born_host=_host(header.born_host),
                    store_host=_host(header.store_host),
                    commit_log_offset=-1,
                    sys_flag=header.sys_flag & ~SysFlag.COMPRESSED,
                    flag=header.flag,
                    reconsume_times=header.reconsume_times,
                )
            )
        return command.reply()


def _reply_topic(cluster: str) -> str:
    return f"{cluster}_REPLY_TOPIC"


def _host(text: str) -> str:
    """An address as it was told, or none: brokers may have names that are not addresses, and a reply counts without."""
    try:
        pack_host(text)
    except ArgumentError:
        return NOWHERE
    return text
