"""Reads a page as a browser would, and fails where it is not well-formed."""

import re
from html.parser import HTMLParser

from proxima.report import html


class Reader(HTMLParser):
    """Collects text, attributes and tags, and fails where elements are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.seen = [], [], []

    def handle_starttag(self, name, attributes):
        self.seen.append((name, dict(attributes)))
        if name not in html.VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def read(page, between=" "):
    """The page's reader, with its words; `between` stands between two pieces of text."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    reader.words = re.sub(r"\s+", " ", between.join(reader.text))
    return reader
