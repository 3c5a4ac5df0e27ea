"""How fast messages are sent, next to the other Python clients, on the same real broker in the same run.

``python -m bench.others``, or with a number, default 20000: so many messages a round where sends overlap, a tenth of
that where they go one by one. Bodies have 100 bytes, one broker has 8 queues.

| package | what it is |
| --- | --- |
| ``rocketmq-python-client`` | the official client of RocketMQ 5: gRPC to its proxy, here in a JVM beside the broker's |
| ``rocketmq`` | the C++ client through ctypes; its wheel for Linux brings the library |

Each is installed, in its newest version, into a virtual environment of its own that lasts as long as the run. Every
client, ours too, sends from a process that is new for each round; it connects and sends a few messages before the
clock starts. The clients take turns, so that what else the machine does hits all of them: rates are the median of all
rounds, ratios the median of the ratios within a round. The first round warms the servers up and does not count. Where
a package cannot be installed or does not run, the table says why. The rate of ``rocketmq`` falls with the number of
async sends: it keeps a callback of each and looks through all of them at every answer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import evenq
from tests.clusters import create_topic
from tests.realmq import RealCluster, Unavailable
from tests.realmq.jvm import Jvm
from tests.realmq.kit import VERSION, find_kit
from tests.realmq.ports import free_ports
from tests.waiting import wait_until

ROUNDS = 3
QUEUES = 8
TOPIC = "bench"
SIZE = 100
IN_FLIGHT = 1000
# messages that a process sends before the clock starts
WARM = 200
# one at a time is slow: so many fewer messages tell as much
SHARES = {"sync": 10, "async": 1}
# seconds that one process may take
PATIENCE = 180

_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>evenq</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-proxy</artifactId><version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""

# What the process of a client runs: first ``_BEGIN``, then a head that makes ``send``, ``send_async``, ``check`` and
# ``close`` of the client, then ``_WORK``.
_BEGIN = """
import gc, json, sys, time
from collections import deque
from concurrent.futures import Future
from importlib.metadata import version

package, address, mode, topic, *numbers = sys.argv[1:]
size, warm, count, in_flight = map(int, numbers)
body = b"x" * size
"""

_WORK = """
def one_by_one(count):
    for _ in range(count):
        check(send())

def many_at_once(count):
    flying = deque()
    for _ in range(count):
        if len(flying) >= in_flight:
            check(flying.popleft().result())
        flying.append(send_async())
    for sending in flying:
        check(sending.result())

work = one_by_one if mode == "sync" else many_at_once
work(warm)
gc.collect()
began = time.perf_counter()
work(count)
seconds = time.perf_counter() - began
print(json.dumps({"version": version(package), "rate": count / seconds}), flush=True)
close()
"""

_EVENQ = """
import evenq
producer = evenq.Producer(address, linger=linger)
close = producer.close

def check(receipt):
    assert receipt.ok, receipt

def send():
    return producer.send(evenq.Message(topic, body))

def send_async():
    return producer.send_async(evenq.Message(topic, body))
"""

# Its 3 s for a request are short where a proxy, a broker and a client share few cores.
_OFFICIAL = """
from rocketmq import ClientConfiguration, Credentials, Message, Producer
producer = Producer(ClientConfiguration(address, Credentials(), request_timeout=20), [topic])
producer.startup()
close = producer.shutdown

def message():
    made = Message()
    made.topic = topic
    made.body = body
    return made

def check(receipt):
    assert receipt.message_id, receipt

def send():
    return producer.send(message())

def send_async():
    return producer.send_async(message())
"""

# A message is freed with its Python object, also while it is being sent: so the future holds it.
_CPP = """
from rocketmq.client import Message, Producer, SendStatus
producer = Producer("bench")
producer.set_namesrv_addr(address)
producer.start()
close = producer.shutdown

def message():
    made = Message(topic)
    made.set_body(body)
    return made

def check(receipt):
    assert receipt.status == SendStatus.OK, receipt

def send():
    return producer.send_sync(message())

def send_async():
    sending = Future()
    sending.message = message()
    producer.send_async(sending.message, sending.set_result, sending.set_exception)
    return sending
"""


class Failed(Exception):
    """A client cannot take part; the text is the reason."""


@dataclass(slots=True)
class Client:
    """Who takes part: the head of what its process runs, and the place where it finds the servers.

    ``failures`` has the reason for every mode in which it could not; ``rates`` what it did in the rounds that count.
    """

    package: str
    head: str
    python: Path
    address: str = ""
    modes: Sequence[str] = tuple(SHARES)
    note: str = ""
    version: str = ""
    failures: dict[str, str] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)

    def run(self, mode: str, count: int, home: Path) -> float:
        """Messages a second, sent by a new process. Clients write logs below their ``home``, so they get one."""
        code = _BEGIN + self.head + _WORK
        numbers = [str(number) for number in (SIZE, WARM, count, IN_FLIGHT)]
        command = [str(self.python), "-c", code, self.package, self.address, mode, TOPIC, *numbers]
        answer = json.loads(_run(command, {**os.environ, "HOME": str(home)}).splitlines()[-1])
        self.version = answer["version"]
        return float(answer["rate"])

    def give_up(self, error: Exception, *modes: str) -> None:
        """Note why it cannot take part in these modes."""
        self.failures |= dict.fromkeys(modes, " ".join(str(error).split())[:200])

    def row(self, mode: str, ours: Sequence[float]) -> list[str]:
        """Its row in the table, next to our rates in the same rounds."""
        name = " ".join(filter(None, (self.package, self.version, self.note)))
        if mode in self.failures:
            return [escape(f"{name}: {self.failures[mode]}"), "–", "–"]
        rates = self.rates[mode]
        ratio = median(rate / own for rate, own in zip(rates, ours, strict=True))
        return [name, f"{median(rates):,.0f}", f"{ratio:.2f} ×"]


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Run a program and give what it prints; where it fails, the last line of its errors is the reason."""
    program = Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failed(f"{program} did not end within {PATIENCE} s") from None
    except OSError as error:
        raise Failed(f"{program} does not run: {error.strerror}") from None
    if done.returncode < 0:
        raise Failed(f"{program} was ended by signal {-done.returncode}")
    if done.returncode > 0:
        lines = [line for line in f"{done.stdout}\n{done.stderr}".split("\n") if line.strip() and "hint:" not in line]
        raise Failed(lines[-1] if lines else f"{program} ended with {done.returncode}")
    return done.stdout


def install(package: str, folder: Path) -> Path:
    """Put a package from the index into a virtual environment in ``folder``; gives the Python of that."""
    own = Path(__file__).parent.parent / ".tools" / "bin" / "uv"
    uv = os.environ.get("UV") or (str(own) if own.exists() else shutil.which("uv"))
    if uv is None:
        raise Failed("uv is missing, which installs it: say make setup, or install uv")
    _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder / package)])
    python = folder / package / "bin" / "python"
    _run([uv, "pip", "install", "--quiet", "--python", str(python), package])
    return python


@contextmanager
def proxy(namesrv: str, folder: Path) -> Iterator[str]:
    """RocketMQ's proxy in cluster mode, as a process beside the brokers; gives its address for gRPC."""
    kit = replace(find_kit(), lib=_proxy_jars())
    grpc, remoting = free_ports((0,), (0,))
    settings = {"namesrvAddr": namesrv, "grpcServerPort": grpc, "remotingListenPort": remoting}
    conf = folder / "proxy.json"
    conf.write_text(json.dumps({"rocketMQClusterName": "DefaultCluster", **settings}))
    main = ["evenq.Leash", "org.apache.rocketmq.proxy.ProxyStartup", "-pm", "cluster", "-pc", str(conf)]
    jvm = Jvm(kit, folder / "proxy", main, heap=["-Xms512m", "-Xmx512m"], quick=False)
    try:
        jvm.wait_for("startup successfully", 60)
        yield f"127.0.0.1:{grpc}"
    finally:
        jvm.kill()


def _proxy_jars() -> Path:
    """The folder with the proxy's jars, beside those of the broker; fetched where it is not there yet."""
    target = find_kit().lib.parent / "proxy"
    if not target.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            raise Failed("Maven (mvn) is missing, which fetches the proxy")
        with tempfile.TemporaryDirectory(prefix=".proxy-", dir=target.parent) as temporary:
            pom, lib = Path(temporary) / "pom.xml", Path(temporary) / "lib"
            pom.write_text(_POM)
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={lib}"]
            _run([maven, "-q", "-B", "-f", str(pom), *goal])
            lib.rename(target)
    return target


def prepare(namesrv: str, folder: Path, servers: ExitStack) -> list[Client]:
    """Everyone who takes part, we first, with what they need; those who cannot know why."""
    own = Path(sys.executable)
    official = Client("rocketmq-python-client", _OFFICIAL, own, note="(gRPC, proxy)")
    cpp = Client("rocketmq", _CPP, own, namesrv, note="(C++ library)")
    for client in (official, cpp):
        try:
            client.python = install(client.package, folder)
            client.address = client.address or servers.enter_context(proxy(namesrv, folder))
        except (Failed, RuntimeError, TimeoutError) as error:
            client.give_up(error, *client.modes)
    return [
        Client("evenq", f"linger = 0.0{_EVENQ}", own, namesrv),
        Client("evenq", f"linger = 0.005{_EVENQ}", own, namesrv, modes=["async"], note="(linger 5 ms)"),
        official,
        cpp,
    ]


def measure(clients: Sequence[Client], mode: str, count: int, home: Path) -> int:
    """Let everyone send in one mode, by turns; gives how many messages were acknowledged."""
    sent = 0
    for number in range(ROUNDS + 1):
        for client in clients:
            if mode not in client.modes or mode in client.failures:
                continue
            try:
                rate = client.run(mode, count, home)
            except Failed as error:
                if client is clients[0]:
                    raise
                client.give_up(error, mode)
                continue
            sent += WARM + count
            if number > 0:
                client.rates.setdefault(mode, []).append(rate)
    return sent


def compare(count: int, console: Console) -> None:
    cache = find_kit().lib.parent.parent
    with (
        RealCluster(brokers=1, quick=False) as cluster,
        tempfile.TemporaryDirectory(prefix="others-", dir=cache, ignore_cleanup_errors=True) as temporary,
        ExitStack() as servers,
    ):
        # a topic that says nothing of its type is one for normal messages to the proxy
        create_topic(cluster.namesrv, TOPIC, queues=QUEUES)
        clients = prepare(cluster.namesrv, Path(temporary), servers)
        table = Table(title=f"Sending {SIZE}-byte messages to one real broker, {QUEUES} queues; {ROUNDS} rounds")
        for heading in ("", "messages/s", "of evenq's"):
            table.add_column(heading, justify="right" if heading else "left")
        sent = 0
        for mode, share in SHARES.items():
            sent += measure(clients, mode, count // share, Path(temporary))
            table.add_row(f"[bold]{mode}" + (f", {IN_FLIGHT} in flight" if mode == "async" else ", one by one"))
            for client in clients:
                if mode in client.modes:
                    table.add_row(*client.row(mode, clients[0].rates[mode]))
            table.add_section()
        console.print(table)
        with evenq.Admin(cluster.namesrv) as admin:
            wait_until(lambda: admin.topic_status(TOPIC).messages >= sent, f"all {sent} messages in the topic")
            console.print(f"{sent:,} messages acknowledged, {admin.topic_status(TOPIC).messages:,} stored")


def main() -> None:
    try:
        compare(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, Console())
    except Unavailable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
