"""The documentation as a site: it builds, every link leads somewhere, and nothing comes from elsewhere."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from browser import started

ROOT = Path(__file__).parent.parent
TABLE = re.compile(r"^\|[ :|-]*-[ :|-]*\|$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SIZES = [(1280, 800), (390, 844)]
LOOKED_AT = ("index.html", "start.html", "settings.html", "api.html", "domains/trading.html")


class Reader(HTMLParser):
    """The names within a page, where its links lead, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.tables = 0
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.names |= {values[name] for name in ("id", "name") if name in values}
        self.tables += tag == "table"
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("script", "img", "iframe") and "src" in values:
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    """Every page by its path; 404.html is for servers, and has links from their root."""
    return {path: Reader(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_source_is_a_page_and_every_table_a_table(site, pages):
    sources = list((ROOT / "docs").rglob("*.md"))
    assert len(sources) > 50
    for source in sources:
        page = pages[(site / source.relative_to(ROOT / "docs")).with_suffix(".html")]
        wanted = len(TABLE.findall(CODE.sub("", source.read_text())))
        assert page.tables == wanted or source.name == "api.md", source


def test_every_link_and_anchor_within_the_site_leads_somewhere(pages):
    broken, count = [], 0
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            if re.match(r"[a-z]+:", link):
                continue
            target, anchor = urldefrag(link)
            goal = (path.parent / unquote(target)).resolve() if target else path
            count += 1
            if not goal.is_file():
                broken.append(f"{path.name}: {link}: no such file")
            elif anchor and goal in pages and unquote(anchor) not in pages[goal].names:
                broken.append(f"{path.name}: {link}: no such anchor")
    assert broken == []
    assert count > 1000


def test_nothing_is_loaded_from_elsewhere(pages):
    for path, page in pages.items():
        assert [source for source in page.loaded if "//" in source] == [], path


def test_the_navigation_names_every_page(pages, site):
    home = {
        (site / urldefrag(link)[0]).resolve() for link in pages[site / "index.html"].links if link
    }
    assert [path for path in pages if path not in home] == []


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}px")
def test_pages_fit_the_window_and_ask_nobody_else(site, size):
    handler = functools.partial(Quiet, directory=str(site))
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        started() as browser,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        width, height = size
        page = browser.new_page(viewport={"width": width, "height": height})
        faults: list[str] = []
        page.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("request", lambda request: faults.extend(elsewhere(request.url, address)))
        for name in LOOKED_AT:
            page.goto(address + name)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is {wide} wide"
        page.goto(f"{address}index.html?q=walk-forward")
        page.locator(".md-search-result__item").first.wait_for()
        server.shutdown()
    assert faults == []


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing about it."""

    def log_message(self, *words: object) -> None: ...


def elsewhere(url: str, address: str) -> list[str]:
    """What was asked of somebody else than the server of the page."""
    return [] if url.startswith((address, "data:", "blob:")) else [f"fetched: {url}"]
