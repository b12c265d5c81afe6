"""An HTML page as Markdown: its readable text, title and links; nothing that runs, hides or embeds.

Runs as a separate program, with limits on time and memory and without rights, because parsers meet untrusted input. A
page made to be slow must not hold up a chat; one made to break a parser finds no file, no socket and no other process.
It prints JSON: `title`, `markdown`, and `part`, which is `article` if only the main part of the page is shown.
"""

import json
import os
import re
import resource
import sys
from contextlib import suppress
from typing import Any

from tools.sandbox.confine import landlock_version, prepare, restrict

CPU_SECONDS = 8
MEMORY_BYTES = 1 << 30
MARKDOWN_CHARS_MAX = 4 * 1024 * 1024
"""Maximum length as Markdown: nested lists are indented, so a short page can become long."""
NOBODY = 65_534
ARTICLE_CHARS_MIN = 400
"""A shorter article is probably not what the page is about."""
ARTICLE_SHARE_MIN = 0.25
"""Minimum share of the page's text; below it, the page is a list or an index, and is shown whole."""
RECURSION_MAX = 4000

_DROPPED = (
    "script style noscript template iframe frame object embed applet svg math canvas head form input button select textarea "
    "link meta base audio video source dialog"
)
_HIDDEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|(?:^|;)\s*(?:opacity|font-size)\s*:\s*0(?:\.0+)?\s*(?:[a-z%]+\s*)?(?:;|!|$)",
    re.IGNORECASE,
)
_LINK = re.compile(r"(?:https?|mailto):", re.IGNORECASE)


def main(arguments: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(RECURSION_MAX)
    read(
        "<title>t</title><p>a &amp; b <a href='/c'>d</a><table><tr><td>e</table>", "http://a.test/"
    )  # imports all it needs
    give_up_rights()
    title, markdown, part = read(sys.stdin.buffer.read().decode(), arguments[0])
    answer = {"title": title, "markdown": markdown[:MARKDOWN_CHARS_MAX], "part": part}
    sys.stdout.buffer.write(json.dumps(answer).encode())


def give_up_rights() -> None:
    """Drop root and confine this process. Raises OSError if the kernel supports that but refuses it."""
    if os.geteuid() == 0:
        with suppress(PermissionError):  # a root that may not
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
    if landlock_version():
        restrict(prepare({"read": [], "write": []}), (os.getppid(), -os.getpgrp(), -1))


def read(html: str, url: str) -> tuple[str, str, str]:
    """Return the title, the Markdown, and whether that is the `article` or the `page`."""
    from lxml import etree
    from lxml.html import HTMLParser, document_fromstring

    try:
        root = document_fromstring(html.replace("\0", ""), parser=HTMLParser(no_network=True, huge_tree=True))
    except (etree.ParserError, etree.XMLSyntaxError):
        return "", "", "page"
    title = " ".join("".join(root.xpath("//title[1]//text()")).split())
    clean(root, url)
    whole = " ".join(root.text_content().split())
    part = article(root)
    if part is None or len(part[1]) < max(ARTICLE_CHARS_MIN, ARTICLE_SHARE_MIN * len(whole)):
        return title, to_markdown(etree.tostring(root, encoding="unicode", method="html"), whole), "page"
    return title, to_markdown(*part), "article"


def clean(root: Any, url: str) -> None:
    """Remove hidden elements, and links that lead to no page."""
    from lxml import etree

    etree.strip_elements(root, etree.Comment, etree.ProcessingInstruction, *_DROPPED.split(), with_tail=False)
    hidden = "//*[@hidden or translate(@aria-hidden, 'TRUE', 'true')='true' or @style]"
    for element in root.xpath(hidden):
        style = element.get("style", "")
        gone = "hidden" in element.attrib or element.get("aria-hidden", "").lower() == "true" or _HIDDEN.search(style)
        if gone and element.getparent() is not None:
            element.drop_tree()
    for element in root.iter("img"):
        element.tag, element.text = "span", element.get("alt", "")
    root.make_links_absolute(url, resolve_base_href=False, handle_failures="discard")
    for element in root.iter():
        href = element.get("href", "")
        element.attrib.clear()
        if element.tag == "a" and _LINK.match(href):
            element.set("href", href)


def article(root: Any) -> tuple[str, str] | None:
    """Extract the main part of a page, as HTML and as plain text; None without any."""
    import logging

    from lxml import etree
    from lxml.html import fromstring
    from readability import Document

    logging.disable()
    try:
        html = Document(etree.tostring(root, encoding="unicode", method="html")).summary(html_partial=True)
        return html, " ".join(fromstring(html).text_content().split())
    except Exception:  # noqa: BLE001 - a guess at the best part; without one the page is shown whole
        return None


def to_markdown(html: str, words: str) -> str:
    """Convert a page to Markdown; to plain `words` if it is nested too deeply."""
    from markdownify import markdownify

    try:
        text = markdownify(html, heading_style="ATX", bullets="-", bs4_options="lxml")
    except RecursionError:
        text = words
    return re.sub(r"[ \t]+\n", "\n", re.sub(r"\n{3,}", "\n\n", str(text))).strip()
