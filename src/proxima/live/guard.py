"""Who may ask: whoever knows the token, at this machine's own address, from our own page where it changes.

The token stands in the address that is printed, and in a cookie after that. A foreign site cannot read it
(the cookie is SameSite=Strict), a name that is made to point here is no Host of ours, and a request that
changes something must say an Origin of ours.
"""

import hmac
from collections.abc import Mapping
from typing import NamedTuple

COOKIE = "proxima_live"
NAMES = ("127.0.0.1", "localhost")


class Guard(NamedTuple):
    """What a request is held against."""

    token: str
    port: int
    read_only: bool = False

    @property
    def cookie(self) -> str:
        """Cookies know no ports: two pages on one machine have two."""
        return f"{COOKIE}_{self.port}"

    def refusal(
        self, headers: Mapping[str, str], given: str | None, changes: bool = False
    ) -> str | None:
        """Why a request is refused, in words; None: it is answered."""
        hosts = [f"{name}:{self.port}" for name in NAMES]
        if headers.get("host") not in hosts:
            return "this page answers at http://127.0.0.1 only"
        if not hmac.compare_digest((given or "").encode(), self.token.encode()):
            return "the token is missing or wrong; open the address that proxima live printed"
        origin = headers.get("origin")
        ours = [f"http://{host}" for host in hosts]
        if origin is not None and origin not in ours:
            return "the request comes from another site"
        if not changes:
            return None
        if self.read_only:
            return "this page only shows: proxima live was started with --read-only"
        return "the request does not say that it comes from this page" if origin is None else None
