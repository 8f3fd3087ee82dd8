"""The route of the page's Share menu: the address for a phone in the same network, as a QR code.

GET /api/phone        where the page is for other machines; or the command that opens it to them
"""

import shlex
import socket
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from glasshead.page.qr_code import qr_modules
from glasshead.serve.config import ServeConfig, is_loopback

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["share"])

LONGEST = 600  # bytes of an address, so that a phone can read its code from a screen
MAX_HASH = 4000  # characters, so that the line of a request never exceeds what HTTP parsers take
NOWHERE = "192.0.2.1"  # an address for documentation: nothing is sent there, or anywhere


class Phone(BaseModel):
    """An address with its QR code, a string of 0 and 1 for each row; or a command."""

    url: str | None = None
    rows: list[str] = []
    whole: bool = True  # whether the address leads to what is on the page, not only to the page
    command: str | None = None  # if no other machine can reach this server


@router.get("/phone")
def phone(
    request: Request, fragment: Annotated[str, Query(alias="hash", max_length=MAX_HASH)] = ""
) -> Phone:
    """The address for a phone, with the key; `hash` is what stands behind it on the page."""
    config: ServeConfig = request.app.state.config
    host = _network_address(config.host)
    if host is None:
        root = shlex.quote(str(request.app.state.library.root))
        return Phone(command=f"glasshead serve {root} --host 0.0.0.0")
    where = f"[{host}]" if ":" in host else host
    key = f"?key={quote(config.api_key, safe='')}" if config.api_key else ""
    address = f"http://{where}:{config.port}/{key}"
    whole = address + quote(fragment, safe="#=&%+-_.~*!()'/:,;")
    fits = len(whole) <= LONGEST
    url = whole if fits else address
    rows = ["".join("01"[dark] for dark in row) for row in qr_modules(url)]
    return Phone(url=url, rows=rows, whole=fits)


def _network_address(host: str) -> str | None:
    """The address under which other machines reach a server that listens on `host`, or None."""
    if is_loopback(host):
        return None
    if host not in ("0.0.0.0", "::"):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect((NOWHERE, 9))  # of a datagram socket: only looks up which way it would go
        except OSError:
            return socket.gethostname()
        return str(route.getsockname()[0])
