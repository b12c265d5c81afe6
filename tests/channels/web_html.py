"""What a page may be shown, read back by a parser: the tags of the web chat's answers and nothing else."""

import re
from html.parser import HTMLParser

VOID = {"br", "hr"}
PLAIN = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "li", "blockquote", "pre", "table", "thead", "tbody", "tr"}
PLAIN |= {"strong", "em", "s", "del"} | VOID
LINK = {"target": "_blank", "rel": "noopener noreferrer nofollow"}
SAFE_LINK = re.compile(r"(https?://|mailto:|#)", re.IGNORECASE)


class Shown(HTMLParser):
    """`wrong` is what must not be there; `words` the text between the tags."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.words = ""
        self.links: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.wrong += [f"<{tag}> stays open" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if len(attributes) < len(attrs) or not self._fits(tag, attributes):
            self.wrong.append(f"<{tag} {attrs}>")
        if tag not in VOID:
            self._open.append(tag)

    def _fits(self, tag: str, attributes: dict[str, str]) -> bool:
        match tag:
            case "a":
                self.links.append(attributes.get("href", ""))
                return SAFE_LINK.match(attributes.pop("href", "")) is not None and attributes == LINK
            case "code":
                return not attributes or (
                    re.fullmatch(r"language-\S+", attributes.pop("class", "")) is not None and not attributes
                )
            case "ol":
                return attributes.pop("start", "0").isdecimal() and not attributes
            case "th" | "td":
                return attributes.pop("class", "left") in ("left", "center", "right") and not attributes
            case _:
                return tag in PLAIN and not attributes

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.wrong.append(f"<{tag}/>")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.words += data

    def handle_comment(self, data: str) -> None:
        self.wrong.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self.wrong.append(f"<!{decl}>")

    def handle_pi(self, data: str) -> None:
        self.wrong.append(f"<?{data}>")

    def unknown_decl(self, data: str) -> None:
        self.wrong.append(f"<![{data}]>")
