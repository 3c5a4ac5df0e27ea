"""TLS: whom to trust, and who we are."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TypeAlias

from evenq.errors import ArgumentError

__all__ = ["Tls", "TlsLike", "tls_context"]


@dataclass(frozen=True, slots=True)
class Tls:
    """The usual settings; for anything else give an :class:`ssl.SSLContext` instead.

    ============ ============================================================================
    ``ca``       a file of certificates to trust; the system's where it is None
    ``cert``     our own certificate, where brokers ask for one, and
    ``key``      its key, where that is not in the same file
    ``hostname`` whether the broker's certificate must name the address that we connect to
    ``verify``   False trusts anybody: for trials only
    ============ ============================================================================
    """

    ca: str | PathLike[str] | None = None
    cert: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None
    hostname: bool = True
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """The settings as Python's ssl takes them. A file that cannot be used is named."""
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else fspath(self.ca))
        except OSError as error:
            raise ArgumentError("Tls.ca", str(self.ca), f"give a file of certificates: {error}") from None
        context.check_hostname = self.hostname and self.verify
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        if self.cert is not None:
            try:
                context.load_cert_chain(fspath(self.cert), None if self.key is None else fspath(self.key))
            except OSError as error:
                files = " and ".join(str(file) for file in (self.cert, self.key) if file is not None)
                raise ArgumentError("Tls.cert", files, f"give a certificate and its key: {error}") from None
        elif self.key is not None:
            raise ArgumentError("Tls.key", str(self.key), "give the certificate (cert) that it belongs to")
        return context


TlsLike: TypeAlias = Tls | ssl.SSLContext | bool | None
"""Wherever TLS is asked for: settings, a finished context, True for the usual, or None for plain TCP."""


def tls_context(value: TlsLike) -> ssl.SSLContext | None:
    """``value`` as Python's ssl takes it; None where it means plain TCP."""
    if value is None or value is False:
        return None
    if isinstance(value, ssl.SSLContext):
        return value
    if value is not True and not isinstance(value, Tls):
        raise ArgumentError("tls", value, "give True, evenq.Tls(…), an ssl.SSLContext, or None for plain TCP")
    return (Tls() if value is True else value).context()
