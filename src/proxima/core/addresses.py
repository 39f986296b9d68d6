"""Addresses as they may be stored and shown: without passwords, tokens and keys.

masked("https://me:secret@host/store?token=abc")   →   "https://me:***@host/store?token=***"
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

MASK = "***"
# A password ends at the last @ before the path, or (as SQLAlchemy reads it) at the first @ at all;
# digits and then a path are a port.
_USER_INFO = re.compile(
    r"(?<=://)(?P<user>[^:/?#@\s]*)(?::(?P<password>[^/?#\s]*|(?!\d*[/?#])[^@\s]*))?@"
)
_QUERY_VALUE = re.compile(r"[?&;#](?P<name>[^=&;#\s]+)=(?P<value>[^&;#\s'\"]+)")
# In the names of query values that nobody else should know.
_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|pwd|signature|credential|auth|key$|^sig$|^odbc_connect$",
    re.IGNORECASE,
)


def masked(address: str) -> str:
    """The address with three stars in the place of everything secret; other text stays as it is."""
    for start, end in sorted(_secret_spans(address), reverse=True):
        address = f"{address[:start]}{MASK}{address[end:]}"
    return address


def is_masked(address: str) -> bool:
    """Whether an address has lost its secrets."""
    return any(address[start:end] == MASK for start, end in _secret_spans(address))


def without_secrets(text: str, address: str) -> str:
    """A text, an error's for example, in which an address or its secrets may stand."""
    text = text.replace(address, masked(address))
    for start, end in _secret_spans(address):
        text = text.replace(address[start:end], MASK)
    return text


def masked_tree(tree: Any) -> Any:
    """Nested settings in which every address is masked."""
    if isinstance(tree, str):
        return masked(tree)
    if isinstance(tree, Mapping):
        return {key: masked_tree(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [masked_tree(item) for item in tree]
    return tree


def _secret_spans(address: str) -> Iterator[tuple[int, int]]:
    """Where in an address something secret stands."""
    if "://" not in address:
        return
    for match in _USER_INFO.finditer(address):
        if match["password"]:
            yield match.span("password")
        elif match["user"] and address[: match.start()].lower().endswith(("http://", "https://")):
            yield match.span("user")  # a token alone; databases have users without passwords
    for match in _QUERY_VALUE.finditer(address):
        if _SECRET_NAME.search(match["name"]):
            yield match.span("value")
