"""Certificates for a server on this machine, and another authority that did not sign them."""

import ssl
from functools import cache
from pathlib import Path
from typing import NamedTuple

import trustme

from .process import HOST, Folder


class Certificates(NamedTuple):
    """The files and settings for both sides of an encrypted connection."""

    authority: Path
    """The authority that signed the server's certificate, as a PEM file."""
    stranger: Path
    """An authority that did not sign it, as a PEM file."""
    server: ssl.SSLContext
    """Settings for a server on 127.0.0.1 and localhost."""


@cache
def certificates() -> Certificates:
    """Return certificates for this process. The files are removed when it ends."""
    folder = Folder("certificates").path
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    stranger.cert_pem.write_to_path(str(folder / "stranger.pem"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST, "localhost").configure_cert(server)
    return Certificates(folder / "authority.pem", folder / "stranger.pem", server)
