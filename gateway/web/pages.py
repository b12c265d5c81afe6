"""The files of the web chat's pages as a browser gets them: read once, so that a page is never of two versions.

A page is there after two round trips. Its scripts are one file: the module that the page names, behind all that it imports.
So are its style sheets. The page names each file with its tag, so that a browser that has it does not ask again. A signed-in
browser finds the list of chats asked for in the page's head, while the scripts are still on their way. There is
no build: the folder holds what people write, and a browser could load it as it is.
"""

import gzip
import mimetypes
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from hashlib import sha256
from pathlib import Path

from fastapi import Request, Response

PAGE = Path(__file__).resolve().parents[2] / "channels" / "web" / "page"
START = "index.html"
START_SIGNED_IN = "index.html with the list"
"""The name of the start page that asks for the list; no file has it."""
EARLY_LIST = '<link rel="preload" href="api/chats" as="fetch" crossorigin>'
TYPES = {".webmanifest": "application/manifest+json", ".woff2": "font/woff2"}
"""Types that not every system's table has."""
COMPRESSED = frozenset({".css", ".html", ".js", ".svg"})
FOREVER = "public, max-age=31536000, immutable"

_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_ENTRY = re.compile(r'<script type="module" src="web/([^"]+)"')
_STYLE = re.compile(r'<link rel="stylesheet" href="web/([^"]+)">')
_STYLES = re.compile(rf"(?: *{_STYLE.pattern.replace('(', '(?:')}\n)+")
_NAMED = re.compile(r'(?<=(?:href|.src)=")web/([^"?]+)(?=")')


@dataclass(frozen=True)
class PageFile:
    name: str
    data: bytes

    @cached_property
    def tag(self) -> str:
        return sha256(self.data).hexdigest()[:16]

    @cached_property
    def gzipped(self) -> bytes:
        return gzip.compress(self.data, mtime=0)

    @property
    def type(self) -> str | None:
        suffix = Path(self.name).suffix
        return TYPES.get(suffix) or mimetypes.guess_type(self.name)[0]


class PageFiles:
    def __init__(self, folder: Path = PAGE) -> None:
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        html = {name: data.decode() for name, data in files.items() if name.endswith(".html")}
        modules = {name: data.decode() for name, data in files.items() if name.endswith(".js")}
        for entry in {found for it in html.values() for found in _ENTRY.findall(it)}:
            files[entry] = bundled(modules, entry).encode()
        self._files = {name: PageFile(name, data) for name, data in files.items()}
        for name, text in html.items():
            named = _STYLES.sub(partial(self._joined, f"{Path(name).stem}-all.css"), text)
            self._files[name] = PageFile(name, _NAMED.sub(self._tagged, named).encode())
        head, rest = self._files[START].data.split(b"<title>", 1)
        early = head + EARLY_LIST.encode() + b"\n  <title>" + rest
        self._signed_in = PageFile(START, early)

    def _joined(self, name: str, match: re.Match[str]) -> str:
        """The link to one style sheet, for the links to those that it joins."""
        self._files[name] = PageFile(name, b"".join(self._files[it].data for it in _STYLE.findall(match[0])))
        return f'  <link rel="stylesheet" href="web/{name}">\n'

    def _tagged(self, match: re.Match[str]) -> str:
        return f"{match[0]}?v={self._files[match[1]].tag}"

    def answer(self, request: Request, name: str) -> Response | None:
        """None if there is no such file."""
        file = self._signed_in if name == START_SIGNED_IN else self._files.get(name)
        if file is None:
            return None
        small = "gzip" in request.headers.get("accept-encoding", "") and Path(file.name).suffix in COMPRESSED
        tag = f'"{file.tag}{"-gzip" if small else ""}"'
        known = request.query_params.get("v") == file.tag
        headers = {"etag": tag, "cache-control": FOREVER if known else "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        if small:
            headers["content-encoding"] = "gzip"
        return Response(file.gzipped if small else file.data, headers=headers, media_type=file.type)


@cache
def page_files() -> PageFiles:
    """The files, read once a process: an edit of the config mixes no newer page with an older server."""
    return PageFiles()


def bundled(modules: Mapping[str, str], entry: str) -> str:
    """The module `entry` behind all that it imports, as one module: each has its own scope, and what it exports is an
    object. It knows the form of import and export that the page's modules have, and no other."""
    parts: dict[str, str] = {}
    _add(modules, entry, parts)
    return "".join(parts.values())


def _add(modules: Mapping[str, str], name: str, parts: dict[str, str]) -> str:
    """Adds a module behind those that it imports. Returns the name of the object that holds its exports."""
    own = "$" + re.sub(r"\W", "_", name)
    if name in parts:
        return own

    def imported(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[2]))
        return f"const {{{match[1].replace(' as ', ': ')}}} = {_add(modules, path, parts)};\n"

    text = _IMPORT.sub(imported, modules[name])
    exports = ", ".join(_EXPORT.findall(text))
    parts[name] = f"// {name}\nconst {own} = (() => {{\n{_EXPORT.sub('', text)}\nreturn {{ {exports} }};\n}})();\n"
    return own
