"""Pages in the system's Chromium, which Playwright drives without a window.

Playwright would fetch a browser of its own from the internet; here it never does.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
LOCK = "proxima-chromium.lock"  # among temporary files; two workers do not install at once
COMMANDS = (
    "apt-get update --quiet",
    "apt-get install --quiet --yes --no-install-recommends chromium",
)
SECONDS = 600  # that one of these may take, waiting for another one included
WIDEST_PHONE = 600  # dots


def found() -> str | None:
    """Where Chromium is, if it is anywhere."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def chromium() -> str:
    """Where Chromium is; Debian's is installed if there is none, and where that fails the test is skipped."""
    problem = "only root with apt-get can install it"
    if os.geteuid() == 0 and shutil.which("apt-get") is not None:
        with open(Path(tempfile.gettempdir()) / LOCK, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            problem = "" if found() else install()
    path = found()
    if path is None:
        pytest.skip(f"needs Chromium; none of {', '.join(NAMES)} is on the PATH: {problem}")
    return path


def install() -> str:
    """Install Debian's Chromium; returns why that could not be, if so."""
    quietly = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in COMMANDS:
        whole = [*command.split(), "--option", f"DPkg::Lock::Timeout={SECONDS // 2}"]
        try:
            subprocess.run(
                whole, env=quietly, check=True, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"{command}: took more than {SECONDS} s"
        except subprocess.CalledProcessError as error:
            return f"{command}: {error.stderr.strip()[-300:]}"
    return "apt-get installed none of these"


@contextmanager
def started() -> Iterator[Browser]:
    """A browser without a window."""
    path = chromium()
    with sync_playwright() as playwright:
        # Chromium's sandbox refuses root, and a container's /dev/shm is too small for it
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        with playwright.chromium.launch(executable_path=path, args=arguments) as browser:
            yield browser


@contextmanager
def opened(
    browser: Browser, path: Path, width: int, height: int
) -> Iterator[tuple[Page, list[str]]]:
    """A file's page in a window of this size, and what went wrong with it until now, in words.

    A narrow window is that of a phone: it shows a page that does not say otherwise as if it were wider.
    """
    size = {"width": width, "height": height}
    faults: list[str] = []
    with browser.new_context(viewport=size, is_mobile=width <= WIDEST_PHONE) as context:
        page = context.new_page()
        page.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("requestfailed", lambda request: faults.append(f"failed: {request.url}"))
        page.on("request", lambda request: faults.extend(fetched(request.url, path)))
        page.goto(path.as_uri())
        yield page, faults


def fetched(address: str, path: Path) -> list[str]:
    """A page has all it needs in itself, so whatever else it asks for is a fault."""
    itself = address == path.as_uri() or address.startswith("data:")
    return [] if itself else [f"fetched: {address}"]
