"""Signatures, and secrets that show nowhere. The signature that is expected was made by the Java client."""

import logging
from pathlib import Path

import pytest

from evenq.aio import Admin
from evenq.client.net.acl import Credentials
from evenq.client.net.session import Session
from evenq.errors import ArgumentError
from evenq.protocol.command import Command

SECRET = "s3cr3t-12345678"


def test_a_signature_covers_the_values_by_name_and_the_body() -> None:
    command = Command(310, ext={"topic": "orders", "b": "2", "a": "1"}, body=b"body")
    Credentials("rocketmq", "12345678").sign(command)
    assert command.ext["AccessKey"] == "rocketmq"
    first = command.ext["Signature"]
    # content: rocketmq (AccessKey), 1, 2, orders, body
    assert first == "OIz2o0H3nBF8Qx7nBl6jFOGAaqc="

    Credentials("rocketmq", "12345678").sign(command)
    assert command.ext["Signature"] == first, "signing again, for a retry, must not sign the signature"
    command.body = b"bodY"
    Credentials("rocketmq", "12345678").sign(command)
    assert command.ext["Signature"] != first


def test_a_security_token_is_sent_and_signed() -> None:
    plain, with_token = Command(310), Command(310)
    Credentials("k", "s").sign(plain)
    Credentials("k", "s", "token").sign(with_token)
    assert with_token.ext["SecurityToken"] == "token"
    assert with_token.ext["Signature"] != plain.ext["Signature"]


def test_no_secret_shows(caplog: pytest.LogCaptureFixture) -> None:
    credentials = Credentials("name", SECRET, SECRET + "-token")
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("evenq").debug("%s %r", credentials, credentials)
    assert repr(credentials) == str(credentials) == "Credentials(access_key='name')"
    assert SECRET not in caplog.text
    with pytest.raises(ArgumentError) as caught:
        Credentials("", SECRET)
    assert SECRET not in str(caught.value)


def test_credentials_come_from_the_environment_or_a_file_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("# of RocketMQ's tools\naccessKey: from-file\nsecretKey: 'a:b=c'\n")
    both = {"EVENQ_ACCESS_KEY": "from-env", "EVENQ_SECRET_KEY": SECRET, "EVENQ_CREDENTIALS": str(file)}
    assert Credentials.from_environment(both) == Credentials("from-env", SECRET)
    assert Credentials.from_environment({"EVENQ_CREDENTIALS": str(file)}) == Credentials("from-file", "a:b=c")
    assert Credentials.from_environment({"EVENQ_ACCESS_KEY": ""}) is None
    with pytest.raises(ArgumentError, match="give both"):
        Credentials.from_environment({"EVENQ_ACCESS_KEY": "alone"})


def test_a_file_may_have_names_as_python_has_them(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(f'access_key = "me"\nsecret_key = "{SECRET}"\nsecurity_token = "t"\n')
    assert Credentials.from_file(file) == Credentials("me", SECRET, "t")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("accessKey: x\n", "give a line accessKey"), (None, "not readable: FileNotFoundError")],
)
def test_a_file_without_both_keys_is_named(tmp_path: Path, content: str | None, complaint: str) -> None:
    file = tmp_path / "tools.yml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ArgumentError, match=complaint) as caught:
        Credentials.from_file(file)
    assert str(file) in str(caught.value)


def test_every_client_finds_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENQ_ACCESS_KEY", "me")
    monkeypatch.setenv("EVENQ_SECRET_KEY", SECRET)
    sign = Session("127.0.0.1:1").connections._sign
    assert sign is not None
    command = Command(34)
    sign(command)
    assert command.ext["AccessKey"] == "me"


def test_an_admin_client_signs_with_the_credentials_that_it_is_given() -> None:
    sign = Admin("127.0.0.1:1", credentials=Credentials("operator", SECRET))._session.connections._sign
    assert sign is not None
    command = Command(105)
    sign(command)
    assert command.ext["AccessKey"] == "operator"
