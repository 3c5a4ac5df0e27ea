"""The frame of the command line: one line for every mistake, no more loaded than is needed."""

from __future__ import annotations

import importlib
import signal
import socket
import subprocess
import sys

import pytest

from evenq import __version__
from evenq.cli import COMMANDS
from tests.cli.conftest import Evenq
from tests.clusters import AnyCluster

NOWHERE = ["--namesrv", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["topic", "nonsense"], "No such command 'nonsense'"),
        (["topic", "route"], "Missing argument"),
        (["topic", "create", "t", "--queues", "many"], "--queues"),
        (["topic", "create", "t", "--perm", "x"], "--perm"),
        (["topic", "list", "--nonsense"], "--nonsense"),
        (["topic", "list", "extra"], "extra"),
        (["topic", "list", "--namesrv", "localhost"], "namesrv='localhost': give host:port"),
        (["topic", "list", *NOWHERE], "no name server answers"),
        (["group", "reset", "g", "t", *NOWHERE], "give either --to or --offset"),
        (["group", "reset", "g", "t", "--to", "first", "--offset", "b:0=1"], "give either --to or --offset"),
        (["group", "reset", "g", "t", "--to", "tomorrow"], "--to='tomorrow': give a time, e.g. 2030-12-31T23:59:59"),
        (["group", "reset", "g", "t", "--offset", "broker-a:0"], "--offset='broker-a:0': give NAME=VALUE"),
        (["group", "reset", "g", "t", "--offset", "broker-a:0=x"], "give a queue and its offset"),
        (["group", "reset", "g", "t", "--offset", "broker-a=1"], "--offset='broker-a': give a broker and the number"),
        (["message", "get", "o-1"], "msg_id='o-1': a broker's message id is 32 hexadecimal digits"),
        (["message", "find", "t", "k", "--begin", "soon"], "--begin='soon'"),
        (["message", "read", "t", "3", "0"], "QUEUE='3'"),
        (["send", "t", "x", "--file", "f"], "give a body or a file, not both"),
        (["send", "t", "--file", "/nonexistent/file"], "/nonexistent/file: No such file or directory"),
        (["send", "t", "x", "--property", "nothing"], "--property='nothing': give NAME=VALUE"),
        (["send", "t", "x", "--keys", "two words"], "keys='two words'"),
        (["send", "t", "x", "--selector", "hash"], "--selector hash and --arg go together"),
        (["send", "t", "x", "--arg", "o-1"], "--selector hash and --arg go together"),
        (["send", "t", "x", "--selector", "nearest"], "--selector"),
        (["send", "t", "x", "--queue", "first"], "--queue='first'"),
        (["send", "t", "x", "--count", "0"], "--count=0"),
        (["send", "t", "x", "--deliver-at", "later"], "--deliver-at='later'"),
        (["send", "t", "", *NOWHERE], "give at least one byte"),
        (["send", "t", "x", *NOWHERE], "no name server answers"),
        (["serve", "--brokers", "0"], "--brokers"),
        (["simulate", "--queues", "0"], "0"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_line(evenq: Evenq, arguments: list[str], complaint: str) -> None:
    assert complaint in evenq.error(*arguments)


def test_what_a_peer_says_in_many_lines_is_one_line(at_cluster: Evenq, topic: str) -> None:
    assert topic in at_cluster.error("topic", "route", topic)


def test_a_mistake_on_the_command_line_names_the_help(evenq: Evenq) -> None:
    assert evenq.error("topic", "create").endswith("(see evenq topic create --help)")


@pytest.mark.parametrize("arguments", [[], ["topic"], ["group"], ["cluster"], ["message"]], ids=" ".join)
def test_without_arguments_there_is_help_and_no_complaint(evenq: Evenq, arguments: list[str]) -> None:
    code, out, err = evenq.run(*arguments)
    assert code == 2
    assert "Usage: evenq" in out + err
    assert "error" not in out + err


def test_the_help_names_every_command(evenq: Evenq) -> None:
    out = "\n".join(evenq("--help"))
    assert all(f" {command} " in out for command in COMMANDS)


def test_h_is_help_for_the_program(evenq: Evenq) -> None:
    assert evenq("-h") == evenq("--help")


@pytest.mark.parametrize("command", COMMANDS)
def test_h_is_help_for_every_command_and_subcommand(evenq: Evenq, command: str) -> None:
    module = importlib.import_module(f"evenq.cli.{command}")
    paths = [[command]]
    if hasattr(module, "app"):
        paths += [[command, each.name or each.callback.__name__] for each in module.app.registered_commands]
    for path in paths:
        assert f" Usage: evenq {' '.join(path)} " in "\n".join(evenq(*path, "--help"))
        assert evenq(*path, "-h") == evenq(*path, "--help")


def test_version_is_one_line(evenq: Evenq) -> None:
    assert evenq("--version") == [f"evenq {__version__}"]


@pytest.mark.live
def test_version_loads_no_command() -> None:
    code = """
import sys
from evenq.cli import COMMANDS, main
try:
    main(["--version"])
finally:
    print(*(name for name in COMMANDS if f"evenq.cli.{name}" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert done.stdout == f"evenq {__version__}\n\n"


@pytest.mark.live
@pytest.mark.parametrize(
    ("arguments", "code", "out"),
    [(["--version"], 0, f"evenq {__version__}"), (["topic", "-h"], 0, "Usage: evenq topic "), (["nonsense"], 2, "")],
    ids=["--version", "topic -h", "nonsense"],
)
def test_the_package_runs_as_a_module(arguments: list[str], code: int, out: str) -> None:
    command = [sys.executable, "-m", "evenq", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == code
    assert out in done.stdout


def test_the_cluster_may_stand_in_the_environment_or_in_an_option(
    evenq: Evenq, embedded_cluster: AnyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENQ_NAMESRV", "127.0.0.1:1")
    assert "127.0.0.1:1" in evenq.error("topic", "list")
    assert evenq("topic", "list", "--namesrv", embedded_cluster.namesrv)[0] == "topic"


@pytest.mark.live
def test_ctrl_c_ends_a_command_without_a_word() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-c", "from evenq.cli import main; main()", "topic", "list", "--namesrv", address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            silent.settimeout(30)
            with silent.accept()[0] as connection:
                connection.recv(1)
                running.send_signal(signal.SIGINT)
                out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err.strip()) == (130, "", "")


@pytest.mark.live
@pytest.mark.parametrize(
    "arguments",
    [["topic", "list"], ["group", "list"], ["cluster", "list"], ["send", "t", "x"], ["message", "find", "t", "k"]],
    ids=" ".join,
)
def test_a_command_loads_what_it_needs(arguments: list[str]) -> None:
    code = f"""
import sys
from evenq.cli import main
try:
    main({[*arguments, "--json", *NOWHERE]})
finally:
    print(*sorted(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    loaded = set(done.stdout.split())
    assert "evenq.cli" in loaded
    heavy = {"numpy", "pyarrow", "pandas", "pyspark", "lz4", "zstandard", "rich.table", "evenq.broker", "evenq.testing"}
    assert not heavy & loaded
