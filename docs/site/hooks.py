"""What the site needs beyond docs/: the documents above it as pages, and a place for pages that nobody named.

README.md, CONTRIBUTING.md and CHANGELOG.md stand at the repository's top, where people look for them.
Links out of docs/ that lead to no page, such as those to source files, become plain text.
"""

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent.parent
ABOVE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s:#]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Decisions, and pages that the navigation does not name, come into it by themselves."""
    named = set(_named(config.nav))
    docs = ROOT / "docs"
    pages = sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))
    others = [page for page in pages if page not in named]
    for section in config.nav:
        for title, entries in section.items():
            if title == "Decisions":
                entries.extend(page for page in others if page.startswith("decisions/"))
            if title == "Reference":
                entries.extend(page for page in others if not page.startswith("decisions/"))
    return config


def _named(nav: Any) -> list[str]:
    """Every page that a navigation names."""
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in _named(entry)]


def on_files(files: Any, config: Any) -> Any:
    """The documents above docs/ as pages of it."""
    for source, page in ABOVE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as the site has them, whether a page stands in docs/ or above it."""
    sources = {name: source for source, name in ABOVE.items()}
    origin = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return LINK.sub(lambda link: _relinked(link, origin, page.file.src_uri, files), markdown)


def _relinked(link: re.Match[str], origin: str, page: str, files: Any) -> str:
    """The link from the page to what it leads to from its source; its text alone if that is no page."""
    picture, text, target, anchor = link.groups()
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    name = ABOVE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if name is not None and (ROOT / "docs" / name).is_dir():
        name = min(uri for uri in files.src_uris if uri.startswith(f"{name}/"))
    if name is None:
        return text if (ROOT / path).exists() else link.group()
    if files.get_file_from_path(name) is None:
        return link.group()  # mkdocs says what is wrong with it
    relative = posixpath.relpath(name, PurePosixPath(page).parent.as_posix())
    return f"{picture}[{text}]({relative}{anchor or ''})"
