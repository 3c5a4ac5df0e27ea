import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from evenq.client.net import connection as module
from evenq.client.net.connection import WINDOW, Connection
from evenq.client.net.connections import Connections
from evenq.errors import ConnectError, RemoteError, RequestTimeout, StateError
from evenq.protocol.address import Address
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.frames import FrameParser
from evenq.protocol.template import Template

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(peer: Peer, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """A server that treats every connection as ``peer`` says; gives its address."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(ConnectionError):
            await peer(reader, writer)

    server = await asyncio.start_server(serve, host, 0)
    try:
        yield str(Address(host, server.sockets[0].getsockname()[1]))
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()


async def requests(reader: asyncio.StreamReader) -> AsyncIterator[Command]:
    parser = FrameParser()
    while data := await reader.read(65536):
        for command in parser.feed(data):
            yield command


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async for command in requests(reader):
        writer.write(command.reply(body=command.body).encode())


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async for _ in requests(reader):
        pass


def ask(body: bytes = b"") -> Command:
    return Command(RequestCode.HEART_BEAT, body=body)


class Heard:
    """A waiter that notes what it hears."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

    def answered(self, answer: Command) -> None:
        self.answer.set_result(answer)

    def failed(self, error: RemoteError) -> None:
        self.answer.set_exception(error)


@pytest.mark.parametrize("signed", [False, True])
def test_requests_that_are_alike_are_answered_one_by_one(signed: bool) -> None:
    async def fields(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for command in requests(reader):
            writer.write(command.reply(ext=command.ext).encode())

    def sign(command: Command) -> None:
        command.ext["Signature"] = command.ext["offset"] + "!"

    async def scenario() -> None:
        template = Template(Command(RequestCode.PULL_MESSAGE, ext={"topic": "t"}), "offset")
        async with listening(fields) as address:
            connection = await Connection.open(address, timeout=5, sign=sign if signed else None)
            asked = [((number,), Heard()) for number in range(100)]
            connection.submit_alike(template, asked, 5)
            assert (connection.in_flight, connection.ready) == (100, True)
            for (number,), heard in asked:
                ext = {"topic": "t", "offset": str(number)} | ({"Signature": f"{number}!"} if signed else {})
                assert (await heard.answer).ext == ext
            assert (connection.in_flight, connection._pulls) == (0, 0)
            connection.close()
            late = Heard()
            connection.submit_alike(template, [((1,), late)], 5)
            with pytest.raises(ConnectError, match="closed by this client"):
                await late.answer

    asyncio.run(scenario())


def test_alike_requests_that_nobody_answers_time_out() -> None:
    async def scenario() -> None:
        async with listening(silent) as address:
            connection = await Connection.open(address, timeout=5)
            asked = [((number,), Heard()) for number in range(3)]
            connection.submit_alike(Template(Command(RequestCode.PULL_MESSAGE), "offset"), asked, 0.05)
            for _, heard in asked:
                with pytest.raises(RequestTimeout, match="PULL_MESSAGE"):
                    await heard.answer
            assert connection._pulls == 0
            connection.close()

    asyncio.run(scenario())


def test_answers_find_their_requests_whatever_their_order() -> None:
    async def backwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held: list[Command] = []
        async for command in requests(reader):
            held.append(command)
            if len(held) == 50:
                for each in reversed(held):
                    writer.write(each.reply(body=each.body).encode())

    async def scenario() -> None:
        async with listening(backwards) as address:
            connection = await Connection.open(address, timeout=5)
            answers = await asyncio.gather(*(connection.request(ask(b"%d" % n), 5) for n in range(50)))
            assert [answer.body for answer in answers] == [b"%d" % n for n in range(50)]
            assert connection.in_flight == 0
            connection.close()

    asyncio.run(scenario())


def test_a_peer_that_is_silent_costs_the_timeout_and_no_more() -> None:
    async def scenario() -> None:
        async with listening(silent) as address:
            connection = await Connection.open(address, timeout=5)
            with pytest.raises(RequestTimeout, match=r"did not answer HEART_BEAT within 0\.050 s") as caught:
                await connection.request(ask(), 0.05)
            assert caught.value.address == address
            assert not connection.closed
            connection.close()

    asyncio.run(scenario())


def test_nonsense_closes_that_connection_and_says_what_came(caplog: pytest.LogCaptureFixture) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def scenario() -> None:
        async with listening(nonsense) as bad, listening(echo) as good:
            connections = Connections()
            other = await connections.get(good)
            with pytest.raises(ConnectError, match=r"does not speak RocketMQ's protocol.*HTTP/1\.1"):
                await connections.request(bad, ask(), 5)
            assert (await other.request(ask(b"fine"), 5)).body == b"fine"
            connections.close()

    asyncio.run(scenario())
    assert "HTTP/1.1" in caplog.text


def test_everybody_who_waits_learns_that_the_connection_broke() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async def scenario() -> None:
        async with listening(hang_up) as address:
            connection = await Connection.open(address, timeout=5)
            outcomes = await asyncio.gather(*(connection.request(ask(), 5) for _ in range(3)), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [ConnectError] * 3
            with pytest.raises(ConnectError, match="lost"):
                await connection.request(ask(), 5)

    asyncio.run(scenario())


def test_a_request_of_the_peer_is_answered_on_the_same_connection() -> None:
    answered: asyncio.Queue[Command] = asyncio.Queue()

    async def asking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, opaque=77).encode())
        writer.write(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, opaque=78, flag=2).encode())
        async for command in requests(reader):
            await answered.put(command)

    async def scenario() -> None:
        seen: list[int] = []

        async def on_request(connection: Connection, command: Command) -> Command:
            seen.append(command.code)
            return command.reply(body=b"info")

        async with listening(asking) as address:
            connection = await Connection.open(address, timeout=5, on_request=on_request)
            answer = await asyncio.wait_for(answered.get(), 5)
            assert (answer.opaque, answer.body, answer.is_response) == (77, b"info", True)
            assert seen == [RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
            assert answered.empty()  # a one-way request wants no answer
            connection.close()

    asyncio.run(scenario())


def test_callers_share_one_connection_and_a_new_one_is_made_after_it_broke() -> None:
    made = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        await echo(reader, writer)

    async def scenario() -> None:
        opened: list[str] = []
        async with listening(count) as address:
            connections = Connections(on_open=opened.append)
            await asyncio.gather(*(connections.request(address, ask(), 5) for _ in range(20)))
            assert made == 1
            (await connections.get(address)).close()
            await connections.request(address, ask(), 5)
            assert made == 2
            assert opened == [address, address]
            connections.close()
            with pytest.raises(StateError, match="closed"):
                await connections.get(address)

    asyncio.run(scenario())


def test_pulls_that_a_broker_holds_are_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hold_pulls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for command in requests(reader):
            if command.code != RequestCode.PULL_MESSAGE:
                writer.write(command.reply(body=command.body).encode())

    async def scenario() -> None:
        monkeypatch.setattr("evenq.client.net.connection.WINDOW", 4)
        async with listening(hold_pulls) as address:
            connection = await Connection.open(address, timeout=5)
            held = [connection.post(Command(RequestCode.PULL_MESSAGE), 60) for _ in range(20)]
            assert connection.ready
            assert (await connection.request(ask(b"commit"), 5)).body == b"commit"
            connection.close()
            assert all(isinstance(pull.exception(), ConnectError) for pull in held)

    asyncio.run(scenario())


def test_a_dead_address_fails_at_once_while_its_backoff_runs() -> None:
    now = 0.0

    async def scenario() -> None:
        nonlocal now
        async with listening(echo) as address:
            pass  # closed again: nobody listens there now
        connections = Connections(clock=lambda: now)
        for _ in range(2):
            with pytest.raises(ConnectError):
                await connections.get(address)
        assert connections.tries == {address: 1}
        now += 10
        with pytest.raises(ConnectError):
            await connections.get(address)
        assert connections.tries == {address: 2}
        connections.close()

    asyncio.run(scenario())


def test_one_timer_serves_requests_of_all_timeouts() -> None:
    async def scenario() -> None:
        async with listening(silent) as address:
            connection = await Connection.open(address, timeout=5)
            late = connection.post(ask(), 30)
            soon = [connection.post(ask(), seconds) for seconds in (0.06, 0.02, 0.04)]
            for future, seconds in zip(soon, ("0.060", "0.020", "0.040"), strict=True):
                with pytest.raises(RequestTimeout, match=f"within {seconds} s"):
                    await future
            assert not late.done()
            connection.close()
            with pytest.raises(ConnectError, match="closed by this client"):
                await late

    asyncio.run(scenario())


def test_requests_over_the_window_wait_for_their_turn_in_order() -> None:
    async def held(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got: list[Command] = []
        async for command in requests(reader):
            got.append(command)
            most.append(len(got))
            if len(got) == WINDOW:
                for each in got:
                    writer.write(each.reply(body=each.body).encode())
                got.clear()

    most: list[int] = []

    async def scenario() -> None:
        async with listening(held) as address:
            connection = await Connection.open(address, timeout=5)
            ended: list[int] = []

            async def one(number: int) -> None:
                await connection.request(ask(), 20)
                ended.append(number)

            waiting = [asyncio.create_task(one(number)) for number in range(3 * WINDOW)]
            gave_up = asyncio.create_task(connection.request(ask(), 20))
            await asyncio.sleep(0)
            assert not connection.ready
            gave_up.cancel()
            await asyncio.gather(*waiting)
            assert ended == list(range(3 * WINDOW))
            assert connection.ready
            connection.close()

    asyncio.run(scenario())
    assert max(most) == WINDOW


def test_who_waits_for_a_turn_has_no_longer_than_its_timeout() -> None:
    async def scenario() -> None:
        async with listening(silent) as address:
            connection = await Connection.open(address, timeout=5)
            stuck = [connection.post(ask(), 0.2) for _ in range(WINDOW)]
            with pytest.raises(RequestTimeout, match=r"within 0\.050 s"):
                await connection.request(ask(), 0.05)
            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(RequestTimeout):
                await connection.request(ask(), 0.3)
            assert loop.time() - began < 0.3 + 0.25
            assert all(
                isinstance(each, RequestTimeout) for each in await asyncio.gather(*stuck, return_exceptions=True)
            )
            assert connection.ready
            connection.close()

    asyncio.run(scenario())


def test_a_signature_is_put_into_every_request() -> None:
    def sign(command: Command) -> None:
        command.ext["Signature"] = f"for {command.code}"

    seen: asyncio.Queue[Command] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for command in requests(reader):
            await seen.put(command)

    async def scenario() -> None:
        async with listening(listen) as address:
            connections = Connections(sign=sign)
            connection = await connections.get(address)
            _ = connection.post(ask(), 5)
            await connection.send_oneway(Command(RequestCode.UNREGISTER_CLIENT))
            assert [(await seen.get()).ext for _ in range(2)] == [{"Signature": "for 34"}, {"Signature": "for 35"}]
            connections.close()

    asyncio.run(scenario())


def test_an_ipv6_address_is_connected_to() -> None:
    async def scenario() -> None:
        async with listening(echo, "::1") as address:
            assert address.startswith("[::1]:")
            connections = Connections()
            assert (await connections.request(address, ask(b"six"), 5)).body == b"six"
            connections.close()

    asyncio.run(scenario())


async def unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A peer that takes nothing."""
    await asyncio.Event().wait()


def test_a_connection_that_is_silent_while_answers_are_overdue_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SILENCE_S", 0.1)

    async def scenario() -> None:
        async with listening(silent) as address:
            connection = await Connection.open(address, timeout=5)
            for _ in range(3):
                if not connection.closed:
                    with pytest.raises(RequestTimeout):
                        await connection.request(ask(), 0.05)
            assert connection.closed
            with pytest.raises(ConnectError, match="silent for"):
                await connection.request(ask(), 0.05)

    asyncio.run(scenario())


def test_a_silence_that_a_longer_request_allows_closes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SILENCE_S", 0.05)

    async def scenario() -> None:
        async with listening(silent) as address:
            connection = await Connection.open(address, timeout=5)
            held = connection.post(ask(), 2.0)
            with pytest.raises(RequestTimeout):
                await connection.request(ask(), 0.1)
            assert not connection.closed, "a broker may hold the other one for longer"
            with pytest.raises(RequestTimeout):
                await held
            assert connection.closed

    asyncio.run(scenario())


def test_a_peer_that_answers_others_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SILENCE_S", 0.05)

    async def forgetful(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for command in requests(reader):
            if command.body != b"forget":
                writer.write(command.reply().encode())

    async def scenario() -> None:
        async with listening(forgetful) as address:
            connection = await Connection.open(address, timeout=5)
            forgotten = connection.post(ask(b"forget"), 2.0)
            while not forgotten.done():
                await connection.request(ask(), 5)
                await asyncio.sleep(0.001)
            with pytest.raises(RequestTimeout):
                await forgotten
            assert not connection.closed
            connection.close()

    asyncio.run(scenario())


def test_a_peer_that_takes_nothing_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SILENCE_S", 0.05)

    async def scenario() -> None:
        async with listening(unread) as address:
            connection = await Connection.open(address, timeout=5)
            async with asyncio.timeout(60):
                while not connection.closed:
                    with suppress(RequestTimeout):
                        await connection.send_oneway(ask(bytes(1 << 20)), 0.1)
            with pytest.raises(ConnectError, match="silent for"):
                await connection.send_oneway(ask(), 0.1)

    asyncio.run(scenario())


def test_after_a_silent_connection_comes_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SILENCE_S", 0.05)
    peers = [silent, echo]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peers.pop(0)(reader, writer)

    async def scenario() -> None:
        async with listening(serve) as address:
            connections = Connections()
            with pytest.raises(RequestTimeout):
                await connections.request(address, ask(), 0.1)
            assert (await connections.request(address, ask(b"again"), 5)).body == b"again"
            connections.close()

    asyncio.run(scenario())


def test_an_answer_that_nobody_can_use_ends_no_connection(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Heard):
        def answered(self, answer: Command) -> None:
            raise KeyError("on purpose")

    async def scenario() -> None:
        async with listening(echo) as address:
            connection = await Connection.open(address, timeout=5)
            connection.submit(ask(), 5, Broken())
            assert (await connection.request(ask(b"sound"), 5)).body == b"sound"
            connection.close()

    asyncio.run(scenario())
    assert "HEART_BEAT could not be used" in caplog.text


@pytest.mark.parametrize("code", [RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE])
def test_the_window_is_never_exceeded(code: RequestCode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", 4)

    async def scenario() -> None:
        most = 0
        came: asyncio.Queue[tuple[Command, asyncio.StreamWriter]] = asyncio.Queue()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async for command in requests(reader):
                came.put_nowait((command, writer))

        async with listening(listen) as address:
            connection = await Connection.open(address, timeout=5)
            sent = [asyncio.create_task(connection.request(ask(), 20)) for _ in range(4)]
            await asyncio.sleep(0)
            sent += [asyncio.create_task(connection.request(Command(code), 20)) for _ in range(20)]
            async with asyncio.timeout(20):
                for _ in sent:
                    most = max(most, connection.in_flight - connection._pulls)
                    command, writer = await came.get()
                    writer.write(command.reply().encode())
                    most = max(most, connection.in_flight - connection._pulls)
                await asyncio.gather(*sent)
            assert connection.ready
            connection.close()
        assert most == 4

    asyncio.run(scenario())


def test_a_turn_that_is_not_used_goes_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", 1)

    def sign(command: Command) -> None:
        if command.body == b"bad":
            raise KeyError("on purpose")

    async def scenario() -> None:
        async with listening(echo) as address:
            connection = await Connection.open(address, timeout=5, sign=sign)
            bodies = (b"first", b"bad", b"bad", b"last")
            sent = [asyncio.create_task(connection.request(ask(body), 5)) for body in bodies]
            sent.append(asyncio.create_task(connection.request(ask(b"behind"), 5)))
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [Command, KeyError, KeyError, Command, Command]
            assert connection.ready
            connection.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("word", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["silent", "nonsense"])
def test_a_peer_that_hangs_up_at_once_has_a_backoff(word: bytes) -> None:
    made = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        writer.write(word)
        writer.close()

    async def scenario() -> None:
        now = 0.0
        async with listening(hang_up) as address:
            connections = Connections(clock=lambda: now)
            for tries in range(1, 4):
                for _ in range(5):
                    with pytest.raises(ConnectError, match=r"lost|protocol"):
                        await connections.request(address, ask(), 5)
                assert (made, connections.tries) == (tries, {address: tries})
                now += 10
            connections.close()

    asyncio.run(scenario())


def test_a_peer_that_answers_loses_its_backoff() -> None:
    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for command in requests(reader):
            if command.body != b"say nothing":
                writer.write(command.reply().encode())
            writer.close()

    async def scenario() -> None:
        now = 0.0
        async with listening(answer_once) as address:
            connections = Connections(clock=lambda: now)
            for _ in range(2):
                with pytest.raises(ConnectError, match="lost"):
                    await connections.request(address, ask(b"say nothing"), 5)
                now += 10
            assert connections.tries == {address: 2}
            await connections.request(address, ask(), 5)
            assert connections.tries == {}
            # after an answer there is nothing to be careful about: the next connection is made at once
            async with asyncio.timeout(5):
                while connections.live(address):
                    await asyncio.sleep(0)
            await connections.request(address, ask(), 5)
            connections.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("begun", [True, False], ids=["connecting", "not begun"])
def test_who_waits_for_a_connection_hears_of_a_close(begun: bool) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            # a TLS handshake that nobody answers
            connections = Connections(tls=ssl.create_default_context())
            address = f"127.0.0.1:{mute.getsockname()[1]}"
            waiting = [asyncio.create_task(connections.request(address, ask(), 20)) for _ in range(2)]
            gone = asyncio.create_task(connections.request(address, ask(), 20))
            await asyncio.sleep(0)
            if begun:
                async with asyncio.timeout(5):
                    while not (task := connections._opening.get(address)) or not task.get_stack():
                        await asyncio.sleep(0)
                await asyncio.sleep(0)
            gone.cancel()
            connections.close()
            for each in waiting:
                with pytest.raises(StateError, match=f"closed while it connected to {address}"):
                    await asyncio.wait_for(each, 5)
            with pytest.raises(asyncio.CancelledError):
                await gone

    asyncio.run(scenario())


@pytest.mark.parametrize("says", [b"", b"HTTP/1.0 400 Bad Request\r\n\r\n"], ids=["closes", "answers in plain text"])
def test_a_handshake_that_fails_says_what_to_check(says: bytes) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(says)
        writer.close()

    async def scenario() -> None:
        async with listening(plain) as address:
            with pytest.raises(
                ConnectError, match=r": \w+Error.* in the TLS handshake: check that this port speaks TLS"
            ):
                await Connection.open(address, timeout=10, tls=ssl.create_default_context())

    asyncio.run(scenario())


def test_a_refused_connection_says_nothing_of_tls() -> None:
    async def scenario() -> None:
        with pytest.raises(ConnectError) as raised:
            await Connection.open("127.0.0.1:1", timeout=10, tls=ssl.create_default_context())
        assert "TLS" not in raised.value.reason
        assert raised.value.reason.startswith("Connect call failed")

    asyncio.run(scenario())
