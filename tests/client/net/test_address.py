import pytest

from evenq.client.net.address import Address, local_ip, name_servers
from evenq.errors import ArgumentError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("localhost:9876", "localhost", 9876), ("[::1]:1", "::1", 1), (" 10.0.0.1:65535 ", "10.0.0.1", 65535)],
)
def test_parses_and_prints(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert (address.host, address.port) == (host, port)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "localhost", ":9876", "host:", "host:x", "host:0", "host:65536"])
def test_refuses_what_is_no_address(text: str) -> None:
    with pytest.raises(ArgumentError, match="give host:port"):
        Address.parse(text)


def test_several_name_servers_keep_their_order() -> None:
    assert name_servers("b:2;a:1 ; ") == ("b:2", "a:1")
    with pytest.raises(ArgumentError, match="namesrv=' ; '"):
        name_servers(" ; ")


def test_the_way_to_this_machine_is_the_loopback() -> None:
    assert local_ip("127.0.0.1:9876") == "127.0.0.1"
    assert local_ip("no-such-host.invalid:9876") == "127.0.0.1"
