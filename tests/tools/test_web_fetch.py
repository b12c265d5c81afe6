"""`web_fetch`: where it may go and where not, however the address is written or reached; and what it makes of a page."""

import asyncio
import gzip
import ipaddress
import json
import ssl
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.bench import CALL, text_of
from tests.tools.hostile import Behaviour, Web, Write, certified, redirect, response, web
from tools.config import FetchConfig
from tools.sandbox.confine import landlock_version
from tools.tool import ToolError, ToolResult
from tools.web import page
from tools.web.client import WebClient, is_public
from tools.web.fetch import Fetcher, WebFetch


def words(text: str) -> list[str]:
    return text.split()


NOT_PUBLIC = words("""
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254 172.16.0.1 172.31.255.255
192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.51.100.7 203.0.113.7 224.0.0.1 239.255.255.255
240.0.0.1 255.255.255.255 168.63.129.16
:: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1
64:ff9b::a9fe:a9fe 64:ff9b:1::7f00:1 64:ff9b:1:7f00:0:100:: 2002:7f00:1:: 2002:a00:1:: 2002:c0a8:101::1 2001:0:7f00:1::
2001:0:808:808:0:0:80ff:fffe 2001:db8::1 3fff::1 100::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1
ff02::1 2606:4700::5efe:127.0.0.1 2606:4700::200:5efe:a00:1 2001:2::1 2001:10::1
""")
PUBLIC = words("1.1.1.1 8.8.8.8 93.184.216.34 2606:4700:4700::1111 2a00:1450:4001:81b::200e 2002:808:808::1")
NOT_FETCHED = words(r"""
ftp://site.test/ file:///etc/passwd gopher://site.test/ data:text/html,x javascript:1 //site.test/ site.test
http:site.test http:///x http://?x http://#x http://@site.test/ http://a@site.test/ http://a:b@site.test/
http://site.test:22/ http://site.test:0/ http://site.test:6379/ http://site.test:99999/ http://site.test:80:80/
http://[::1%25eth0]/ http://[::1 http://[fe80::1%eth0]/ http://%31%32%37.0.0.1/ http://a%00b/ http://0177.0.0.1/
http://１２７.0.0.1/ http://①②⑦.0.0.1/ http://site.test\@other.test/ http:\\site.test/ https:/\site.test/
""")
LOCAL = words("""
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.1 017700000001 127。0。0。1 localhost localhost. LOCALHOST 0 0.0.0.0
[::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:0:0:1] [::127.0.0.1] [64:ff9b::7f00:1] 192.168.1 10.1
""")
BLANKS = ["http://site.test/\n", "http://site .test/", "http://site.test/\x00", "http://site.test/" + "x" * 2048]
ONE_BAD = [
    ["127.0.0.1"],
    ["10.0.0.9", "93.184.216.34"],
    ["93.184.216.34", "::ffff:10.0.0.9"],
    ["fd00:ec2::254"],
]


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    async with web({"/": response()}) as site:
        yield site


async def fetch(fetcher: Fetcher, url: str, **arguments: Any) -> ToolResult:
    tool = WebFetch(fetcher, 16_000)
    return await tool.run(tool.parse({"url": url, **arguments}), CALL)


async def read(fetcher: Fetcher, url: str, **arguments: Any) -> str:
    result = await fetch(fetcher, url, **arguments)
    assert result.external
    return text_of(result)


async def refused(fetcher: Fetcher, url: str) -> str:
    """The code and the sentence; nothing in it is an address."""
    with pytest.raises(ToolError) as caught:
        await fetch(fetcher, url)
    message = caught.value.message
    assert not any(address in message for address in ("127.0.0.1", "10.0.0.", "169.254", "::1"))
    return f"{caught.value.code}: {message}"


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_what_is_not_everybodys_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_everybodys_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


_PREFIXES = (0, 0xFFFF << 32, 0xFFFF << 48, 0x64FF9B << 96)


@given(st.integers(0, 2**32 - 1))
def test_no_address_is_made_public_by_wrapping_it(number: int) -> None:
    inner = ipaddress.IPv4Address(number)
    wrapped = [ipaddress.IPv6Address(prefix + number) for prefix in _PREFIXES]
    wrapped += [ipaddress.IPv6Address((0x2002 << 112) + (number << 80))]
    wrapped += [ipaddress.IPv6Address((0x20010000 << 96) + (number ^ 0xFFFFFFFF))]
    assert is_public(inner) or not any(map(is_public, wrapped))


@pytest.mark.parametrize("url", [*NOT_FETCHED, *BLANKS])
async def test_web_fetch_refuses_a_bad_url_before_dns(site: Web, url: str) -> None:
    fetcher = site.fetcher()
    with pytest.raises(ToolError, match="nothing was fetched") as caught:
        await fetcher.client.get(url, wanted=lambda _: True)
    assert caught.value.code == "FETCH_BLOCKED"
    assert (site.lookups, site.requests) == ([], [])


@pytest.mark.parametrize("host", LOCAL)
async def test_however_this_machine_is_written_it_is_not_connected_to(site: Web, host: str) -> None:
    """With the machine's own name server, which knows all the forms."""
    fetcher = Fetcher(FetchConfig.model_validate({"ports": [site.port]}))
    assert (await refused(fetcher, f"http://{host}:{site.port}/")).startswith("FETCH_BLOCKED")
    assert site.requests == []


@pytest.mark.parametrize("answer", ONE_BAD)
async def test_one_bad_address_blocks_a_host(site: Web, answer: list[str]) -> None:
    site.names["evil.test"] = [answer]
    rule = (
        "FETCH_BLOCKED: the host has an address that is not public (tools.web.fetch.allowPrivate); nothing was fetched"
    )
    assert await refused(site.fetcher(), site.url(host="evil.test")) == rule
    assert site.requests == []


async def test_a_host_that_answers_otherwise_the_second_time_is_not_asked_twice(site: Web) -> None:
    site.names["site.test"] = [["127.0.0.1"], ["10.0.0.1"]]
    fetcher = site.fetcher(allowPrivate=["127.0.0.0/8"])
    assert await read(fetcher, site.url()) == "hello"
    assert site.lookups == ["site.test"]  # what was judged is what was connected to
    assert "FETCH_BLOCKED" in await refused(fetcher, site.url())
    assert len(site.requests) == 1


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://127.0.0.1/", "FETCH_BLOCKED"),
        ("http://169.254.169.254/latest/meta-data/", "FETCH_BLOCKED"),
        ("//evil.test/", "FETCH_BLOCKED"),
        ("http://user:pass@site.test/", "FETCH_BLOCKED"),
        ("file:///etc/passwd", "FETCH_BLOCKED"),
        ("http://site.test:6379/", "FETCH_BLOCKED"),
        ("http://site.test\\@evil.test/", "FETCH_BLOCKED"),
        ("/loop", "FETCH_FAILED"),
        ("http://site.test/ http://evil.test/", "FETCH_BLOCKED"),
        ("x" * 2100, "FETCH_BLOCKED"),
        ("ftp://site.test/", "FETCH_BLOCKED"),
    ],
)
async def test_a_redirect_is_judged_like_the_first_address(site: Web, location: str, code: str) -> None:
    site.names |= {"evil.test": [["10.0.0.1"]], "127.0.0.1": [["127.0.0.1"]], "169.254.169.254": [["169.254.169.254"]]}
    site.pages |= {"/go": redirect(location), "/loop": redirect("/loop")}
    assert (await refused(site.fetcher(), site.url("/go"))).startswith(code)


async def test_web_fetch_redirects_are_limited_and_carry_no_headers(site: Web) -> None:
    site.pages |= {f"/{n}": redirect(f"/{n - 1}") for n in range(1, 6)} | {"/0": response(b"there")}
    assert await read(site.fetcher(), site.url("/3#part")) == "there"
    assert "redirects more than 3 times" in await refused(site.fetcher(), site.url("/4"))
    assert all({"cookie", "authorization", "referer"}.isdisjoint(it.lower().split()) for it in site.requests)
    host = f"Host: site.test:{site.port}\r\n"
    assert all(host in request and "Accept-Encoding: gzip, identity" in request for request in site.requests)


@pytest.fixture
async def encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Web]:
    """With a certificate for site.test, which is trusted here alone."""
    certificate = certified(tmp_path, "site.test")
    trusting = ssl.create_default_context(cafile=str(certificate))
    monkeypatch.setattr("tools.web.client._certificates", lambda: trusting)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with web({"/": response(b"encrypted"), "/down": redirect("http://site.test/")}, context) as site:
        yield site


async def test_web_fetch_checks_the_certificate_by_host_name(encrypted: Web) -> None:
    fetcher = encrypted.fetcher(allowPrivate=["127.0.0.0/8"])
    url = f"https://site.test:{encrypted.port}"
    assert await read(fetcher, f"{url}/") == "encrypted"
    assert "it redirects from https to http" in await refused(fetcher, f"{url}/down")
    for other in ("other.test", "127.0.0.1"):
        sentence = await refused(fetcher, f"https://{other}:{encrypted.port}/")
        assert sentence == "FETCH_FAILED: the server cannot be reached"


async def test_the_environments_proxy_sees_nothing(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await read(site.fetcher(), site.url()) == "hello"


@pytest.mark.parametrize(
    ("allowed", "works"),
    [
        ("site.test", True),
        ("SITE.test.", True),
        ("site.test:PORT", True),
        ("site.test:1", False),
        ("127.0.0.0/8", True),
        ("127.0.0.1", True),
        ("10.0.0.0/8", False),
        ("other.test", False),
        ("test", False),
    ],
)
async def test_the_operator_can_let_a_private_host_be_fetched(site: Web, allowed: str, works: bool) -> None:
    fetcher = site.fetcher(allowPrivate=[allowed.replace("PORT", str(site.port))])
    if works:
        assert await read(fetcher, site.url()) == "hello"
    else:
        assert "FETCH_BLOCKED" in await refused(fetcher, site.url())


async def test_a_host_with_a_port_of_its_own_needs_no_other_port_opened(site: Web) -> None:
    fetcher = site.fetcher(allowPrivate=[f"site.test:{site.port}"], ports=[80])
    assert await read(fetcher, site.url()) == "hello"
    assert "port" in await refused(fetcher, f"http://other.test:{site.port}/")


async def _drips(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await write(b"x")
        await asyncio.sleep(0.02)


async def _drips_headers(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\n")
    for number in range(10_000):
        await write(f"X-{number}: y\r\n".encode())
        await asyncio.sleep(0.02)


async def _continues(write: Write) -> None:
    while True:
        await write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asyncio.sleep(0)


async def _breaks_off(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nonly so much")


BOMB = gzip.compress(bytes(64 * 1024 * 1024))


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (_drips, "FETCH_TIMEOUT"),
        (_drips_headers, "FETCH_TIMEOUT"),
        (_continues, "FETCH_TIMEOUT"),
        (_breaks_off, "FETCH_FAILED"),
        (b"", "FETCH_FAILED"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "FETCH_FAILED"),
        (response(X=("x" * 200_000)), "FETCH_FAILED"),
        (response(b"x" * 70_000), "FETCH_TOO_LARGE"),
        (response(BOMB, Content_Encoding="gzip"), "FETCH_TOO_LARGE"),
        (response(gzip.compress(b"a" * 70_000), Content_Encoding="gzip"), "FETCH_TOO_LARGE"),
        (response(gzip.compress(BOMB[:9_000]), Content_Encoding="gzip, gzip"), "FETCH_FAILED"),
        (response(gzip.compress(b"abc")[:-9], Content_Encoding="gzip"), "FETCH_FAILED"),
        (response(gzip.compress(b"abc") + b"rest", Content_Encoding="gzip"), "FETCH_FAILED"),
        (response(gzip.compress(b"abc") + gzip.compress(b"def")[:-9], Content_Encoding="gzip"), "FETCH_FAILED"),
        (response(gzip.compress(b"a") * 1_001, Content_Encoding="gzip"), "FETCH_FAILED"),
        (response(gzip.compress(b"a") + BOMB, Content_Encoding="gzip"), "FETCH_TOO_LARGE"),
        (response(gzip.compress(b"a" * 33_000) * 2, Content_Encoding="gzip"), "FETCH_TOO_LARGE"),
        (response(b"no gzip", Content_Encoding="gzip"), "FETCH_FAILED"),
        (response(zlib.compress(b"abc"), Content_Encoding="deflate"), "FETCH_FAILED"),
        (response(b"abc", Content_Encoding="br"), "FETCH_FAILED"),
        (response(b"abc", Content_Encoding="zstd"), "FETCH_FAILED"),
    ],
)
async def test_a_server_that_misbehaves_is_left_in_time(site: Web, behaviour: Behaviour, code: str) -> None:
    site.pages["/"] = behaviour
    fetcher = site.fetcher(totalSeconds=1.0, maxBytes=65_536)
    tracemalloc.start()
    try:
        async with asyncio.timeout(20):  # far more than a second, and less than it takes where nothing ends it
            assert (await refused(fetcher, site.url())).startswith(code)
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
    finally:
        tracemalloc.stop()


async def test_a_name_server_that_never_answers_and_a_host_that_is_nowhere(site: Web) -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    config = FetchConfig.model_validate({"totalSeconds": 0.2})
    assert (await refused(Fetcher(config, never), "http://site.test/")).startswith("FETCH_TIMEOUT")
    site.names["site.test"] = [[]]
    assert await refused(site.fetcher(), site.url()) == "FETCH_FAILED: the host is unknown"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (response(b"caf\xe9", type_="text/plain; charset=latin-1"), "café"),
        (response("中文".encode("gbk"), type_="text/plain;charset=GBK"), "中文"),
        (response(b'<meta charset="gb2312"><p>' + "中文".encode("gbk"), type_="text/html"), "中文"),
        (response("\ufeffdé".encode("utf-16"), type_="text/plain"), "\ufeffdé"),
        (response(b"a\xff", type_="text/plain; charset=zip"), "a\ufffd"),
        (response(b"+ADw-", type_="text/plain; charset=utf-7"), "+ADw-"),
        (response(gzip.compress(b"packed"), Content_Encoding="gzip"), "packed"),
        (response(gzip.compress(b"in ") + gzip.compress(b"two"), Content_Encoding="gzip"), "in two"),
        (response(gzip.compress(b"") * 3 + gzip.compress(b"x" * 7_000) * 2, Content_Encoding="gzip"), "x" * 14_000),
        (response(b'{"a": [1]}', type_="application/vnd.api+json"), '{"a": [1]}'),
        (response(b"gone", status="404 Not Found"), "HTTP 404\n\ngone"),
        (response(b"", type_="text/plain"), "(nothing to read)"),
        (response(b"\x89PNG", type_="image/png"), "[image/png, 4 bytes: only text can be read]"),
        (response(b"PK", type_="application/zip"), "[application/zip, 2 bytes: only text can be read]"),
        (response(b"x", type_=""), "[no declared type, 1 bytes: only text can be read]"),
    ],
)
async def test_text_is_shown_as_it_is_and_of_the_rest_what_it_is(site: Web, answer: bytes, text: str) -> None:
    site.pages["/"] = answer
    assert await read(site.fetcher(), site.url()) == text


PAGE = b"""<!doctype html><html><head><title>The &amp; title</title><base href="http://evil.test/">
<meta http-equiv=refresh content=0><style>p{}</style></head><body><h1 onclick="x()">Head</h1>
<p>Some <b>bold</b> text, <a href="b?x=1" onclick="y()">a link</a>, <a href="javascript:alert(1)">no link</a>,
<a href="data:text/html,x">none either</a>.</p><script>evil()</script><noscript>no</noscript>
<div style="display: none">hidden one</div><div hidden>hidden two</div><p aria-hidden="true">hidden three</p>
<!-- hidden four --><span style="font-size:0px">hidden five</span><img src="http://tracker.test/x.png" alt="A picture">
<iframe src="x">in</iframe><ul><li>one</li><li>two</li></ul><pre>x = 1\ny</pre><table><tr><th>a</th></tr><tr><td>1</td></tr>
</table></body></html>"""


async def test_a_page_is_readable_markdown_without_what_runs_hides_or_embeds(site: Web) -> None:
    site.pages["/docs/a"] = response(PAGE, type_="text/html; charset=utf-8")
    text = await read(site.fetcher(), site.url("/docs/a"))
    assert text.startswith("# The & title\n\n# Head\n\nSome **bold** text, ")
    assert f"[a link](http://site.test:{site.port}/docs/b?x=1)" in text
    assert "no link,\nnone either" in text
    assert "- one\n- two" in text
    assert "```\nx = 1\ny\n```" in text
    assert "| a |" in text
    assert "A picture" in text
    assert not any(
        it in text for it in ("hidden", "evil", "script", "data:", "onclick", "tracker", "refresh", "](http://evil")
    )


async def test_of_an_article_the_frame_around_it_is_left_out(site: Web) -> None:
    story = "".join(
        f"<p>Paragraph {n} of the story, with commas, words, and text enough to count.</p>" for n in range(20)
    )
    frame = "<html><title>T</title><body><div class=menu><a href=/1>Menu entry</a></div><article>{}</article>"
    site.pages["/"] = response(frame.format(story).encode(), type_="text/html")
    text = await read(site.fetcher(), site.url())
    assert "Paragraph 19" in text
    assert "Menu entry" not in text
    assert "[The main part of the page; " in text


BROKEN = ["<div>" * 50_000 + "deep", "<table><tr>" * 3_000 + "x", "<a " * 20_000, "<p>" + "&#0;" * 9 + "<b>x"]


@pytest.mark.parametrize("page", BROKEN)
async def test_a_page_that_is_made_to_break_its_reader_ends_in_a_result(site: Web, page: str) -> None:
    site.pages["/"] = response(page.encode(), type_="text/html")
    try:
        assert await read(site.fetcher(), site.url())
    except ToolError as error:
        assert error.code == "FETCH_FAILED"  # noqa: PT017 - either is right, a hang or a crash is not


async def test_a_long_text_comes_in_parts_that_join_without_a_seam(site: Web) -> None:
    whole = "".join(f"line {number}\n" for number in range(5_000))
    site.pages["/"] = response(whole.encode())
    text, offset = "", 0
    while True:
        part, _, note = (await read(site.fetcher(), site.url(), offset=offset)).rpartition("\n\n[Characters ")
        text += part
        if "go on with offset=" not in note:
            break
        offset = int(note.rpartition("=")[2].rstrip("]"))
        assert offset == len(text)
    assert text == whole
    assert (await read(site.fetcher(), site.url(), max_chars=6)).startswith("line 0\n\n[Characters 1 to 6 of ")
    with pytest.raises(ToolError, match="beyond the end"):
        await fetch(site.fetcher(), site.url(), offset=10**9)


async def test_a_judged_connection_is_made_to_an_address_and_never_to_a_name(
    site: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpcore

    connected: list[str] = []
    connect = httpcore.AnyIOBackend.connect_tcp

    async def seen(self: httpcore.AnyIOBackend, host: str, *args: Any, **options: Any) -> Any:
        connected.append(host)
        return await connect(self, host, *args, **options)

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", seen)
    assert await read(site.fetcher(), site.url()) == "hello"
    assert connected == ["127.0.0.1"]


@pytest.mark.parametrize("entry", ["", "a/b", "host:x", ":80", "10.0.0.1/8"])
def test_an_entry_that_is_neither_host_nor_network_is_no_config(entry: str) -> None:
    with pytest.raises(ValueError, match="expected a host, host:port, or a network"):
        FetchConfig.model_validate({"allowPrivate": [entry]})


def test_the_defaults_are_those_of_the_specification() -> None:
    client = WebClient(FetchConfig())
    assert json.loads(client.config.model_dump_json(by_alias=True)) == {
        "allowPrivate": [],
        "ports": [80, 443],
        "maxBytes": 2_097_152,
        "totalSeconds": 20,
        "redirects": 3,
    }


_SPY = """
import os, socket
from tools.web import page
give_up = page.give_up_rights
ways = dict(
    file=lambda: open("/etc/passwd"), environment=lambda: open(f"/proc/{os.getppid()}/environ"),
    socket=socket.socket, signal=lambda: os.kill(os.getppid(), 0), program=lambda: os.execv("/bin/true", ["true"]),
)
def spy():
    give_up()
    for what, way in ways.items():
        try:
            way()
            print("OPEN", what, flush=True)
        except OSError:
            print("closed", os.getuid() != 0, flush=True)
page.give_up_rights = spy
page.main(["http://a.test/"])
"""


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_what_reads_a_page_has_no_file_no_socket_and_no_other_process() -> None:
    script = f"import sys; sys.path.append({str(Path(page.__file__).parents[2])!r})\n{_SPY}"
    run = subprocess.run([sys.executable, "-I", "-c", script], input=b"<p>x", env={}, capture_output=True, check=True)
    *lines, answer = run.stdout.decode().splitlines()
    assert lines == ["closed True"] * 5
    assert json.loads(answer)["markdown"] == "x"
