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
        told = {name: value or "" for name, value in attrs}
        if len(told) < len(attrs) or not self._fits(tag, told):
            self.wrong.append(f"<{tag} {attrs}>")
        if tag not in VOID:
            self._open.append(tag)

    def _fits(self, tag: str, told: dict[str, str]) -> bool:
        match tag:
            case "a":
                self.links.append(told.get("href", ""))
                return SAFE_LINK.match(told.pop("href", "")) is not None and told == LINK
            case "code":
                return not told or (re.fullmatch(r"language-\S+", told.pop("class", "")) is not None and not told)
            case "ol":
                return told.pop("start", "0").isdecimal() and not told
            case "th" | "td":
                return told.pop("class", "left") in ("left", "center", "right") and not told
            case _:
                return tag in PLAIN and not told

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
