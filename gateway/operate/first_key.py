"""Set the first API key from the operator's page: try it, write it to `.env`, and wait until it is in force.

This is available while the first agent uses the demo or lacks a key, if a change of `.env` reloads the config.
Keys are never logged or echoed.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from agents.messages import ModelError
from agents.providers import doctor
from agents.providers.config import WELL_KNOWN, api_of, well_known
from agents.providers.vendors import WellKnown
from channels.web.admission import OPERATOR
from gateway.config.load import DOTENV, SECRET, ConfigFile, append, load
from gateway.config.problems import ConfigErrors
from gateway.config.root import Config
from gateway.http.request import Unserved
from gateway.state.runtime import Runtime
from gateway.store.sessions import LOCAL_PERSON

TRY_SECONDS = 10.0
IN_FORCE_SECONDS = 10.0
LOOK_SECONDS = 0.05

_REFUSED = {
    "auth": (422, "key-refused", "The vendor refuses this key."),
    "billing": (422, "key-unfunded", "The vendor says that this account has no money or no quota left."),
    "network": (422, "vendor-unreachable", "The vendor cannot be reached from this machine, so the key was not kept."),
}
_BUSY = 422, "vendor-busy", "The vendor is too busy to try the key, so it was not kept. Try again in a minute."
_NOT_WANTED = 409, "key-not-wanted", "No key of this vendor is wanted here."
_NOT_A_KEY = 422, "key-malformed", "That is no key: it has blanks, quotes or letters that no key has, or is too long."
_BROKEN = 409, "config-broken", "The config file has a mistake. Mend it first: the log and `check` say where."
_UNUSED = 409, "key-unused", "No agent would use this key: the config names another model. Write `model: auto`."
_LATE = 409, "key-waits", "The key is written into .env, but is not in force yet. The log says why."

log = structlog.get_logger()


@dataclass(eq=False)
class FirstKey:
    runtime: Runtime
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    def vendors_for(self, person: str) -> Sequence[WellKnown]:
        """Return the vendors for which this user may set a key; none if there is a key, or the user is not an owner."""
        setup = self.runtime.setup
        is_owner = person == OPERATOR and (not setup.owners or LOCAL_PERSON in setup.owners)
        return _wanted(setup.config) if is_owner and self.runtime.config_file else ()

    async def store_key(self, person: str, name: str, key: str) -> str:
        """Store a key, and return the model that answers with it. Raise Unserved."""
        async with self._busy:
            origin = self.runtime.config_file
            vendor = next((it for it in self.vendors_for(person) if it.names[0] == name), None)
            if vendor is None or origin is None:
                raise Unserved(*_NOT_WANTED)
            if not SECRET.fullmatch(key):
                raise Unserved(*_NOT_A_KEY)
            variable = vendor.variables[0]
            model = await self._tried(origin, variable, key)
            try:
                await asyncio.to_thread(append, origin.path.parent.resolve() / DOTENV, {variable: key})
            except OSError as error:
                sentence = (
                    f"The file .env beside the config cannot be written: {error.strerror}. Set {variable} yourself."
                )
                raise Unserved(409, "key-unwritten", sentence) from None
            await self._in_force(model, key)
            log.info("first_key_taken", variable=variable, model=model)
            return model

    async def _tried(self, origin: ConfigFile, variable: str, key: str) -> str:
        """Return the first agent's model. Raise Unserved if the config would not use the key, or the vendor rejects it."""
        try:
            loaded = await asyncio.to_thread(load, origin.path, {**origin.environment, variable: key})
        except (ConfigErrors, OSError):
            raise Unserved(*_BROKEN) from None
        model = loaded.config.agents.list[0].model[0]
        name = model.partition("/")[0]
        provider = loaded.config.provider(name)
        if key not in provider.keys:
            raise Unserved(*_UNUSED)
        answer = await doctor.listed(name, provider, key, seconds=TRY_SECONDS)
        if isinstance(answer, ModelError) and (answer.kind in _REFUSED or answer.retryable):
            raise Unserved(*_REFUSED.get(answer.kind, _BUSY))
        return model  # a server that has no such list does not say that a key is wrong

    async def _in_force(self, model: str, key: str) -> None:
        """Wait until the reloaded config has the key. Raise Unserved after a timeout."""
        try:
            async with asyncio.timeout(IN_FORCE_SECONDS):
                while not _has(self.runtime.setup.config, model, key):  # noqa: ASYNC110 - the reload tells nobody
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise Unserved(*_LATE) from None


def _wanted(config: Config) -> Sequence[WellKnown]:
    if config.agents.list[0].runner.acp:
        return []
    name = config.agents.list[0].model[0].partition("/")[0]
    provider = config.provider(name)
    if api_of(name, provider) == "demo":
        return [it for it in WELL_KNOWN if it.default_model]
    vendor = well_known(name)
    return [vendor] if vendor and not provider.keys else []


def _has(config: Config, model: str, key: str) -> bool:
    return config.agents.list[0].model[0] == model and key in config.provider(model.partition("/")[0]).keys
