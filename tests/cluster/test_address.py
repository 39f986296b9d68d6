"""What --cluster may say."""

import pytest

from proxima.cluster.address import Address, parse_address
from proxima.core.errors import ProximaError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("auto", Address("found", "auto")),
        ("local:4", Address("local", "", 4)),
        ("10.0.0.5:6379", Address("found", "10.0.0.5:6379")),
        ("head.example:6379", Address("found", "head.example:6379")),
        ("[::1]:6379", Address("found", "[::1]:6379")),
        ("ray://head:10001", Address("remote", "ray://head:10001")),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("local", "is no address; write auto, HOST:PORT"),
        ("local:0", "between 1 and 1,024 workers"),
        ("local:99999", "between 1 and 1,024 workers"),
        ("local:two", "is no address"),
        ("head", "is no address"),
        ("head:0", "a port is a number from 1 to 65535"),
        ("head:70000", "a port is a number"),
        ("http://head:6379", "is no address"),
        ("", "is no address"),
    ],
)
def test_what_is_no_address_is_refused_in_words(text, words):
    with pytest.raises(ProximaError, match="--cluster") as refusal:
        parse_address(text)
    assert words in str(refusal.value)
