"""How a server is reached, and how much it takes on."""

import ipaddress
import math
from dataclasses import dataclass, fields

from glasshead.errors import ConfigError

__all__ = ["ServeConfig", "is_loopback"]


@dataclass(frozen=True)
class ServeConfig:
    """Every field is a flag of `glasshead serve`."""

    host: str = "127.0.0.1"  # the address to listen on
    port: int = 8000  # 0 takes any that is free
    api_key: str | None = None  # what requests must bring; or set GLASSHEAD_API_KEY
    allow_host: str | None = None  # other names by which it is called, as in "box.lan,10.0.0.7"
    max_body: int = 1_048_576  # bytes of a request
    max_text: int = 100_000  # characters of a text
    max_tokens: int = 8192  # tokens that one request may read, or write
    running: int = 2  # requests that compute at once
    waiting: int = 64  # requests that may wait for their turn; more get 429
    batch: int = 16  # texts that are generated together; more wait
    connections: int = 512  # open at once; more get 503
    models_loaded: int = 4  # models kept in memory
    seen_count: int = 64  # recorded texts kept in memory
    seen_bytes: int = 1_073_741_824  # bytes of them
    grace: float = 20.0  # seconds that requests have to finish at the end

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in {"port", "waiting", "grace"} else 1
            if field.type in (int, float) and not least <= value < math.inf:
                raise ConfigError(
                    f"{field.name} ({value}) must be at least {least}",
                    hint=f"it is {field.default} when left out",
                )
        if self.port > 65535:
            raise ConfigError(f"port ({self.port}) must be at most 65535", hint="try 8000")
        if self.api_key is not None and not _can_be_sent(self.api_key):
            raise ConfigError(
                "the API key is empty, or has spaces or letters that no header can carry",
                hint="use letters, digits and signs of ASCII",
            )
        if not is_loopback(self.host) and self.api_key is None:
            raise ConfigError(
                f"host {self.host} can be reached from other machines, and there is no API key",
                hint="give --api-key KEY or set GLASSHEAD_API_KEY, or leave --host out",
            )

    @property
    def allowed(self) -> frozenset[str]:
        """Other names of this server, as they were given."""
        return frozenset(name.strip().lower() for name in (self.allow_host or "").split(",")) - {""}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("box")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _can_be_sent(key: str) -> bool:
    return bool(key) and all("!" <= c <= "~" for c in key)
