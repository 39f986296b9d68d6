"""The page of a search as a browser shows it, on a desk and on a phone: all of it is there, and fits."""

import browser
import pytest
import search_results as searches

from proxima.report.html import write_page
from proxima.tune.page import search_page

ROOT = "logs/cartpole/searches/20261118-120000-beef"
BROKEN, UNSURE = "Configurations that broke down", "Not confirmed"
BEST, END = ["Best settings", "Progress"], ["Configurations", "How it was made"]
MATTERED = "What mattered"
TABLE = searches.many_settings()._replace(space={}, own={}, method="table")
# Searches, and the headings that their pages must show.
SEARCHES = {
    "asha": (searches.surface(), [BROKEN, *BEST, MATTERED, "On new seeds", *END]),
    "pbt": (searches.population(), [UNSURE, *BEST, "Population", MATTERED, *END]),
    "table": (TABLE, [UNSURE, *BEST, MATTERED, *END]),
    "all broken": (searches.all_broken(), [BROKEN, MATTERED, *END]),
}
WINDOWS = {"desk": (1280, 900), "phone": (390, 844)}

# Words that all checks below use.
NAMES = """
const shown = [...document.body.querySelectorAll("*")].filter(each => each.checkVisibility());
const named = each => `<${each.localName} class="${each.className}"> ${each.textContent.trim().slice(0, 60)}`;
const box = each => each.getBoundingClientRect();
const style = each => getComputedStyle(each);
const scrolls = each => ["auto", "scroll"].includes(style(each).overflowX);
"""
# What can be wrong with an element of a page, and the elements with which it is, in words.
CHECKS = {
    "is wider than the window": """
const width = document.documentElement.clientWidth;
const canScroll = each => each !== null && (scrolls(each) || canScroll(each.parentElement));
return shown.filter(each => box(each).left < -0.5 || box(each).right > width + 0.5)
  .filter(each => !canScroll(each.parentElement)).map(each => `${named(each)}: ${box(each).right}`);
""",
    "does not fit into its box": """
const wide = each => each.scrollWidth > each.clientWidth + 1;
const high = each => each.scrollHeight > each.clientHeight + 1 && style(each).overflowY !== "visible";
return shown.filter(each => each.clientWidth > 0 && !scrolls(each))  // nothing in a line has such a width
  .filter(each => wide(each) || high(each)).map(named);
""",
    "lies over what is before it": """
return shown.filter(each => each.matches("main > * + *, section > * + *"))
  .filter(each => box(each).top < box(each.previousElementSibling).bottom - 1).map(named);
""",
    "is hard to read": """
const parts = colour => colour.match(/[0-9.]+/g).map(Number);
const part = value => value <= 10 ? value / 3295 : ((value / 255 + 0.055) / 1.055) ** 2.4;
const light = ([red, green, blue]) => 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
const ground = each => parts(style(each).backgroundColor);
const behind = each => each === null ? [255, 255, 255]
  : ground(each)[3] === 0 ? behind(each.parentElement) : ground(each);
const contrast = each => {  // the one of the WCAG, which asks for 4.5
  const [dark, bright] = [light(parts(style(each).color)), light(behind(each))].sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
};
const isText = node => node.nodeType === Node.TEXT_NODE && node.data.trim() !== "";
const hasText = each => [...each.childNodes].some(isText);
return shown.filter(each => hasText(each) && contrast(each) < 4.5).map(named);
""",
    "did not load": """
return [...document.images].filter(each => each.naturalWidth === 0).map(each => each.alt);
""",
    "leads nowhere": """
const links = [...document.querySelectorAll("a[href^='#']")];
const target = each => document.getElementById(decodeURIComponent(each.hash.slice(1)));
return links.filter(each => target(each) === null).map(named);
""",
}
NARROW_PICTURES = """() => [...document.querySelectorAll("picture")].map(
  each => each.querySelector("img").currentSrc === each.querySelector("source").srcset)"""

# A fault for every check, and the text of its element.
FAULTS = {
    "wide": '<div style="width: 2000px">wide</div>',
    "cut_off": '<p style="width: 40px; overflow: hidden">cut_off_in_its_middle</p>',
    "over": '<p style="margin-top: -30px">over</p>',
    "pale": '<p style="color: #bbb">pale</p>',
    "missing": '<img src="missing.png" alt="missing">',
    "link": '<a href="#nowhere">link</a>',
}


@pytest.fixture(scope="module")
def chromium():
    with browser.started() as started:
        yield started


@pytest.fixture(scope="module", params=SEARCHES)
def written(request, tmp_path_factory):
    """A search's page on the disk, and the headings that it must have."""
    result, headings = SEARCHES[request.param]
    path = tmp_path_factory.mktemp("pages") / "search.html"
    write_page(path, search_page(result, ROOT), "the page")
    return path, headings


def wrong(page):
    """What is wrong with a page as it is shown now, a line for each."""
    return "\n".join(
        f"{each} {words}"
        for words, check in CHECKS.items()
        for each in page.evaluate(f"() => {{ {NAMES} {check} }}")
    )


@pytest.mark.parametrize("window", WINDOWS)
def test_a_page_is_whole_and_fits_its_window(chromium, written, window):
    (path, headings), (width, height) = written, WINDOWS[window]
    with browser.opened(chromium, path, width, height) as (page, faults):
        assert page.locator("h2").filter(visible=True).all_inner_texts() == headings
        assert wrong(page) == ""
        folds = page.locator("summary").all()
        for each in folds:
            each.click()
        assert page.locator("details table").filter(visible=True).count() == len(folds)
        for scheme in ("light", "dark"):  # what the reader's system has
            page.emulate_media(color_scheme=scheme)
            assert wrong(page) == "", scheme
        size = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
        assert size == [width, width]
        assert set(page.evaluate(NARROW_PICTURES)) <= {window == "phone"}
        assert faults == []


@pytest.mark.parametrize("window", WINDOWS)
def test_every_fault_is_found(chromium, tmp_path, window):
    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html><main>{''.join(FAULTS.values())}</main>")
    with browser.opened(chromium, path, *WINDOWS[window]) as (page, faults):
        found = wrong(page).splitlines()
        for text, words in zip(FAULTS, CHECKS, strict=True):
            assert any(text in each and words in each for each in found), words
        assert page.evaluate("document.documentElement.scrollWidth") > 2000
        missing = (tmp_path / "missing.png").as_uri()
        assert {f"fetched: {missing}", f"failed: {missing}"} < set(faults)
