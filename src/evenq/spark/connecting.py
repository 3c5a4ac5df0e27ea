"""How a query gets to a cluster: the options that reading and writing share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from evenq.client.settings import Timeouts
from evenq.errors import ArgumentError
from evenq.spark import texts
from evenq.spark.table import REQUIRED, Option

if TYPE_CHECKING:
    from evenq.client.net.acl import Credentials
    from evenq.client.net.session import Session
    from evenq.client.net.tls import Tls

__all__ = ["CONNECTION", "Connecting"]

_USUAL = Timeouts()

CONNECTION = (
    Option("namesrv", "namesrv", texts.servers, REQUIRED, "the name servers, host:port, several with ';' between"),
    Option("accessKey", "access_key", texts.some, None, "who we are, where brokers ask", secret=True),
    Option("secretKey", "secret_key", texts.some, None, "the secret that proves it", secret=True),
    Option("securityToken", "security_token", texts.some, None, "of temporary credentials", secret=True),
    Option("tls", "tls", texts.switch, "false", "whether connections are encrypted"),
    Option("tlsCa", "tls_ca", texts.some, None, "a file of certificates to trust, on every node; else the system's"),
    Option("tlsCert", "tls_cert", texts.some, None, "a file with our own certificate, where brokers ask for one"),
    Option("tlsKey", "tls_key", texts.some, None, "a file with its key, where that is not in the same file"),
    Option("tlsHostname", "tls_hostname", texts.switch, "true", "whether certificates must name the broker's address"),
    Option("tlsVerify", "tls_verify", texts.switch, "true", "whether certificates are checked: false for trials only"),
    Option("connectTimeout", "connect_timeout", texts.seconds, f"{_USUAL.connect:g}s", "to connect to a server"),
    Option("requestTimeout", "request_timeout", texts.seconds, f"{_USUAL.request:g}s", "to ask for routes and offsets"),
    Option(
        "brokerTimeout", "patience", texts.seconds, "2m", "how long a task waits for a broker that cannot be reached"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """Where the cluster is, who we are, and how long things may take. Travels to executors; shows no secret."""

    namesrv: str
    credentials: Credentials | None = None
    tls: Tls | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    patience: float = 120.0

    @classmethod
    def take(cls, values: dict[str, Any], **timeouts: float) -> Self:
        """Make it of the values of the CONNECTION options, which are taken out of ``values``."""
        own = {row.field: values.pop(row.field) for row in CONNECTION}
        return cls(
            namesrv=own["namesrv"],
            credentials=_credentials(own),
            tls=_tls(own),
            timeouts=Timeouts(connect=own["connect_timeout"], request=own["request_timeout"], **timeouts),
            patience=own["patience"],
        )

    def session(self, *, timeouts: Timeouts | None = None) -> Session:
        """A new session. Lives in the running event loop."""
        from evenq.client.net.session import Session

        return Session(self.namesrv, timeouts=timeouts or self.timeouts, tls=self.tls, credentials=self.credentials)


def _credentials(own: Mapping[str, Any]) -> Credentials | None:
    access_key, secret_key = own["access_key"], own["secret_key"]
    if access_key is None and secret_key is None and own["security_token"] is None:
        return None
    for name, value in (("accessKey", access_key), ("secretKey", secret_key)):
        if value is None:
            raise ArgumentError(name, None, "accessKey and secretKey belong together: give both, or neither")
    from evenq.client.net.acl import Credentials

    return Credentials(access_key, secret_key, own["security_token"])


def _tls(own: Mapping[str, Any]) -> Tls | None:
    if own["tls"]:
        from evenq.client.net.tls import Tls

        return Tls(own["tls_ca"], own["tls_cert"], own["tls_key"], own["tls_hostname"], own["tls_verify"])
    for name, key in (("tlsCa", "tls_ca"), ("tlsCert", "tls_cert"), ("tlsKey", "tls_key")):
        if own[key] is not None:
            raise ArgumentError(name, own[key], "this counts with tls=true only: give that too, or leave this out")
    return None
