"""The config that `init` is making, before it is written: its text, what is given for its variables, and the trying of both.

It is tried as the config that it will be: read by the same reader, and asked by doctor's probes.
"""

import asyncio
import json
import re
import socket
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agents.messages import ModelError
from agents.providers import doctor
from channels.bilingual import Bilingual, Finding
from gateway.config.channels import configured
from gateway.config.expand import required, stand_in
from gateway.config.exposure import exposure
from gateway.config.load import Loaded, load
from gateway.config.problems import ConfigErrors

TRY_SECONDS = 10.0
USUAL_PORT = 8080
PORTS_TRIED = 100
_PORT = f"${{CLAWGATE_PORT:-{USUAL_PORT}}}"
_SERVER = re.compile(r"^server:", re.MULTILINE)
_MODEL = re.compile(r"""(["']?)\$\{CLAWGATE_MODEL:-auto\}\1""")


def other_port(text: str, env: Mapping[str, str]) -> int:
    """Return the next free port if the usual one is taken at this machine and nobody has asked for one; else 0."""
    if env.get("CLAWGATE_PORT") or (_PORT not in text and _SERVER.search(text)):
        return 0
    free = next(filter(_is_free, range(USUAL_PORT, USUAL_PORT + PORTS_TRIED)), USUAL_PORT)
    return 0 if free == USUAL_PORT else free


def with_port(text: str, port: int) -> str:
    """Return the config with another port in place of the usual one, which it names or leaves to the default."""
    if _PORT in text:
        return text.replace(_PORT, f"${{CLAWGATE_PORT:-{port}}}", 1)
    return re.sub(r"(?m)^(?=[a-z])", f"server:\n  port: {port}\n\n", text, count=1)


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@dataclass
class ConfigDraft:
    """`there` is what is set already; `given` what a person has given for variables."""

    base: str
    there: Mapping[str, str]
    given: dict[str, str] = field(default_factory=dict)
    model: str = ""
    agent: str = ""
    provider: str = ""
    """A line of `providers:`."""
    port: int = 0
    """The port in place of the usual one; 0 if that is free."""

    @property
    def text(self) -> str:
        text = self.base
        if self.model:
            text = _MODEL.sub(lambda _: json.dumps(self.model, ensure_ascii=False), text)
        if self.agent:
            text = text.replace("- id: assistant", f"- id: {json.dumps(self.agent)}", 1)
        if self.provider and "\nproviders:\n" in text:
            text = text.replace("\nproviders:\n", f"\nproviders:\n  {self.provider}\n", 1)
        elif self.provider:
            text = re.sub(r"(?m)^(?=[a-z])", lambda _: f"providers:\n  {self.provider}\n\n", text, count=1)
        return with_port(text, self.port) if self.port else text

    @property
    def leaves_model(self) -> bool:
        """True if a person may choose the model."""
        return bool(_MODEL.search(self.base))

    @property
    def variables(self) -> list[str]:
        """The variables that the config cannot do without, in its order."""
        return required(self.base)

    @property
    def missing(self) -> list[str]:
        return [name for name in self.variables if not self.value(name)]

    def value(self, name: str) -> str:
        return self.given.get(name) or self.there.get(name) or ""

    def load(self) -> Loaded:
        """The config as it would be, with stand-ins for what is missing. Raises ConfigErrors."""
        stand_ins = {name: stand_in(name) for name in self.missing}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "config.yaml"
            file.write_text(self.text, encoding="utf-8")
            return load(file, {**self.there, **stand_ins, **self.given})

    def mistake(self, names: Iterable[str]) -> str:
        """The sentence of `check` about the values of these variables; empty without any."""
        try:
            self.load()
        except ConfigErrors as errors:
            return next((f"{it.path} {it.message}" for it in errors.problems if {*names} & {*it.names}), "")
        return ""

    def try_model(self, reference: str, key: str) -> ModelError | list[str]:
        """The models that the provider of `reference` lists to this key. Raises ConfigErrors."""
        name = reference.partition("/")[0]
        before, self.model = self.model, reference
        try:
            provider = self.load().config.provider(name)
        finally:
            self.model = before
        return asyncio.run(doctor.listed(name, provider, key, seconds=TRY_SECONDS))

    def try_channel(self, kind: str) -> Sequence[Finding]:
        """The findings of doctor about the channel's accounts, the credentials first. Raises ConfigErrors."""
        config = self.load().config
        accounts = [it for it in configured(config.channels) if it.kind.name == kind]

        async def probed() -> list[Finding]:
            findings: list[Finding] = []
            for it in accounts:
                if it.kind.probe:
                    async with asyncio.timeout(2 * TRY_SECONDS):
                        findings += await it.kind.probe(it.config, it.name, exposure(config), time.time())
            return findings

        try:
            return asyncio.run(probed())
        except TimeoutError:
            seconds = f"{2 * TRY_SECONDS:.0f}"
            message = Bilingual(f"no answer within {seconds} s", f"{seconds} 秒内没有应答")
            return [Finding(kind, "error", message)]
