"""A web server that does what it likes, byte by byte, on loopback; and a name server that is one dict."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tools.config import FetchConfig
from tools.web.fetch import Fetcher

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
Behaviour: TypeAlias = bytes | Callable[[Write], Awaitable[None]]
"""What it answers with: the bytes of a response, or somebody who writes them."""


def response(body: bytes = b"hello", *, status: str = "200 OK", type_: str = "text/plain", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {type_}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode() + body


def redirect(location: str) -> bytes:
    return response(b"", status="302 Found", Location=location)


@dataclass
class Web:
    """`pages` by path; `requests` as they arrived. `names` is what the name server says: one answer a lookup, the last one
    for ever. 127.0.0.1 is the server's."""

    port: int = 0
    pages: dict[str, Behaviour] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    names: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    lookups: list[str] = field(default_factory=list)

    def url(self, path: str = "/", host: str = "site.test") -> str:
        return f"http://{host}:{self.port}{path}"

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append(host)
        answers = self.names.get(host, [["127.0.0.1"]])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def fetcher(self, **more: object) -> Fetcher:
        """Of an operator who lets `site.test` be where it is."""
        config = {"allowPrivate": ["site.test"], "ports": [self.port, 80, 443], **more}
        return Fetcher(FetchConfig.model_validate(config), self.resolve)


@asynccontextmanager
async def web(pages: Mapping[str, Behaviour], encrypted: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    served = Web(pages=dict(pages))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            served.requests.append(head)
            behaviour = served.pages[head.split()[1]]
            await (write(behaviour) if isinstance(behaviour, bytes) else behaviour(write))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=encrypted)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()


def certified(folder: Path, host: str) -> Path:
    """A file with a key and a certificate for this host, signed by itself."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    file = folder / "certificate.pem"
    file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + certificate.public_bytes(pem))
    return file
