"""The questions of `init`: each repeats until its answer is valid, and each secret is tried immediately.

Enter skips a question, and an answer that could not be tried may be kept, but never one that `check` would reject. The draft
is read by the config's reader and tried by doctor's probes before it is written.
"""

import asyncio
import json
import re
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agents.config import AgentId
from agents.language import Language
from agents.messages import ModelError
from agents.providers import doctor
from agents.providers.config import WELL_KNOWN, ProviderConfig, well_known
from agents.providers.vendors import VENDORS, WellKnown
from channels.bilingual import Bilingual, Finding
from channels.channel import DeliveryError
from channels.registration import NewApp, RegistrationEnded
from gateway.cli.options import SECRETS, Platform
from gateway.config.channels import configured
from gateway.config.exposure import exposure
from gateway.config.load import SECRET, Loaded, load, required, stand_in
from gateway.config.problems import ConfigErrors
from gateway.observe.terminal import print_text, prompt
from gateway.operate.scan import qr_text, registration_at

TRY_SECONDS = 10.0
USUAL_PORT = 8080
PORTS_TRIED = 100
_PORT = f"${{CLAWGATE_PORT:-{USUAL_PORT}}}"
_SERVER = re.compile(r"^server:", re.MULTILINE)
_OWNERS = re.compile(r"^owners:", re.MULTILINE)
_OWNERS_COMMENT = re.compile(r"^# owners: .*\n", re.MULTILINE)
_MODEL = re.compile(r"""(["']?)\$\{CLAWGATE_MODEL:-auto\}\1""")
MODELS_SHOWN = 8
LATER = "auto"
OWN = "own"
_PLATFORMS = {Platform.FEISHU: ("Feishu", "飞书"), Platform.TELEGRAM: ("Telegram", " Telegram")}
_YES, _NO = {"y", "yes", "是", "好"}, {"n", "no", "否", "不"}


class Wizard:
    """Fills a draft with the user's answers. `later` are the variables that are still to be set."""

    def __init__(self, draft: "ConfigDraft", language: Language) -> None:
        self._draft = draft
        self.later: list[str] = []
        self._zh = language == "zh"

    def ask(self, channels: Sequence[Platform], provider: str | None, model: str | None, agent: str) -> None:
        """Ask what the shipped template leaves open; the arguments are from the command line."""
        self._say("hello")
        if model:
            self._draft.model = model
            vendor = well_known(model.partition("/")[0])
            if vendor:
                self._key(vendor, model)
        else:
            self._choose_model(provider)
        for platform in Platform:
            if self.yes("platform", _PLATFORMS[platform][self._zh], default=platform in channels):
                self._platform(platform, SECRETS[platform])
        self._draft.agent = self._asked("agent", agent, lambda it: _fits(AgentId, it) or self._wrong("no_agent"))

    def fill(self) -> None:
        """Ask what an example leaves open."""
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

    def yes(self, word: str, *values: object, default: bool) -> bool:
        question = f"{self._word(word, *values)} {'[Y/n]' if default else '[y/N]'}"
        while answer := prompt(question).lower():
            if answer in _YES | _NO:
                return answer in _YES
            self._say("yes_or_no")
        return default

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
        router = VENDORS["openrouter"]
        menu: dict[str, tuple[str, WellKnown | None]] = {
            it.names[0]: (it.title or it.names[0], it) for it in WELL_KNOWN if it.default_model
        }
        menu |= {router.name: (self._word("router"), router)}
        menu |= {
            name: (self._word(word), None) for name, word in (("ollama", "ollama"), (OWN, "own"), (LATER, "later"))
        }
        self._say("whose")
        for number, (title, _) in enumerate(menu.values(), start=1):
            print_text(f"  {number:>2}  {title}", err=True)
        there = (name for name, (_, it) in menu.items() if it and any(map(self._draft.there.get, it.variables)))
        numbers = {name: str(number) for number, name in enumerate(menu, start=1)}
        by_word = {number: name for name, number in numbers.items()} | {name: name for name in menu}

        def known(word: str) -> bool:
            return word.lower() in by_word or self._wrong("no_choice", word, len(menu))

        return by_word[self._asked("number", numbers[next(there, LATER)], known).lower()]

    def _key(self, vendor: WellKnown, reference: str) -> list[str]:
        """Ask for the vendor's key, try it, and return the models that it gives access to."""
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
            answer = self._draft.try_model(reference, key)
            if not isinstance(answer, ModelError):
                self._say("key_ok", title)
                return answer
            self._explain(title, answer)
            if variable in self._draft.there or self.yes("keep", default=False):
                return []
            del self._draft.given[variable]

    def _explain(self, title: str, error: ModelError) -> None:
        kinds = {"auth": "refused", "billing": "refused", "network": "unreached", "timeout": "unreached"}
        self._say(kinds.get(error.kind, "untried"), title, error.summary)

    def _server(self, name: str, address: str, example: str) -> None:
        """Asks for the operator's server: its address, a key if it is no Ollama, and one of its models."""
        url = self._asked(
            "address",
            address,
            lambda it: bool(it and _fits(ProviderConfig, {"baseUrl": it})) or self._wrong("no_address"),
        )
        key = ""
        if name == OWN and (key := self._secret("key", url, "")):
            self._draft.given["OWN_API_KEY"] = key
        keyed = ', apiKey: "${OWN_API_KEY:-}"' if key else ""
        api = "api: openai-chat, " if name == OWN else ""
        self._draft.provider = f'{name}: {{ {api}baseUrl: "{url}"{keyed} }}'
        answer = self._draft.try_model(f"{name}/any", key)
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
                return self.yes("go_on", default=False)
            return True

        return self._asked("model", default, good)

    def _platform(self, platform: Platform, names: Sequence[str]) -> None:
        if platform is Platform.FEISHU and not any(map(self._draft.there.get, names)) and self._scan(names):
            return None
        while True:
            asked = [it for it in names if not self._draft.there.get(it)]
            secrets = {name: value for name in asked if (value := self._secret(name))}
            if len(secrets) < len(asked):
                self.later += asked
                return self._say("half", _PLATFORMS[platform][self._zh].strip())
            self._draft.given.update(secrets)
            if self._accepted(platform, names) or not asked:
                return None
            for name in secrets:
                del self._draft.given[name]

    def _scan(self, names: Sequence[str]) -> bool:
        """Offer to create a Feishu app by a scan; return whether that set every one of `names`."""
        if not {*names} <= {*SECRETS[Platform.FEISHU]} or not self.yes("scan", default=True):
            return False

        async def scanned() -> NewApp:
            registration = registration_at(self._draft.feishu_url)
            pending = await registration.begin()
            self._say("scan_shown", qr_text(pending.link), pending.link, max(1, round(pending.seconds / 60)))
            return await registration.wait(pending)

        try:
            app = asyncio.run(scanned())
        except RegistrationEnded as ended:
            return self._wrong(f"scan_{ended.reason}")
        except DeliveryError as error:
            return self._wrong("untried", "Feishu", error)
        self._draft.given |= app.variables
        self._draft.owner = f"feishu:{app.scanned_by}"
        self._say("scanned", app.app_id)
        if not self._draft.takes_owner:
            self._say("owner_missing", self._draft.owner)
        return self._accepted(Platform.FEISHU, names)

    def _accepted(self, platform: Platform, names: Sequence[str]) -> bool:
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
        return not wrong or self.yes("keep", default=False)

    def _other(self, name: str) -> None:
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
        while value := prompt(self._word(word, *values), hide_input=sys.stdin.isatty()):
            if not SECRET.fullmatch(value):
                self._say("no_secret")
            elif word == "FEISHU_APP_ID" and not value.startswith("cli_"):
                self._say("no_app_id")
            else:
                break
        return value

    def _asked(self, word: str, default: str, good: Callable[[str], bool]) -> str:
        while not good(answer := prompt(self._word(word), default=default, show_default=bool(default))):
            pass
        return answer

    def _wrong(self, word: str, *values: object) -> bool:
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


WORDS: dict[str, tuple[str, str]] = {
    "hello": (
        "A few questions. Enter takes what is in brackets; Ctrl-C leaves, and nothing is written.",
        "下面有几个问题。直接回车采用方括号中的内容；Ctrl-C 退出，不会写入任何文件。",
    ),
    "whose": ("Whose model answers?", "使用哪家的模型？"),
    "number": ("Number or name", "编号或名称"),
    "later": ("later: until then a scripted demo model answers", "稍后再说：在此之前由脚本演示模型回答"),
    "ollama": ("Ollama: a model on a machine of yours, without a key", "Ollama：你自己机器上的模型，无需密钥"),
    "router": ("OpenRouter: models of many vendors with one key", "OpenRouter：一个密钥用多家模型"),
    "own": ("another server that speaks OpenAI's API: its own address", "其他兼容 OpenAI 接口的服务：填写地址"),
    "no_choice": (
        "“{0}” is not in the list. Type a number from 1 to {1}.",
        "「{0}」不在列表中，请输入 1 到 {1} 的编号。",
    ),
    "key": ("Key of {0}{1}; Enter: later", "{0} 的密钥{1}；回车：稍后填写"),
    "no_secret": (
        "That cannot be right: it has blanks, quotes or letters that no key has. Copy it again.",
        "这不对：含有空格、引号或密钥不会有的字符，请重新复制。",
    ),
    "key_ok": ("✓ key of {0}", "✓ {0} 的密钥有效"),
    "server_ok": ("✓ {0} answers: {1}", "✓ {0} 有响应：{1}"),
    "refused": ("✗ {0} refuses it: {1}", "✗ {0} 拒绝了它：{1}"),
    "unreached": ("✗ {0} cannot be reached: {1}", "✗ 无法连接 {0}：{1}"),
    "untried": ("✗ {0} could not try it: {1}", "✗ {0} 无法验证：{1}"),
    "keep": ("Keep it all the same?", "仍然保留吗？"),
    "address": ("Address of the server", "服务地址"),
    "no_address": (
        "That is no address. It begins with http:// or https://, such as https://models.example.com/v1.",
        "这不是地址。应以 http:// 或 https:// 开头，例如 https://models.example.com/v1。",
    ),
    "go_on": ("Go on with it?", "仍然使用它吗？"),
    "model": ("Name of the model", "模型名称"),
    "no_model": ("A name is needed, such as {0}.", "请输入名称，例如 {0}。"),
    "unlisted": ("The server lists no “{0}”.", "该服务的列表中没有「{0}」。"),
    "platform": ("{0}?", "接入{0}？"),
    "yes_or_no": ("Type y or n.", "请输入 y（是）或 n（否）。"),
    "FEISHU_APP_ID": ("App ID of the Feishu app, cli_…; Enter: later", "飞书应用的 App ID（cli_…）；回车：稍后填写"),
    "FEISHU_APP_SECRET": ("Its App Secret; Enter: later", "它的 App Secret；回车：稍后填写"),
    "FEISHU_ENCRYPT_KEY": ("Its Encrypt Key; Enter: later", "它的 Encrypt Key；回车：稍后填写"),
    "FEISHU_VERIFICATION_TOKEN": ("Its Verification Token; Enter: later", "它的 Verification Token；回车：稍后填写"),
    "TELEGRAM_BOT_TOKEN": (
        "Token of the bot, from @BotFather; Enter: later",
        "@BotFather 给出的 token；回车：稍后填写",
    ),
    "scan": (
        "Create the app by scanning a QR code with Feishu or Lark? No: enter the keys of an existing app",
        "用飞书扫码创建应用吗？否：填写已有应用的凭证",
    ),
    "scan_shown": (
        "\n{0}\nScan it with the Feishu or Lark app, or open {1}\nIt expires in {2} minutes; Ctrl-C cancels.",
        "\n{0}\n请用飞书扫码，或打开 {1}\n{2} 分钟内有效；Ctrl-C 取消。",
    ),
    "scanned": ("✓ app {0} created; you own the bot", "✓ 已创建应用 {0}，机器人归你所有"),
    "scan_denied": ("✗ The request was declined in Feishu.", "✗ 创建请求在飞书中被拒绝。"),
    "scan_expired": ("✗ The QR code expired before it was confirmed.", "✗ 二维码已过期，尚未确认。"),
    "scan_refused": ("✗ Feishu did not create an app.", "✗ 飞书没有创建应用。"),
    "owner_missing": ("Add {0} to owners in the config.", "请把 {0} 加入配置中的 owners。"),
    "no_app_id": (
        "That is no App ID: it begins with cli_. See Credentials & Basic Info in the developer console.",
        "这不是 App ID：应以 cli_ 开头，见开发者后台「凭证与基础信息」。",
    ),
    "half": ("{0} has to wait until all of them are set.", "{0} 要等全部填好后才能启用。"),
    "mistake": ("✗ That cannot be used: {0}", "✗ 无法使用：{0}"),
    "platform_ok": ("✓ {0}", "✓ {0}"),
    "platform_error": ("✗ {0}", "✗ {0}"),
    "agent": ("Id of the agent", "智能体 id"),
    "no_agent": (
        "An id has small letters, digits, - and _, such as helper.",
        "id 只能用小写字母、数字、- 和 _，例如 helper。",
    ),
    "token": ("{0}; Enter: a random one is made", "{0}；回车：生成一个随机值"),
    "other": ("{0}; Enter: later", "{0}；回车：稍后填写"),
    "made": ("{0}: made, and kept in .env", "{0}：已生成，保存在 .env 中"),
    "start": ("Start now?", "现在启动吗？"),
}


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
    """`there` are the variables that are already set, `given` those from the user."""

    base: str
    there: Mapping[str, str]
    given: dict[str, str] = field(default_factory=dict)
    model: str = ""
    agent: str = ""
    provider: str = ""
    """A line of `providers:`."""
    owner: str = ""
    """The owner of the bot, as `channel:id`; empty leaves it to a claim code."""
    port: int = 0
    """The port instead of the default; 0 if that is free."""

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
        if self.owner and self.takes_owner:
            line = f"owners: [{json.dumps(self.owner)}]\n"
            text, found = _OWNERS_COMMENT.subn(line, text, count=1)
            text = text if found else re.sub(r"(?m)^(?=[a-z])", f"{line}\n", text, count=1)
        return with_port(text, self.port) if self.port else text

    @property
    def takes_owner(self) -> bool:
        """Return False if the config names its owners itself."""
        return not _OWNERS.search(self.base)

    @property
    def feishu_url(self) -> str:
        """Return the open platform's address in the draft, which tests and private deployments change."""
        try:
            feishu = self.load().config.channels.feishu
        except ConfigErrors:
            feishu = None
        return feishu.base_url if feishu else ""

    @property
    def leaves_model(self) -> bool:
        return bool(_MODEL.search(self.base))

    @property
    def missing(self) -> list[str]:
        """Return the required variables that are not set, in file order."""
        return [name for name in required(self.base) if not self.value(name)]

    def value(self, name: str) -> str:
        return self.given.get(name) or self.there.get(name) or ""

    def load(self) -> Loaded:
        """Load the draft, with placeholders for missing variables. Raise ConfigErrors."""
        stand_ins = {name: stand_in(name) for name in self.missing}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "config.yaml"
            file.write_text(self.text, encoding="utf-8")
            return load(file, {**self.there, **stand_ins, **self.given})

    def mistake(self, names: Iterable[str]) -> str:
        """Return the problem that `check` reports for these variables; empty if there is none."""
        try:
            self.load()
        except ConfigErrors as errors:
            return next((f"{it.path} {it.message}" for it in errors.problems if {*names} & {*it.names}), "")
        return ""

    def try_model(self, reference: str, key: str) -> ModelError | list[str]:
        """Return the models that the provider of `reference` lists for this key."""
        name = reference.partition("/")[0]
        before, self.model = self.model, reference
        try:
            provider = self.load().config.provider(name)
        except ConfigErrors as errors:
            return ModelError(kind="invalid", summary=errors.problems[0].message, retryable=False)
        finally:
            self.model = before
        return asyncio.run(doctor.listed(name, provider, key, seconds=TRY_SECONDS))

    def try_channel(self, kind: str) -> Sequence[Finding]:
        """Return doctor's findings about the channel's accounts, credentials first. Raise ConfigErrors."""
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
