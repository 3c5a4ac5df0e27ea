"""The shell of name server and broker, with peers that behave and peers that do not."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress

import pytest

from evenq.broker.limits import Limits
from evenq.broker.server import Connection, Handler, Pieces, Refusal, Server, Turn
from evenq.errors import ConnectError, RequestTimeout, StateError
from evenq.protocol.codes import ResponseCode
from evenq.protocol.command import Command
from tests.broker.peers import Peer
from tests.broker.stores import Hand
from tests.waiting import wait_until

ECHO, FAIL, REFUSE, LATER, LARGE, ASK, STORE, STORE_AND_FAIL, QUICK = 10, 11, 12, 13, 14, 15, 16, 17, 18


class Stored:
    """Turns that are stored in memory, or cannot be while the disk is full."""

    def __init__(self) -> None:
        self.staged: list[bytes] = []
        self.turns: list[list[bytes]] = []
        self.commits = 0
        self.full = False

    def rollback(self, savepoint: int) -> None:
        del self.staged[savepoint:]

    def commit(self) -> None:
        self.commits += 1
        staged, self.staged = self.staged, []
        if staged and self.full:
            raise OSError(28, "No space left on device")
        self.turns.append(staged)


class Running:
    """A server in a thread, with handlers for each kind of behaviour."""

    def __init__(self, limits: Limits, turn: Turn | None, now: Callable[[], float] = time.monotonic) -> None:
        self.loop = asyncio.new_event_loop()
        self.closed: list[str] = []
        self.parked: list[tuple[Command, Connection]] = []
        self.server = Server(
            "test server",
            limits=limits,
            turn=turn,
            now=now,
            on_close=lambda connection: self.closed.append(connection.address),
        )
        self.address = self.server.bind("127.0.0.1", 0)
        handlers: dict[int, Handler] = {
            ECHO: lambda request, connection: request.reply(ext=request.ext, body=request.body),
            STORE: self.store,
            STORE_AND_FAIL: self.store_and_fail,
            FAIL: self.fail,
            REFUSE: self.refuse,
            LATER: self.later,
            LARGE: lambda request, connection: request.reply(body=bytes(1_000_000)),
        }
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.run(self.server.start(handlers))

    def run(self, coroutine: object) -> object:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)  # type: ignore[arg-type]

    def store(self, request: Command, connection: Connection) -> Command:
        assert isinstance(self.server.turn, Stored)
        self.server.turn.staged.append(request.body)
        return request.reply()

    def store_and_fail(self, request: Command, connection: Connection) -> Command:
        self.store(request, connection)
        raise KeyError("nothing there")

    def fail(self, request: Command, connection: Connection) -> Command:
        raise KeyError("nothing there")

    def refuse(self, request: Command, connection: Connection) -> Command:
        raise Refusal(ResponseCode.NO_PERMISSION, "not you")

    def later(self, request: Command, connection: Connection) -> None:
        self.parked.append((request, connection))

    def stop(self) -> None:
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@contextmanager
def running(limits: Limits | None = None, turn: Turn | None = None) -> Iterator[Running]:
    server = Running(limits or Limits(), turn)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def served() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.fixture
def peer(served: Running) -> Iterator[Peer]:
    with Peer(served.address) as connected:
        yield connected


@pytest.mark.parametrize("serialize", ["JSON", "ROCKETMQ"])
def test_an_answer_comes_in_the_format_of_its_request(peer: Peer, serialize: str) -> None:
    answer = peer.ask(ECHO, body=b"hello", serialize=serialize)
    assert (answer.code, answer.body, answer.serialize) == (0, b"hello", serialize)


def test_requests_may_come_in_any_pieces(peer: Peer) -> None:
    frames = b"".join(Command(ECHO, opaque=number, body=b"%d" % number).encode() for number in range(1, 6))
    for at in range(0, len(frames), 7):
        peer.socket.sendall(frames[at : at + 7])
    assert [peer.answer(number).body for number in range(1, 6)] == [b"1", b"2", b"3", b"4", b"5"]


def test_an_unknown_code_gets_a_clear_answer(peer: Peer) -> None:
    answer = peer.ask(4711)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == "request code 4711 (request 4711) is not supported by this test server"


def test_a_refusal_and_a_failure_are_answers(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    refused, failed = peer.ask(REFUSE), peer.ask(FAIL)
    assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "not you")
    assert (failed.code, failed.remark) == (ResponseCode.SYSTEM_ERROR, "KeyError: 'nothing there'")
    assert "KeyError" in caplog.text
    assert peer.ask(ECHO, body=b"still here").body == b"still here"


def test_a_one_way_request_gets_no_answer(peer: Peer) -> None:
    peer.send(ECHO, flag=2)
    peer.send(4711, flag=2)
    assert peer.ask(ECHO).opaque == 3


@pytest.mark.parametrize(
    "nonsense",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x08" + b"\xff" * 8, b"\x7f\xff\xff\xff", bytes(16)],
    ids=["http", "header", "size", "zeros"],
)
def test_nonsense_closes_its_own_connection_only(served: Running, peer: Peer, nonsense: bytes) -> None:
    with Peer(served.address) as bad:
        bad.socket.sendall(nonsense)
        assert bad.is_closed()
    assert peer.ask(ECHO, body=b"fine").body == b"fine"


def test_a_frame_over_the_limit_is_not_even_read() -> None:
    with running(Limits(max_frame_bytes=1000)) as served, Peer(served.address) as peer:
        peer.socket.sendall((2000).to_bytes(4, "big"))
        assert peer.is_closed()


def test_connections_over_the_limit_are_told_so_and_closed() -> None:
    with running(Limits(max_connections=2)) as served, Peer(served.address) as first, Peer(served.address) as second:
        assert first.ask(ECHO).code == second.ask(ECHO).code == 0
        with Peer(served.address) as third:
            answer = third.ask(ECHO)
            assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_BUSY, 1)
            assert "has 2 connections" in (answer.remark or "")
            assert third.is_closed()
        with Peer(served.address) as mute:
            assert mute.is_closed()
        assert first.ask(ECHO).code == 0
        second.socket.close()
        wait_until(lambda: len(served.server.connections) == 1, "a free place")
        with Peer(served.address) as fourth:
            assert fourth.ask(ECHO).code == 0


def test_a_crowd_over_the_limit_is_not_even_told() -> None:
    with running(Limits(max_connections=1)) as served, Peer(served.address) as first, ExitStack() as crowd:
        assert first.ask(ECHO).code == 0
        waiting = [crowd.enter_context(Peer(served.address)) for _ in range(100)]
        wait_until(lambda: len(served.server.connections) == 101, "the crowd")
        with Peer(served.address) as last:
            last.send(ECHO)
            with pytest.raises(ConnectionError):
                last.answer(1)
        assert waiting[0].ask(ECHO).code == ResponseCode.SYSTEM_BUSY


def test_notes_do_not_pile_up_for_a_peer_that_does_not_read(served: Running) -> None:
    with Peer(served.address) as slow:
        for _ in range(20):
            slow.send(LARGE)
        (connection,) = wait_until(lambda: served.server.slow, "the server noticing")
        held = connection.unsent
        for _ in range(1000):
            served.loop.call_soon_threadsafe(connection.notify, Command(40, body=bytes(1000)))
        served.run(asyncio.sleep(0))
        assert connection.unsent == held
        assert len(slow.answer(20).body) == 1_000_000
        wait_until(lambda: not served.server.slow, "the peer having read")
        served.loop.call_soon_threadsafe(connection.notify, Command(40))
        assert slow.notification().code == 40


def test_a_peer_that_does_not_read_is_not_served_on(served: Running) -> None:
    with Peer(served.address) as slow:
        for _ in range(200):
            slow.send(LARGE)
        connection = wait_until(lambda: next(iter(served.server.connections), None), "a connection")
        wait_until(lambda: connection._paused, "the server noticing")
        transport = connection._transport
        assert transport is not None
        # one answer may go over the limit; the other 200 MB are not even made
        assert transport.get_write_buffer_size() < served.server.limits.max_unsent_bytes + 3_000_000
        assert sum(len(slow.answer(number).body) for number in range(1, 201)) == 200 * 1_000_000


def test_requests_of_one_read_are_stored_together() -> None:
    stored = Stored()
    with running(turn=stored) as served, Peer(served.address) as peer:
        peer.socket.sendall(b"".join(Command(ECHO, opaque=number).encode() for number in range(100, 150)))
        for number in range(100, 150):
            peer.answer(number)
        assert stored.commits < 10


def test_only_what_cannot_be_stored_is_an_error() -> None:
    stored = Stored()
    stored.full = True
    with running(turn=stored) as served, Peer(served.address) as peer:
        codes = {ECHO: 20, STORE: 21, REFUSE: 22}
        for _ in range(2):
            peer.socket.sendall(
                b"".join(Command(code, opaque=number, body=b"keep this").encode() for code, number in codes.items())
            )
            refused = peer.answer(codes[STORE])
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert refused.remark == "the broker cannot store anything now: No space left on device"
            assert peer.answer(codes[ECHO]).body == b"keep this"
            assert peer.answer(codes[REFUSE]).code == ResponseCode.NO_PERMISSION
        assert not any(stored.turns)


def test_nothing_is_stored_of_a_request_that_fails() -> None:
    stored = Stored()
    with running(turn=stored) as served, Peer(served.address) as peer:
        for code, body in ((STORE, b"one"), (STORE_AND_FAIL, b"two"), (STORE, b"three")):
            peer.ask(code, body=body)
        assert [body for turn in stored.turns for body in turn] == [b"one", b"three"]


def test_the_server_asks_its_peer(served: Running, peer: Peer) -> None:
    peer.ask(ECHO)
    (connection,) = served.server.connections

    def ask(timeout: float) -> Future[Command]:
        question = connection.ask(Command(ASK, body=b"how are you?"), timeout)
        return asyncio.run_coroutine_threadsafe(question, served.loop)

    pending = ask(10)
    question = peer.notification()
    assert (question.code, question.body) == (ASK, b"how are you?")
    peer.socket.sendall(question.reply(body=b"fine").encode())
    assert pending.result().body == b"fine"
    with pytest.raises(RequestTimeout, match=r"within 0\.010 s"):
        ask(0.01).result()
    lost = ask(10)
    peer.notification()
    peer.notification()
    peer.socket.close()
    with pytest.raises(ConnectError, match="closed before the answer came"):
        lost.result()


def test_a_notification_wants_no_answer(served: Running, peer: Peer) -> None:
    peer.ask(ECHO)
    (connection,) = served.server.connections
    served.loop.call_soon_threadsafe(connection.notify, Command(ASK, ext={"a": "b"}))
    note = peer.notification()
    assert (note.code, note.ext, note.is_oneway, note.is_response) == (ASK, {"a": "b"}, True, False)


def test_the_end_of_a_connection_is_told(served: Running) -> None:
    with Peer(served.address) as peer:
        peer.ask(ECHO)
        own = "{}:{}".format(*peer.socket.getsockname())
    wait_until(lambda: served.closed == [own], "word of the end")
    assert not served.server.connections


class TestFaults:
    def test_error(self, served: Running, peer: Peer) -> None:
        served.server.faults.add(ECHO, error=ResponseCode.SYSTEM_BUSY, remark="busy", times=1)
        first, second = peer.ask(ECHO), peer.ask(ECHO)
        assert (first.code, first.remark, second.code) == (ResponseCode.SYSTEM_BUSY, "busy", 0)

    def test_drop_and_mute(self, served: Running, peer: Peer) -> None:
        served.server.faults.add(LATER, drop=True, times=1)
        lost = peer.send(LATER)
        served.server.faults.add(ECHO, mute=True, times=1)
        muted = peer.send(ECHO)
        assert peer.ask(ECHO, body=b"next").body == b"next"
        assert not peer.has_answer(lost)
        assert not peer.has_answer(muted)
        assert served.parked == []

    def test_close(self, served: Running, peer: Peer) -> None:
        served.server.faults.add(ECHO, close=True)
        peer.send(ECHO)
        assert peer.is_closed()

    def test_delay(self, served: Running, peer: Peer) -> None:
        served.server.faults.add(ECHO, delay=0.5, times=1)
        late = peer.send(ECHO, body=b"late")
        early = peer.send(ECHO, body=b"early")
        assert peer.answer(early).body == b"early"
        assert late not in peer._answers
        assert peer.answer(late).body == b"late"


def test_a_taken_port_is_named(served: Running) -> None:
    port = int(served.address.rpartition(":")[2])
    with pytest.raises(StateError, match=f"the other cannot listen on 127.0.0.1:{port}: Address already in use"):
        Server("other").bind("127.0.0.1", port)


def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    server = Server("six")
    try:
        assert server.bind("::1", 0).startswith("[::1]:")
    except StateError:
        pytest.skip("this machine has no IPv6 address")
    asyncio.run(server.stop())


def test_a_stopped_server_lets_go_of_peers_and_port() -> None:
    with running() as served:
        peer = Peer(served.address)
        peer.ask(ECHO)
    assert peer.is_closed()
    peer.socket.close()
    again = Server("again")
    assert again.bind("127.0.0.1", int(served.address.rpartition(":")[2])) == served.address
    asyncio.run(again.stop())


def test_answers_leave_at_once(served: Running, peer: Peer) -> None:
    def delays(connection: Connection) -> bool:
        assert connection._transport is not None
        ours = connection._transport.get_extra_info("socket")
        return not ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    assert peer.ask(ECHO).code == 0
    assert [delays(connection) for connection in served.server.connections] == [False]


class TestIdleConnections:
    """``hand`` is the server's clock; the server looks for idle connections when it is told to."""

    @pytest.fixture
    def hand(self) -> Hand:
        return Hand(0.0)

    @pytest.fixture
    def served(self, hand: Hand) -> Iterator[Running]:
        server = Running(Limits(), None, hand)
        yield server
        server.stop()

    @staticmethod
    def look(served: Running) -> None:
        async def close_idle() -> None:
            served.server.close_idle()
            # what was closed is gone one round later
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        served.run(close_idle())

    def test_a_connection_without_requests_is_closed(
        self, served: Running, hand: Hand, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        with Peer(served.address) as idle, Peer(served.address) as busy:
            assert idle.ask(ECHO).code == busy.ask(ECHO).code == 0
            hand.now = 119
            assert busy.ask(ECHO).code == 0
            self.look(served)
            assert len(served.server.connections) == 2
            hand.now = 121
            self.look(served)
            assert idle.is_closed()
            assert busy.ask(ECHO).code == 0
        assert served.server.timed_out == 1
        assert "it sent no request for 120 s (1 so far)" in caplog.text

    def test_a_connection_that_waits_for_an_answer_is_kept(self, served: Running, hand: Hand) -> None:
        with Peer(served.address) as peer:
            peer.ask(ECHO)
            (connection,) = served.server.connections
            connection.wait()
            hand.now = 1000
            self.look(served)
            assert peer.ask(ECHO).code == 0
            hand.now = 2000
            connection.done()
            hand.now = 2119
            self.look(served)
            assert served.server.connections
            hand.now = 2121
            self.look(served)
            assert peer.is_closed()

    def test_a_request_that_stays_incomplete_closes_its_connection(self, served: Running, hand: Hand) -> None:
        with Peer(served.address) as half, Peer(served.address) as whole:
            for peer in (half, whole):
                assert peer.ask(ECHO).code == 0
                peer.socket.sendall(Command(ECHO, opaque=77, body=bytes(1000)).encode()[:500])
            wait_until(lambda: served.server.partials.total_bytes == 1000, "both halves")
            hand.now = 20
            whole.socket.sendall(Command(ECHO, opaque=77, body=bytes(1000)).encode()[500:])
            assert len(whole.answer(77).body) == 1000
            # that the other sends a byte now and then does not help it
            half.socket.sendall(b"x")
            wait_until(lambda: served.server.partials.total_bytes == 501, "the byte")
            hand.now = 31
            self.look(served)
            assert half.is_closed()
            wait_until(lambda: served.server.partials.total_bytes == 0, "its bytes to be forgotten")
            assert whole.ask(ECHO).code == 0

    def test_time_in_which_a_connection_is_held_back_does_not_count(self, served: Running, hand: Hand) -> None:
        with Peer(served.address) as peer:
            peer.socket.sendall(Command(ECHO, opaque=77, body=bytes(1000)).encode()[:500])
            (connection,) = wait_until(lambda: served.server.partials._sizes, "the first half")
            hand.now = 20
            served.loop.call_soon_threadsafe(connection.hold_back, True)
            served.run(asyncio.sleep(0))
            hand.now = 1000
            self.look(served)
            assert len(served.server.connections) == 1
            served.loop.call_soon_threadsafe(connection.hold_back, False)
            served.run(asyncio.sleep(0))
            hand.now = 1009
            self.look(served)
            assert len(served.server.connections) == 1
            hand.now = 1011
            self.look(served)
            assert peer.is_closed()

    def test_a_peer_that_reads_slowly_is_kept_and_one_that_reads_nothing_is_not(
        self, served: Running, hand: Hand
    ) -> None:
        with Peer(served.address) as peer:
            for _ in range(40):
                peer.send(LARGE)
            (connection,) = wait_until(lambda: served.server.slow, "the server noticing")
            self.look(served)
            opaques = iter(range(1, 41))
            for _ in range(2):
                before = connection.unsent
                while connection.unsent == before:
                    assert len(peer.answer(next(opaques)).body) == 1_000_000
                    served.run(asyncio.sleep(0.05))
                hand.now += 121
                self.look(served)
                assert connection.is_open
            hand.now += 121
            self.look(served)
            assert not connection.is_open


def test_incomplete_requests_hold_so_much_memory_only() -> None:
    limits = Limits(max_buffered_frame_bytes=1_000_000, partial_frame_timeout_s=0.5)
    frame = Command(ECHO, opaque=77, body=bytes(900_000)).encode()
    with running(limits) as served, ExitStack() as stack:
        other = stack.enter_context(Peer(served.address))
        halves = [stack.enter_context(Peer(served.address)) for _ in range(6)]
        for half in halves:
            half.socket.setblocking(False)
        rest = dict.fromkeys(halves, frame[:-1])

        def send_on() -> bool:
            for half, data in rest.items():
                # the server does not read on, or has closed the connection
                with suppress(OSError):
                    rest[half] = data[half.socket.send(data) :]
            return served.server.partials.total_bytes > 1_000_000

        wait_until(send_on, "more than is allowed")
        for _ in range(50):
            send_on()
            assert other.ask(ECHO).code == 0
        # each may have sent one more piece before it was not read from any more
        assert served.server.partials.total_bytes < 1_000_000 + 6 * 256 * 1024
        wait_until(lambda: len(served.server.connections) == 1, "the others to be closed")
        assert len(other.ask(ECHO, body=bytes(900_000)).body) == 900_000


def test_large_requests_over_the_limit_are_all_answered_in_the_end() -> None:
    limits = Limits(max_buffered_frame_bytes=1_000_000, partial_frame_timeout_s=3)
    frame = Command(ECHO, opaque=1, body=bytes(900_000)).encode()
    with running(limits) as served, ExitStack() as stack:
        honest = [stack.enter_context(Peer(served.address)) for _ in range(6)]
        silent = stack.enter_context(Peer(served.address))
        silent.socket.sendall(frame[:450_000])
        wait_until(lambda: served.server.partials.total_bytes == 450_000, "the first half of one")

        def send_slowly(peer: Peer) -> None:
            for at in range(0, len(frame), 100_000):
                peer.socket.sendall(frame[at : at + 100_000])
                time.sleep(0.02)

        senders = [threading.Thread(target=send_slowly, args=(peer,)) for peer in honest]
        for sender in senders:
            sender.start()
        answers = [peer.answer(1, 30) for peer in honest]
        for sender in senders:
            sender.join()

        assert [len(answer.body) for answer in answers] == [900_000] * 6
        assert silent.is_closed()
        wait_until(lambda: served.server.partials.total_bytes == 0, "its share to be free")


def test_small_requests_come_through_while_large_ones_are_held_back() -> None:
    limits = Limits(max_buffered_frame_bytes=1_000_000)
    large = Command(ECHO, opaque=1, body=bytes(900_000)).encode()
    small = Command(ECHO, opaque=1, body=bytes(20_000)).encode()
    with running(limits) as served, ExitStack() as stack:
        halves = [stack.enter_context(Peer(served.address)) for _ in range(3)]
        for half in halves:
            half.socket.sendall(large[:450_000])
        wait_until(lambda: served.server.partials._held_back, "one that is held back")
        others = [stack.enter_context(Peer(served.address)) for _ in range(5)]
        for part in (small[:10_000], small[10_000:]):
            for other in others:
                other.socket.sendall(part)
        assert [len(other.answer(1).body) for other in others] == [20_000] * 5


def test_a_half_closed_peer_gets_what_it_is_owed() -> None:
    with running(Limits(loop_budget_s=1e-9)) as served, Peer(served.address) as peer:
        peer.socket.sendall(b"".join(Command(ECHO, opaque=number).encode() for number in range(100, 120)))
        peer.socket.sendall(Command(LATER, opaque=120).encode())
        wait_until(lambda: served.parked, "the last request")
        ((request, connection),) = served.parked
        served.loop.call_soon_threadsafe(connection.wait)
        peer.socket.shutdown(socket.SHUT_WR)
        assert [peer.answer(number).code for number in range(100, 120)] == [0] * 20
        wait_until(lambda: connection.ended, "word that it sends no more")

        def answer() -> None:
            connection.send(request.reply(body=b"late"))
            connection.done()

        served.loop.call_soon_threadsafe(answer)
        assert peer.answer(120).body == b"late"
        assert peer.is_closed()
    assert len(served.closed) == 2


def test_a_half_closed_peer_reads_large_answers_to_the_end(served: Running) -> None:
    with Peer(served.address) as peer:
        for _ in range(40):
            peer.send(LARGE)
        wait_until(lambda: served.server.slow, "the server noticing")
        peer.socket.shutdown(socket.SHUT_WR)
        time.sleep(0.05)
        assert [len(peer.answer(opaque).body) for opaque in range(1, 41)] == [1_000_000] * 40
        assert peer.is_closed()


def test_so_many_connections_are_accepted_in_one_round(served: Running) -> None:
    rounds: list[int] = []
    opened = served.server.opened

    def count(connection: Connection) -> None:
        rounds[-1] += 1
        opened(connection)

    def next_round() -> None:
        rounds.append(0)
        if len(served.server.connections) < 200:
            served.loop.call_soon(next_round)

    hold, held = threading.Event(), threading.Event()

    def block() -> None:
        held.set()
        hold.wait(10)
        next_round()

    served.server.opened = count  # type: ignore[method-assign]
    served.loop.call_soon_threadsafe(block)
    held.wait(10)
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(Peer(served.address))
        hold.set()
        wait_until(lambda: len(served.server.connections) == 200, "all connections")
    assert max(rounds) <= 9


class Rounds:
    """Counts for how long requests are handled in each round of the loop, by a clock that only they move."""

    def __init__(self) -> None:
        self.hand = Hand(0.0)
        self.served = Running(Limits(loop_budget_s=0.002), None, self.hand)
        self.taken: list[float] = [0.0]
        self._held, self._hold = threading.Event(), threading.Event()

    def slow(self, request: Command, connection: Connection) -> Command:
        """A handler that takes a millisecond."""
        self.hand.now += 0.001
        self.taken[-1] += 0.001
        return request.reply()

    def hold(self) -> None:
        """Stop the loop, so that what is sent now comes in one round."""
        self.served.loop.call_soon_threadsafe(self._block)
        self._held.wait(10)

    def go_on(self) -> None:
        """Let the loop go on, and count."""
        self._hold.set()

    def _block(self) -> None:
        self._held.set()
        self._hold.wait(10)
        self._next()

    def _next(self) -> None:
        self.taken.append(0.0)
        if len(self.taken) < 1000:
            self.served.loop.call_soon(self._next)


def many(code: int, first: int = 0) -> bytes:
    return b"".join(Command(code, opaque=first + number).encode() for number in range(20))


def test_many_connections_share_the_time_of_a_round() -> None:
    rounds = Rounds()
    served = rounds.served
    served.server._handlers = {LATER: rounds.slow}
    try:
        with ExitStack() as stack:
            peers = [stack.enter_context(Peer(served.address)) for _ in range(5)]
            wait_until(lambda: len(served.server.connections) == 5, "all")
            rounds.hold()
            for peer in peers:
                peer.socket.sendall(many(LATER))
            rounds.go_on()
            for peer in peers:
                assert [peer.answer(number).code for number in range(20)] == [0] * 20
    finally:
        served.stop()
    # the budget once, and one request of each connection
    assert max(rounds.taken) <= 0.002 + 0.001 + 4 * 0.001 + 0.003
    assert sum(rounds.taken) == pytest.approx(0.1)


def test_who_asked_for_much_lines_up_and_others_are_served_at_once() -> None:
    rounds = Rounds()
    served = rounds.served
    quick: list[int] = []

    def fast(request: Command, connection: Connection) -> Command:
        quick.append(len(rounds.taken))
        return request.reply()

    served.server._handlers = {LATER: rounds.slow, QUICK: fast}
    try:
        with ExitStack() as stack:
            peers = [stack.enter_context(Peer(served.address)) for _ in range(5)]
            wait_until(lambda: len(served.server.connections) == 5, "all")
            calm = stack.enter_context(Peer(served.address))
            assert [peer.ask(LATER).code for peer in peers] + [calm.ask(QUICK).code] == [0] * 6
            rounds.hold()
            for peer in peers:
                peer.socket.sendall(many(LATER, 1000))
            calm.socket.sendall(Command(QUICK, opaque=1000).encode())
            rounds.go_on()
            for peer in peers:
                assert [peer.answer(1000 + number).code for number in range(20)] == [0] * 20
    finally:
        served.stop()
    # the budget once, with one request that is over it, and one connection of the line
    assert max(rounds.taken[1:]) <= 0.002 + 0.001 + 0.001 + 1e-9
    assert sum(rounds.taken) == pytest.approx(0.105)
    assert quick[1] <= 3


def test_a_peer_that_does_not_answer_is_not_asked_on() -> None:
    with running(Limits(max_peer_requests=3)) as served, Peer(served.address) as peer:
        peer.ask(ECHO)
        (connection,) = served.server.connections
        asked = [asyncio.run_coroutine_threadsafe(connection.ask(Command(ASK), 60), served.loop) for _ in range(3)]
        questions = [peer.notification() for _ in range(3)]
        with pytest.raises(Refusal, match="has not answered 3 requests"):
            served.run(connection.ask(Command(ASK), 60))
        peer.socket.sendall(questions[0].reply().encode())
        assert asked[0].result(10).code == 0
        asked.append(asyncio.run_coroutine_threadsafe(connection.ask(Command(ASK), 60), served.loop))
        assert peer.notification().code == ASK


def test_one_connection_does_not_keep_the_others_waiting() -> None:
    with running(Limits(loop_budget_s=1e-9)) as served, Peer(served.address) as peer:
        peer.ask(ECHO)
        rounds = 0
        seen: list[int] = []

        def count_rounds() -> None:
            nonlocal rounds
            rounds += 1
            if len(seen) < 50:
                served.loop.call_soon(count_rounds)

        def note(request: Command, connection: Connection) -> Command:
            seen.append(rounds)
            return request.reply()

        served.server._handlers = {ECHO: note}
        served.loop.call_soon_threadsafe(count_rounds)
        peer.socket.sendall(b"".join(Command(ECHO, opaque=number).encode() for number in range(100, 150)))
        answers = [peer.answer(number).opaque for number in range(100, 150)]

        assert answers == list(range(100, 150))
        # the first two may be handled in one round: the first of all comes with the read
        assert len(set(seen)) >= 49


class TestLongAnswers:
    """A handler that yields goes on between other requests."""

    @pytest.fixture
    def pieces(self, served: Running) -> list[int]:
        """Which long request did a piece when; each does four."""
        done: list[int] = []

        def long(request: Command, connection: Connection) -> Pieces:
            for _ in range(4):
                done.append(request.opaque)
                yield
            return request.reply(body=b"done")

        def fail(request: Command, connection: Connection) -> Pieces:
            yield
            raise Refusal(ResponseCode.NO_PERMISSION, "not you")

        served.server._handlers = {**served.server._handlers, LATER: long, FAIL: fail}
        return done

    def test_others_are_answered_between_the_pieces(self, served: Running, peer: Peer, pieces: list[int]) -> None:
        codes = {1: LATER, 2: LATER, 3: ECHO}
        peer.socket.sendall(b"".join(Command(code, opaque=opaque).encode() for opaque, code in codes.items()))
        assert [peer.answer(opaque).body for opaque in codes] == [b"done", b"done", b""]
        assert pieces == [1, 2, 1, 2, 1, 2, 1, 2]

    def test_a_failure_in_a_later_piece_is_an_answer(self, peer: Peer, pieces: list[int]) -> None:
        assert peer.ask(FAIL).remark == "not you"
        assert peer.ask(LATER).body == b"done"

    def test_a_client_waits_for_so_many_only(self, served: Running, peer: Peer, pieces: list[int]) -> None:
        many = range(1, 101)
        peer.socket.sendall(b"".join(Command(LATER, opaque=opaque).encode() for opaque in many))
        codes = [peer.answer(opaque).code for opaque in many]
        assert set(codes) == {0, ResponseCode.SYSTEM_BUSY}
        wait_until(lambda: not served.server._long, "the end of all")
        assert peer.ask(LATER).body == b"done"

    def test_a_client_that_does_not_read_gets_no_more(self, served: Running) -> None:
        def large(request: Command, connection: Connection) -> Pieces:
            yield
            return request.reply(body=bytes(2_000_000))

        served.server._handlers = {**served.server._handlers, LATER: large}
        with Peer(served.address) as slow:
            for _ in range(40):
                slow.send(LATER)
            (connection,) = wait_until(lambda: served.server.slow, "the server noticing")
            wait_until(lambda: not served.server._long, "the end of all")
            assert connection.unsent < 10_000_000
            codes = [slow.answer(opaque).code for opaque in range(1, 41)]
        assert set(codes) == {0, ResponseCode.SYSTEM_BUSY}

    def test_nothing_goes_on_for_who_is_gone(self, served: Running, pieces: list[int]) -> None:
        with Peer(served.address) as lost:
            served.server._handlers = {
                **served.server._handlers,
                STORE: lambda request, connection: connection.close(),
            }
            lost.socket.sendall(Command(LATER, opaque=1).encode() + Command(STORE, opaque=2).encode())
            assert lost.is_closed()
        wait_until(lambda: not served.server._long, "the end")
        assert pieces == [1]
