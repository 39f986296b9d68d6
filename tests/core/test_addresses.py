"""What of an address may be stored and shown."""

import pytest

from proxima.core.addresses import is_masked, masked, masked_tree, without_secrets

SECRET = "hunter2"
WITH_SECRETS = {
    f"https://me:{SECRET}@host/path": "https://me:***@host/path",
    f"https://me:{SECRET}@host:8080/path?x=1": "https://me:***@host:8080/path?x=1",
    f"https://{SECRET}@host/store": "https://***@host/store",
    f"http://{SECRET}:@host/store": "http://***:@host/store",
    f"https://me:p@{SECRET}@host/": "https://me:***@host/",
    f"postgresql+psycopg2://me:{SECRET}@host:5432/db": "postgresql+psycopg2://me:***@host:5432/db",
    f"postgresql://me:p/{SECRET}@host/db": "postgresql://me:***@host/db",
    f"mysql://:{SECRET}@host/db": "mysql://:***@host/db",
    f"sqlite:///runs.db?password={SECRET}": "sqlite:///runs.db?password=***",
    f"https://host/x?a=1&access_token={SECRET}&b=2": "https://host/x?a=1&access_token=***&b=2",
    f"https://host/x?API_KEY={SECRET}": "https://host/x?API_KEY=***",
    f"https://host/x?key={SECRET}#top": "https://host/x?key=***#top",
    f"https://host/x#access_token={SECRET}": "https://host/x#access_token=***",
    f"https://host/x?X-Amz-Signature={SECRET}&X-Amz-Date=1": (
        "https://host/x?X-Amz-Signature=***&X-Amz-Date=1"
    ),
    f"mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3D{SECRET}": (
        "mssql+pyodbc:///?odbc_connect=***"
    ),
    f"see https://me:{SECRET}@host and http://b:{SECRET}@c": (
        "see https://me:***@host and http://b:***@c"
    ),
}


@pytest.mark.parametrize(("address", "shown"), WITH_SECRETS.items())
def test_secrets_are_masked(address, shown):
    assert masked(address) == shown
    assert masked(shown) == shown
    assert is_masked(shown) and not is_masked(address)


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:///mlflow.db",
        "sqlite:////home/me/a:b@c.db",
        "http://127.0.0.1:5000",
        "http://host:8080/a@b",
        "postgresql://me@host/db",
        "https://host/x?page=2&step=3",
        "logs/runs:a@b",
        "me:password@host",
        "",
        "***",
    ],
)
def test_what_is_not_secret_stays(address):
    assert masked(address) == address
    assert not is_masked(address)


def test_a_text_that_quotes_an_address_or_its_password_is_masked():
    address = f"https://me:{SECRET}@host"
    text = f"no answer from {address}: user me, password {SECRET}"
    assert without_secrets(text, address) == (
        "no answer from https://me:***@host: user me, password ***"
    )


def test_every_address_in_settings_is_masked():
    address = f"https://me:{SECRET}@host"
    tree = {"a": 1, "b": {"c": address, "d": [address, None, 2.5]}, "e": (True,)}
    shown = "https://me:***@host"
    assert masked_tree(tree) == {"a": 1, "b": {"c": shown, "d": [shown, None, 2.5]}, "e": [True]}
