"""Whom a process of an engine believes: the secret that all of them share, and the certificates, where they speak TLS.

It travels with what Spark brings to executors anyway, as the secret always has, and is kept out of every text. Of an engine's own
certificate the key goes along; of given ones only the paths, which every machine reads for itself.
"""

from __future__ import annotations

import datetime
import os
import secrets
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from evenflow.errors import TlsRefused

VALID: Final = datetime.timedelta(days=3650)
EARLIER: Final = datetime.timedelta(days=2)
"""Clocks of machines differ."""


@dataclass(frozen=True, slots=True)
class Own:
    """The engine's own certificate, which nobody else has signed or trusts. name: in it. pem: of it and, behind, of its key."""

    name: str
    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Given:
    """Files in PEM on every machine. name: that certificates have to bear; None: the address at which each of them listens."""

    ca: str
    certificate: str
    key: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Trust:
    """secret: 32 bytes of one engine. tls: None: messages are sealed and not encrypted."""

    secret: bytes = field(repr=False)
    tls: Own | Given | None = None


Trusted: TypeAlias = bytes | Trust
"""bytes: a secret, and no TLS."""


def trust_in(given: Trusted) -> Trust:
    return given if isinstance(given, Trust) else Trust(given)


def new_certificate() -> Own:
    """A certificate for one engine, which is its own authority: whoever has its key belongs to the engine. Takes a millisecond."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    name, key = f"{secrets.token_hex(8)}.evenflow.internal", ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number(), now - EARLIER, now + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    shape = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return Own(name, made.public_bytes(serialization.Encoding.PEM).decode(), key.private_bytes(*shape).decode())


def _plain(side: int) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


@lru_cache(maxsize=8)
def accepting(tls: Own | Given) -> ssl.SSLContext:
    """For who listens. Raises TlsRefused for files that cannot be read, or do not belong together."""
    context = _plain(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # Nobody comes back with one: a new connection is a new handshake.
    if isinstance(tls, Own):
        file = os.memfd_create("evenflow", os.MFD_CLOEXEC)  # Of memory: the key is on no disk.
        try:
            os.write(file, (tls.key + tls.certificate).encode())
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)
        return context
    for what, path in (("tls_certificate", tls.certificate), ("tls_key", tls.key)):
        _readable(what, path)
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise TlsRefused(
            f"{tls.certificate} and {tls.key} are no certificate and its key in PEM, without a password: {_said(error)}; "
            "look at the engine's options tls_certificate and tls_key"
        ) from error
    return context


@lru_cache(maxsize=8)
def connecting(tls: Own | Given) -> ssl.SSLContext:
    """For who connects, and believes nobody without a certificate. Raises TlsRefused for a file that cannot be read."""
    context = _plain(ssl.PROTOCOL_TLS_CLIENT)
    if isinstance(tls, Own):
        context.load_verify_locations(cadata=tls.certificate)
        return context
    _readable("tls_ca", tls.ca)
    try:
        context.load_verify_locations(tls.ca)
    except (OSError, ValueError) as error:
        raise TlsRefused(f"{tls.ca} has no certificates in PEM: {_said(error)}; look at the engine's option tls_ca") from error
    return context


def _readable(what: str, path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise TlsRefused(
            f"{path} cannot be read on {os.uname().nodename} ({error.strerror}): the engine's option {what} names a file on every machine"
        ) from error


def _said(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)


__all__ = ["Given", "Own", "Trust", "Trusted", "accepting", "connecting", "new_certificate", "trust_in"]
