"""A JVM that plays RocketMQ's Java clients on command and runs mqadmin."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from evenq.model import Begin, MessageModel
from evenq.protocol.view import MessageView, make_view
from tests.realmq.clients import JavaClient, JavaMember, JavaProducer, JavaTransactions, LocalState
from tests.realmq.jvm import Jvm
from tests.realmq.kit import find_kit

__all__ = ["JavaError", "JavaHost"]

T = TypeVar("T")
Listener = Callable[[float, list[MessageView]], None]


class JavaError(Exception):
    """The Java side refused or failed; the text is its own."""


class _Reply(msgspec.Struct, tag_field="type", tag="reply"):
    id: int
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Failure(msgspec.Struct, tag_field="type", tag="failure"):
    id: int
    error: str


class JavaView(msgspec.Struct):
    """A message as Java's client has read it. What it does not know, it leaves out."""

    topic: str
    body: bytes
    queue_id: int
    queue_offset: int
    store_timestamp: int
    born_timestamp: int
    born_host: str
    store_host: str
    commit_log_offset: int
    properties: dict[str, str]
    sys_flag: int = 0
    flag: int = 0
    body_crc: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    store_size: int = 0
    broker: str = ""

    def view(self) -> MessageView:
        return make_view(**msgspec.structs.asdict(self))


class _Messages(msgspec.Struct, tag_field="type", tag="messages"):
    actor: str
    at: float
    messages: list[JavaView]


class _Printed(msgspec.Struct):
    out: str
    err: str


_decode = msgspec.json.Decoder(_Reply | _Failure | _Messages).decode
_encode = msgspec.json.Encoder().encode


# Java's exceptions that mean: no broker has seen the request.
_NOT_SENT = ("RemotingSendRequestException", "RemotingConnectException")


class JavaHost:
    """A JVM with any number of clients in it, for any name server.

    Clients share a host to save the start of a JVM (a second) and memory; one that is to be killed, or measured,
    gets a host of its own. ``quick=False`` gives Java its best compiler back, for measurements.
    """

    def __init__(self, *, quick: bool = True, heap: str = "256m") -> None:
        kit = find_kit()
        self._home = Path(tempfile.mkdtemp(prefix="evenq-java-"))
        self._jvm = Jvm(kit, self._home, ["evenq.Driver"], heap=[f"-Xmx{heap}"], quick=quick, talks=True)
        self._names = itertools.count(1)
        self._ids = itertools.count(1)
        self._sending = threading.Lock()
        self._pending: dict[int, Future[msgspec.Raw]] = {}
        self._listeners: dict[str, Listener] = {}
        self._clients: list[JavaClient] = []
        # why nobody reads what it says any more
        self._ended: str | None = None
        self._reader = threading.Thread(target=self._read, name="java-host", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._jvm.pid

    def push(
        self,
        namesrv: str,
        group: str,
        subscriptions: str | Mapping[str, str],
        *,
        strategy: str = "AVG",
        instance: str | None = None,
        begin: Begin = Begin.LAST,
        model: MessageModel = MessageModel.CLUSTERING,
        orderly: bool = False,
        sql: bool = False,
        batch: int = 1,
        pause: float = 0.0,
        fail_times: int = 0,
        max_times: int = -1,
        reply: bool = False,
        trace: bool = False,
        count_only: bool = False,
        **strategy_settings: Any,
    ) -> JavaMember:
        """Start a push consumer of a topic, or of topics with an expression each.

        Its listener takes ``pause`` seconds a call, lets each message fail ``fail_times`` times, and may ``reply`` to
        each with its body in capitals. With ``trace`` it tells the trace topic of each. A message is tried again at
        most ``max_times`` (-1: 16) times. What a strategy needs comes by the names of :func:`evenq.balance.strategy`
        (``virtual_nodes``, ``queues``, ``rooms``, ``inner``), but rooms come as tables: ``broker_rooms`` by broker
        name, ``member_rooms`` by instance name.
        """
        return self._member(
            "push",
            instance,
            namesrv=namesrv,
            group=group,
            subscriptions=_subscriptions(subscriptions),
            strategy=strategy,
            begin=begin.value,
            model=model.value,
            orderly=orderly,
            sql=sql,
            batch=batch,
            pause=pause,
            fail_times=fail_times,
            trace=trace,
            max_times=max_times,
            reply=reply,
            count_only=count_only,
            **strategy_settings,
        )

    def lite_pull(
        self,
        namesrv: str,
        group: str,
        subscriptions: str | Mapping[str, str],
        *,
        strategy: str = "AVG",
        instance: str | None = None,
        begin: Begin = Begin.LAST,
        sql: bool = False,
        batch: int = 10,
        count_only: bool = False,
        **strategy_settings: Any,
    ) -> JavaMember:
        """Start a lite pull consumer that polls for ever; ``batch`` is the size of a pull."""
        return self._member(
            "lite_pull",
            instance,
            namesrv=namesrv,
            group=group,
            subscriptions=_subscriptions(subscriptions),
            strategy=strategy,
            begin=begin.value,
            sql=sql,
            batch=batch,
            count_only=count_only,
            **strategy_settings,
        )

    def producer(self, namesrv: str, group: str = "java-producers", *, instance: str | None = None) -> JavaProducer:
        """Start a producer."""
        name = self._name()
        settings = {"namesrv": namesrv, "group": group, "instance": instance or name}
        producer = JavaProducer(self, name, "producer", settings)
        self._clients.append(producer)
        return producer

    def transactions(
        self, namesrv: str, group: str, *, checked: LocalState = "COMMIT_MESSAGE", instance: str | None = None
    ) -> JavaTransactions:
        """Start a producer of transactions, which says ``checked`` when it is asked about one."""
        name = self._name()
        settings = {"namesrv": namesrv, "group": group, "instance": instance or name, "checked": checked}
        producer = JavaTransactions(self, name, "transactions", settings)
        self._clients.append(producer)
        return producer

    def mqadmin(self, *arguments: str, seconds: float = 60.0) -> str:
        """Run the admin tool and give what it printed; what it printed as an error is raised.

        Arguments that the tool cannot read make it end its JVM, with every client in that. Java's client gives a
        connection 3 s, and closes it when a request was slow; on a busy machine its classes take as long to load: what
        was not sent therefore is tried again.
        """
        for _ in range(3):
            printed = self.ask("mqadmin", _Printed, seconds=seconds, arguments=arguments)
            if not any(reason in printed.err for reason in _NOT_SENT):
                break
        if printed.err:
            raise JavaError(f"mqadmin {' '.join(arguments)}: {printed.err}{printed.out}")
        return printed.out

    def sql(self, expressions: Sequence[str], messages: Sequence[Mapping[str, str]]) -> list[list[bool] | None]:
        """For each SQL92 expression whether the Java broker lets each message through, by its properties; None for an
        expression that it refuses."""
        return self.ask("sql", list[list[bool] | None], expressions=expressions, messages=messages)

    def stop_clients(self) -> None:
        """Stop every client in good order; the JVM is free for others then."""
        while self._clients:
            self._clients.pop().stop()

    def close(self) -> None:
        """End the JVM at once, as a crash would; clients that should leave in good order are stopped before."""
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def kill(self) -> None:
        self._jvm.kill(self._reader)

    def listen(self, actor: str, listener: Listener) -> None:
        """Give every batch of messages that comes to ``actor`` to ``listener``, in the reader's thread."""
        self._listeners[actor] = listener

    def ask(self, verb: str, answer: type[T], *, seconds: float = 60.0, **arguments: Any) -> T:
        """One command to the Java side, and its answer as a value of type ``answer``."""
        number = next(self._ids)
        pending = self._pending[number] = Future()
        if self._ended is not None:
            raise JavaError(f"{verb}: {self._ended}")
        line = _encode({"id": number, "do": verb, **arguments}) + b"\n"
        try:
            with self._sending:
                self._jvm.stdin.write(line)
                self._jvm.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise JavaError(f"{verb}: its JVM has ended") from None
        try:
            return msgspec.json.decode(pending.result(seconds), type=answer)
        except TimeoutError:
            raise JavaError(f"{verb} was not answered within {seconds:g} s; its output:\n{self._jvm.tail()}") from None

    def _read(self) -> None:
        self._ended = self._read_all()
        for pending in self._pending.values():
            if not pending.done():
                pending.set_exception(JavaError(f"{self._ended}; its output:\n{self._jvm.tail()}"))

    def _read_all(self) -> str:
        """Take in what it says, until it ends or says what cannot be taken in; tells which."""
        for line in self._jvm.stdout:
            if not line.endswith(b"\n"):
                break  # it was killed in the middle
            try:
                self._take_in(line)
            except Exception as error:  # noqa: BLE001 - or everybody would wait for answers that nobody reads
                return f"its JVM said what cannot be taken in ({error!r}): {line[:1000]!r}"
        return "its JVM has ended"

    def _take_in(self, line: bytes) -> None:
        match _decode(line):
            case _Reply(number, value):
                self._pending.pop(number).set_result(value)
            case _Failure(number, error):
                self._pending.pop(number).set_exception(JavaError(error))
            case _Messages(actor, at, messages):
                self._listeners[actor](at, [message.view() for message in messages])

    def _member(self, kind: str, instance: str | None, **settings: Any) -> JavaMember:
        name = self._name()
        member = JavaMember(self, name, kind, {**settings, "instance": instance or name})
        self._clients.append(member)
        return member

    def _name(self) -> str:
        # the process id keeps clients of different hosts apart: RocketMQ tells members by address and instance name
        return f"java-{self._jvm.pid}-{next(self._names)}"


def _subscriptions(subscriptions: str | Mapping[str, str]) -> dict[str, str]:
    return {subscriptions: "*"} if isinstance(subscriptions, str) else dict(subscriptions)
