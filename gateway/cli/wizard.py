"""The questions of `init`: each is asked again until its answer can be used, and each secret is tried on the spot.

A person may always go on: with Enter for later, or by keeping what could not be tried. What `check` would refuse is
never kept.
"""

import re
import secrets
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agents.config import AgentId
from agents.language import Language
from agents.messages import ModelError
from agents.providers.config import WELL_KNOWN, ProviderConfig, well_known
from agents.providers.vendors import VENDORS, WellKnown
from gateway.cli.draft import ConfigDraft
from gateway.cli.options import SECRETS, Platform
from gateway.cli.questions import WORDS
from gateway.config.dotenv import SECRET
from gateway.config.problems import ConfigErrors
from gateway.observe.terminal import print_text, prompt

MODELS_SHOWN = 8
LATER = "auto"
OWN = "own"

_PLATFORMS = {Platform.FEISHU: ("Feishu", "飞书"), Platform.TELEGRAM: ("Telegram", " Telegram")}
_YES, _NO = {"y", "yes", "是", "好"}, {"n", "no", "否", "不"}


class Wizard:
    """Fills a draft with a person's answers. `later` are the variables that they have yet to set."""

    def __init__(self, draft: ConfigDraft, language: Language) -> None:
        self._draft = draft
        self.later: list[str] = []
        self._zh = language == "zh"
        vendors = [it for it in WELL_KNOWN if it.default_model]
        router = VENDORS["openrouter"]
        menu: list[tuple[str, str, WellKnown | None]] = [(it.names[0], it.title, it) for it in vendors]
        menu += [(router.name, self._word("router"), router), ("ollama", self._word("ollama"), None)]
        self._menu = [*menu, (OWN, self._word("own"), None), (LATER, self._word("later"), None)]

    def ask(self, channels: Sequence[Platform], provider: str | None, model: str | None, agent: str) -> None:
        """All that the shipped template leaves open; the arguments are what the command line says already."""
        self._say("hello")
        if model:
            self._draft.model = model
            vendor = well_known(model.partition("/")[0])
            if vendor:
                self._key(vendor, model)
        else:
            self._choose_model(provider)
        for platform in Platform:
            name = _PLATFORMS[platform][self._zh]
            if self.yes(self._word("platform", name), default=platform in channels):
                self._platform(platform, SECRETS[platform])
        self._draft.agent = self._until(
            lambda: self._prompt("agent", default=agent), lambda it: _fits(AgentId, it) or self._wrong("no_agent")
        )

    def fill(self) -> None:
        """All that an example leaves open."""
        self._say("hello")
        if self._draft.leaves_model:
            self._choose_model(None)
        done: set[str] = set()
        for name in self._draft.missing:
            platform = next((it for it in Platform if name.startswith(f"{it.upper()}_")), None)
            vendor = next((it for it in WELL_KNOWN if name in it.variables), None)
            if name in done:
                continue
            if platform:
                names = [it for it in self._draft.missing if it.startswith(f"{platform.upper()}_")]
                done |= {*names}
                self._platform(platform, names)
            elif vendor:
                self._key(vendor, vendor.model_of(vendor.names[0]))
            else:
                self._other(name)

    def yes(self, question: str, *, default: bool) -> bool:
        options = "[Y/n]" if default else "[y/N]"
        while True:
            word = prompt(f"{question} {options}").lower()
            if word in _YES | _NO:
                return word in _YES
            if not word:
                return default
            self._say("yes_or_no")

    def start(self) -> bool:
        return self.yes(self._word("start"), default=True)

    def _choose_model(self, provider: str | None) -> None:
        name = provider or self._choice()
        vendor = well_known(name)
        if name == "ollama":
            self._server("ollama", "http://127.0.0.1:11434/v1", "qwen3:8b")
        elif name == OWN:
            self._server(OWN, "", "")
        elif vendor and vendor.default_model:
            self._key(vendor, vendor.model_of(name))
            self._draft.model = vendor.model_of(name)
        elif vendor:
            models = self._key(vendor, f"{name}/auto")
            self._draft.model = f"{name}/{self._name_of_model(models, 'anthropic/claude-sonnet-4.6')}"

    def _choice(self) -> str:
        self._say("whose")
        for number, (name, title, _) in enumerate(self._menu, start=1):
            print_text(f"  {number:>2}  {title or name}", err=True)
        there = (name for name, _, it in self._menu if it and any(map(self._draft.there.get, it.variables)))
        default = next(there, LATER)
        by_word = {
            word: name for number, (name, _, _) in enumerate(self._menu, start=1) for word in (str(number), name)
        }
        shown = next(word for word, name in by_word.items() if name == default)

        def known(word: str) -> bool:
            return word.lower() in by_word or self._wrong("no_choice", word, len(self._menu))

        return by_word[self._until(lambda: self._prompt("number", default=shown), known).lower()]

    def _key(self, vendor: WellKnown, reference: str) -> list[str]:
        """Asks for the vendor's key and tries it; gives the models that it opens."""
        variable = next((it for it in vendor.variables if self._draft.there.get(it)), vendor.variables[0])
        where = f" ({vendor.made_at})" if vendor.made_at else ""
        title = vendor.title or vendor.names[0]
        while True:
            key = self._draft.there.get(variable) or self._secret("key", title, where)
            if not key:
                self.later.append(variable)
                return []
            if variable not in self._draft.there:
                self._draft.given[variable] = key
            answer = self._listed(reference, key)
            if not isinstance(answer, ModelError):
                self._say("key_ok", title)
                return answer
            self._explain(title, answer)
            if variable in self._draft.there or self.yes(self._word("keep"), default=False):
                return []
            del self._draft.given[variable]

    def _listed(self, reference: str, key: str) -> ModelError | list[str]:
        try:
            return self._draft.try_model(reference, key)
        except ConfigErrors as errors:
            return ModelError(kind="invalid", summary=errors.problems[0].message, retryable=False)

    def _explain(self, title: str, error: ModelError) -> None:
        kinds = {"auth": "refused", "billing": "refused", "network": "unreached", "timeout": "unreached"}
        self._say(kinds.get(error.kind, "untried"), title, error.summary)

    def _server(self, name: str, address: str, example: str) -> None:
        """Asks for the operator's server: its address, a key if it is no Ollama, and one of its models."""
        url = self._until(
            lambda: self._prompt("address", default=address),
            lambda it: bool(it and _fits(ProviderConfig, {"baseUrl": it})) or self._wrong("no_address"),
        )
        key = ""
        if name == OWN and (key := self._secret("key", url, "")):
            self._draft.given["OWN_API_KEY"] = key
        keyed = ', apiKey: "${OWN_API_KEY:-}"' if key else ""
        api = "api: openai-chat, " if name == OWN else ""
        self._draft.provider = f'{name}: {{ {api}baseUrl: "{url}"{keyed} }}'
        answer = self._listed(f"{name}/any", key)
        models: list[str] = []
        if isinstance(answer, ModelError):
            self._explain(url, answer)
        else:
            models = answer
            self._say("server_ok", url, ", ".join(models[:MODELS_SHOWN]) + (" …" if len(models) > MODELS_SHOWN else ""))
        self._draft.model = f"{name}/{self._name_of_model(models, example)}"

    def _name_of_model(self, models: Sequence[str], example: str) -> str:
        default = next((it for it in models if it == example), models[0] if models and not example else example)

        def good(name: str) -> bool:
            if not name or re.search(r"\s", name):
                return self._wrong("no_model", default or "qwen3:8b")
            if models and name not in models:
                self._say("unlisted", name)
                return self.yes(self._word("go_on"), default=False)
            return True

        return self._until(lambda: self._prompt("model", default=default), good)

    def _platform(self, platform: Platform, names: Sequence[str]) -> None:
        """Asks for a platform's secrets, until it takes them or the person goes on."""
        while True:
            asked = [it for it in names if not self._draft.there.get(it)]
            secrets = {name: value for name in asked if (value := self._secret_of(name))}
            if len(secrets) < len(asked):
                self.later += asked
                return self._say("half", _PLATFORMS[platform][self._zh].strip())
            self._draft.given.update(secrets)
            if self._accepted(platform, names) or not asked:
                return None
            for name in secrets:
                del self._draft.given[name]

    def _accepted(self, platform: Platform, names: Sequence[str]) -> bool:
        """True if the platform takes them, or the person keeps them."""
        if mistake := self._draft.mistake(names):
            self._say("mistake", mistake)
            return False
        try:
            findings = self._draft.try_channel(platform)
        except ConfigErrors:
            return True  # something else of the file is wrong: `check` says what
        for it in findings:
            if it.status == "error" or (it.status == "ok" and it.check.endswith("credentials")):
                self._say(f"platform_{it.status}", it("zh" if self._zh else "en"))
        wrong = any(it.status == "error" and not it.check.endswith(("scopes", "events", "updates")) for it in findings)
        return not wrong or self.yes(self._word("keep"), default=False)

    def _secret_of(self, name: str) -> str:
        while True:
            value = self._secret(name)
            if name == "FEISHU_APP_ID" and value and not value.startswith("cli_"):
                self._say("no_app_id")
                continue
            return value

    def _other(self, name: str) -> None:
        """A variable of an example that belongs to no platform and no vendor."""
        is_token = name.endswith("_TOKEN")
        value = self._secret("token" if is_token else "other", name)
        if not value and is_token:
            value = secrets.token_hex(24)
            self._say("made", name)
        if value:
            self._draft.given[name] = value
            if mistake := self._draft.mistake([name]):
                self._say("mistake", mistake)
                del self._draft.given[name]
                self._other(name)

    def _secret(self, word: str, *values: str) -> str:
        """A secret, or empty for later."""
        while True:
            value = prompt(self._word(word, *values), hide_input=sys.stdin.isatty())
            if not value or SECRET.fullmatch(value):
                return value
            self._say("no_secret")

    def _prompt(self, word: str, *, default: str) -> str:
        return prompt(self._word(word), default=default, show_default=bool(default))

    def _until(self, ask: Callable[[], str], good: Callable[[str], bool]) -> str:
        """Asks until the answer is good; `good` says why it is not."""
        while not good(answer := ask()):
            pass
        return answer

    def _wrong(self, word: str, *values: object) -> bool:
        """False, once it has said why an answer will not do."""
        self._say(word, *values)
        return False

    def _word(self, word: str, *values: object) -> str:
        return WORDS[word][self._zh].format(*values)

    def _say(self, word: str, *values: object) -> None:
        print_text(self._word(word, *values), err=True)


def _fits(kind: Any, value: object) -> bool:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True
