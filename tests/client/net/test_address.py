import pytest

from evenq.client.net.address import local_ip, name_servers
from evenq.errors import ArgumentError


def test_several_name_servers_keep_their_order() -> None:
    assert name_servers("b:2;a:1 ; ") == ("b:2", "a:1")
    with pytest.raises(ArgumentError, match="namesrv=' ; '"):
        name_servers(" ; ")


def test_the_way_to_this_machine_is_the_loopback() -> None:
    assert local_ip("127.0.0.1:9876") == "127.0.0.1"
    assert local_ip("no-such-host.invalid:9876") == "127.0.0.1"
