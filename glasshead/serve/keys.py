"""The API key of a server: where it comes from, how requests prove it, and how guesses are limited.

A browser proves the key with a cookie, SALT.MAC. The MAC is of the salt, under a secret derived
from key and port: the cookie stays valid when the server restarts with the same key, fits no other
port, and does not reveal a short key to another server on this host, which gets the cookie too.
"""

import hashlib
import hmac
import ipaddress
import math
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from glasshead.errors import ConfigError, InputError

__all__ = ["GuessLimit", "KeyCheck", "new_key", "read_key"]

VARIABLE = "GLASSHEAD_API_KEY"
MAX_FILE = 4096  # bytes of a key file
ROUNDS = 50_000  # of the derivation of the secret, once a server

GUESSES = 10  # wrong keys that an address may send at once
REFILL = 3.0  # seconds until it may send one more
ADDRESSES = 4096  # remembered; the oldest are forgotten


def new_key() -> str:
    """Return a random key of 192 bits that needs no quoting in a URL."""
    return secrets.token_urlsafe(24)


def read_key(
    api_key: str | None, file: str | None, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return the key from the option, the file or the environment, in this order; else None.

    A key file has the key in one line.
    """
    if file is None:
        return environment.get(VARIABLE) or None if api_key is None else api_key
    if api_key is not None:
        raise ConfigError("--api-key and --api-key-file are both given", hint="give one of them")
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(MAX_FILE + 1)
        key = data.decode().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(
            f"the key file {file} cannot be read: {reason}", hint="write the key into it, in a line"
        ) from None
    if len(data) > MAX_FILE:
        raise InputError(
            f"the key file {file} has more than {MAX_FILE:,} bytes",
            hint="write only the key into it, in a line",
        )
    return key


class KeyCheck:
    """Compares keys and cookies with the key of this server, in constant time."""

    def __init__(self, key: str, port: int) -> None:
        self._key = key.encode()
        self._secret = hashlib.pbkdf2_hmac("sha256", self._key, b"glasshead %d" % port, ROUNDS)
        self.cookie_name = f"glasshead-{port}"  # all ports of a host share their cookies

    def is_key(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._key)

    def is_cookie(self, given: str) -> bool:
        salt, _, mac = given.partition(".")
        return hmac.compare_digest(mac.encode(), self._mac(salt).encode())

    def new_cookie(self) -> str:
        salt = secrets.token_hex(16)
        return f"{salt}.{self._mac(salt)}"

    def _mac(self, salt: str) -> str:
        return hmac.new(self._secret, salt.encode(), "sha256").hexdigest()


class GuessLimit:
    """Limits wrong keys: `GUESSES` at once from an address, then one each `REFILL` seconds.

    While an address has to wait, its keys are not compared at all, or a fast answer would tell
    which key is right. Nothing sleeps: a request that comes too soon is refused at once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid: OrderedDict[str, float] = OrderedDict()  # when all guesses are refilled

    def wait(self, address: str) -> int:
        """Return how many seconds the address has to wait before it may send a key, or 0."""
        full = self._paid.get(_network(address), 0.0)
        return max(0, math.ceil(full - self._clock() - (GUESSES - 1) * REFILL))

    def add_wrong(self, address: str) -> None:
        network, now = _network(address), self._clock()
        self._paid[network] = max(now, self._paid.pop(network, 0.0)) + REFILL
        if len(self._paid) > ADDRESSES:
            self._paid.popitem(last=False)


def _network(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or the /64 of an IPv6 one.

    >>> _network("10.0.0.7"), _network("2001:db8::1:2"), _network("::ffff:10.0.0.7")
    ('10.0.0.7', '2001:db8::', '10.0.0.7')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False).network_address)
