import ssl
from pathlib import Path

import pytest

from evenq.client.net.tls import Tls, tls_context
from evenq.errors import ArgumentError


def test_the_usual_settings_trust_only_who_proves_it() -> None:
    context = tls_context(True)
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize(
    ("settings", "mode", "hostname"),
    [
        (Tls(hostname=False), ssl.CERT_REQUIRED, False),
        (Tls(verify=False), ssl.CERT_NONE, False),
    ],
)
def test_settings_become_a_context(settings: Tls, mode: ssl.VerifyMode, hostname: bool) -> None:
    context = tls_context(settings)
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (mode, hostname)


def test_a_context_is_taken_as_it_is_and_none_is_plain_tcp() -> None:
    context = ssl.create_default_context()
    assert tls_context(context) is context
    assert tls_context(None) is None
    assert tls_context(False) is None


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    missing = tmp_path / "missing.pem"
    for settings, complaint in (
        (Tls(ca=empty), r"Tls\.ca=.*empty\.pem.*give a file of certificates"),
        (Tls(ca=missing), r"Tls\.ca=.*missing\.pem"),
        (Tls(cert=missing, key=empty), r"Tls\.cert=.*missing\.pem and .*empty\.pem"),
        (Tls(key=empty), r"Tls\.key=.*empty\.pem.*give the certificate"),
    ):
        with pytest.raises(ArgumentError, match=complaint):
            settings.context()
