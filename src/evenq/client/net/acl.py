"""Access control: who a client says it is, and the signature on each of its requests."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Self

from evenq.errors import ArgumentError
from evenq.protocol.command import Command

__all__ = ["Credentials"]

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - the name of a header field
SIGNATURE = "Signature"

# How the three are called in an environment, and in a file of RocketMQ's tools or of our own.
_VARIABLES = ("EVENQ_ACCESS_KEY", "EVENQ_SECRET_KEY", "EVENQ_SECURITY_TOKEN")
_FILE_VARIABLE = "EVENQ_CREDENTIALS"
_LINES = {
    "accesskey": "access_key",
    "secretkey": "secret_key",
    "securitytoken": "security_token",
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """A name and the secret that proves it. The secrets show in no ``repr``, and so in no log and no error.

    >>> Credentials("shop", "12345678")
    Credentials(access_key='shop')
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, value in (("access_key", self.access_key), ("secret_key", self.secret_key)):
            if not value:
                raise ArgumentError(name, "", "give both, or no credentials at all")

    def sign(self, command: Command) -> None:
        """Put name and signature into a request: SHA-1 over the values of its fields, by name, and its body."""
        fields = command.ext
        fields.pop(SIGNATURE, None)
        fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        content = "".join([fields[name] for name in sorted(fields)]).encode() + command.body
        fields[SIGNATURE] = b64encode(hmac.digest(self.secret_key.encode(), content, "sha1")).decode()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """What ``EVENQ_ACCESS_KEY`` and ``EVENQ_SECRET_KEY`` say, or the file that ``EVENQ_CREDENTIALS`` names."""
        access_key, secret_key, token = (environment.get(name) for name in _VARIABLES)
        if access_key or secret_key:
            return cls(access_key or "", secret_key or "", token or None)
        path = environment.get(_FILE_VARIABLE)
        return cls.from_file(path) if path else None

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """Read a file with a line each: ``accessKey: …`` and ``secretKey: …`` (RocketMQ's tools.yml), or with ``=``."""
        try:
            lines = Path(path).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            # without its cause: what was read may stand there
            raise ArgumentError("credentials", str(path), f"not readable: {type(error).__name__}") from None
        found: dict[str, str] = {}
        for line in lines:
            name, mark, value = line.partition("=" if "=" in line.partition(":")[0] else ":")
            known = _LINES.get(name.strip().lower().replace("_", ""))
            if mark and known:
                found[known] = value.strip().strip("\"'")
        if not found.keys() >= {"access_key", "secret_key"}:
            raise ArgumentError("credentials", str(path), "give a line accessKey: … and a line secretKey: … in it")
        return cls(**found)
