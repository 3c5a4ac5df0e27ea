import pytest

from evenq.errors import ArgumentError
from evenq.protocol.address import Address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("localhost:9876", "localhost", 9876), ("[::1]:1", "::1", 1), (" 10.0.0.1:65535 ", "10.0.0.1", 65535)],
)
def test_parses_and_prints(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert (address.host, address.port) == (host, port)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        ":9876",
        "host:",
        "host:x",
        "host:0",
        "host:65536",
        "::1:1",
        "a b:1",
        "[::1:1",
        "h:1_0",
        "h:\u0661",
    ],
)
def test_refuses_what_is_no_address(text: str) -> None:
    with pytest.raises(ArgumentError, match="give host:port"):
        Address.parse(text)


def test_a_broker_may_tell_an_ipv6_address_without_brackets() -> None:
    assert Address.parse("fe80::1:10911", bare=True) == Address("fe80::1", 10911)
