"""Signatures and TLS, as the real broker checks them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from evenq import (
    ConnectError,
    Credentials,
    Message,
    MessageView,
    Producer,
    PushConsumer,
    SendFailed,
    Tls,
    TransactionState,
)
from tests.realmq import RealCluster, Unavailable
from tests.waiting import wait_until

pytestmark = pytest.mark.live

NAME, SECRET = "shopkeeper", "s3cr3t-12345678"
_PROVIDERS = "org.apache.rocketmq.auth"
LOCKED = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_PROVIDERS}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{NAME}","password":"{SECRET}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{NAME}","secretKey":"{SECRET}"}}',
}


@pytest.fixture(scope="module")
def locked() -> Iterator[RealCluster]:
    """A broker that lets nobody in who cannot sign, and speaks TLS to those who want it."""
    try:
        cluster = RealCluster(brokers=1, conf=LOCKED, tls=True)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with cluster:
        yield cluster


def test_whoever_signs_may_send_and_consume(
    locked: RealCluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENQ_ACCESS_KEY", NAME)
    monkeypatch.setenv("EVENQ_SECRET_KEY", SECRET)
    got: list[MessageView] = []
    with (
        Producer(locked.namesrv, f"tx-{topic}", check=lambda message: TransactionState.UNKNOWN) as producer,
        PushConsumer(locked.namesrv, group, begin="first") as consumer,
    ):
        producer.send(Message(topic, b"one"))
        producer.send_oneway(Message(topic, b"two"))
        producer.send_batch([Message(topic, b"three"), Message(topic, "vier ✓".encode(), keys=["ключ"])])
        producer.send_in_transaction(Message(topic, b"five"), lambda *_: TransactionState.COMMIT)
        consumer.subscribe(topic)
        consumer.start(got.extend)
        wait_until(lambda: len(got) == 5, lambda: f"five messages: {got}")
    assert {message.body for message in got} == {b"one", b"two", b"three", "vier ✓".encode(), b"five"}


@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        (None, "username cannot be null"),
        (Credentials(NAME, SECRET + "!"), "check signature failed"),
        (Credentials("stranger", SECRET), "User:stranger is not found"),
    ],
)
def test_whoever_cannot_sign_is_told_why_and_no_secret_shows(
    locked: RealCluster, topic: str, credentials: Credentials | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        Producer(locked.namesrv, credentials=credentials) as producer,
        pytest.raises(SendFailed, match=reason) as caught,
    ):
        producer.send(Message(topic, b"x"))
    for text in (str(caught.value), repr(caught.value), caplog.text, repr(credentials), repr(vars(producer))):
        assert SECRET not in text


def test_everything_goes_over_tls(locked: RealCluster, topic: str) -> None:
    # the broker has made up its certificate, so nobody vouches for it
    with Producer(locked.namesrv, credentials=Credentials(NAME, SECRET), tls=Tls(verify=False)) as producer:
        assert producer.send(Message(topic, b"x" * 1_000_000), timeout=20).ok
        receipts = producer.send_batch([Message(topic, b"x" * 1000)] * 1000, split=True, timeout=20)
        assert all(receipt.ok for receipt in receipts)
        (transport,) = {
            type(connection._transport).__name__ for connection in producer._inner._session.connections._open.values()
        }
        assert "SSL" in transport


def test_a_certificate_that_nobody_vouches_for_is_refused(locked: RealCluster, topic: str) -> None:
    with Producer(locked.namesrv, tls=True) as producer, pytest.raises(ConnectError, match="certificate verify failed"):
        producer.send(Message(topic, b"x"))
