"""Settings of a server: its address, its API key and its limits."""

import ipaddress
import math
from dataclasses import dataclass, fields

from glasshead.errors import ConfigError
from glasshead.serve.keys import new_key

__all__ = ["ServeConfig", "is_loopback"]


@dataclass(frozen=True)
class ServeConfig:
    """Every field is a flag of `glasshead serve`.

    If other machines can reach the host and there is no key, a new key is made.
    """

    host: str = "127.0.0.1"  # the address to listen on
    port: int = 8000  # 0 for any free port
    api_key: str | None = None  # the key that requests need; or set GLASSHEAD_API_KEY
    allow_host: str | None = None  # other names of this server, such as "box.lan,10.0.0.7"
    max_body: int = 1_048_576  # the most bytes of a request
    max_text: int = 100_000  # the most characters of a text
    max_tokens: int = 8192  # the most tokens that one request may read, or generate
    running: int = 2  # requests that compute at once
    waiting: int = 64  # requests that may wait for their turn; more get 429
    batch: int = 16  # texts that are generated together; more wait
    connections: int = 512  # connections open at once; more get 503
    models_loaded: int = 4  # models kept in memory
    seen_count: int = 64  # recorded texts kept in memory
    seen_bytes: int = 1_073_741_824  # the most bytes of recorded texts
    grace: float = 20.0  # seconds that requests have to finish when the server stops

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in {"port", "waiting", "grace"} else 1
            if field.type in (int, float) and not least <= value < math.inf:
                raise ConfigError(
                    f"{field.name} ({value}) must be at least {least}",
                    hint=f"the default is {field.default}",
                )
        if self.port > 65535:
            raise ConfigError(f"port ({self.port}) must be at most 65535", hint="try 8000")
        if self.api_key is not None and not _fits_header(self.api_key):
            raise ConfigError(
                "the API key is empty, or has spaces or characters other than ASCII",
                hint="use ASCII letters, digits and punctuation",
            )
        if not is_loopback(self.host) and self.api_key is None:
            object.__setattr__(self, "api_key", new_key())

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """The names in `allow_host`."""
        return frozenset(name.strip().lower() for name in (self.allow_host or "").split(",")) - {""}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("box")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _fits_header(key: str) -> bool:
    return bool(key) and all("!" <= c <= "~" for c in key)
