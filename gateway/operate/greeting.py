"""The greeting: the few lines that start-up prints, for a person who has just typed `make run`."""

from collections.abc import Iterator

from agents.language import Language
from channels.access import AccessConfig
from channels.bilingual import NO_WORDS, Bilingual, Finding
from gateway.config.channels import ChannelType
from gateway.config.exposure import exposure
from gateway.config.load import Loaded
from gateway.observe.secrets import redacted
from gateway.operate.report import (
    WARNING,
    access_of,
    api_line,
    bracketed,
    channels_of,
    enumerated,
    models_of,
    real_model,
)
from gateway.program import VERSION, program

AGENTS_MAX = 4
"""More are counted; `check` names them."""


def greeting(loaded: Loaded, *, link: str | None = None, language: Language = "en") -> list[str]:
    """Lists the lines of start-up. `loaded` has the real host and port; `link` signs in to the web chat once."""
    server = loaded.config.server
    address = f"http://{bracketed(server.host)}:{server.port}"
    head = Bilingual(f"Clawgate {VERSION} listens on {address}", f"Clawgate {VERSION} 正在监听 {address}")
    labelled = [(label, text.each(redacted)) for label, text in _greeted_channels(loaded)]
    labelled += ((Bilingual("api"), it) for it in api_line(loaded))
    if link is not None:  # the one secret that is meant to be read here; browsers send what follows a # to no server
        url, minutes = f"{server.public_url or server.address}/#sign-in={link}", server.sign_in_link_seconds / 60
        text = Bilingual(f"{url} (once, within {minutes:.0f} min)", f"{url} （{minutes:.0f} 分钟内有效，仅限一次）")
        labelled.append((Bilingual("sign in", "登录"), text))
    labelled += ((label, text.each(redacted)) for label, text in _greeted_agents(loaded))
    labelled.append((Bilingual("stop", "停止"), Bilingual("Ctrl-C")))
    lines = [f"  {_padded(label(language))} {text(language)}" for label, text in labelled]
    return [head(language), *lines, *(it.labelled(WARNING(language), language) for it in loaded.warnings)]


def _greeted_channels(loaded: Loaded) -> Iterator[tuple[Bilingual, Bilingual]]:
    for kind, account in channels_of(loaded):
        label = Bilingual(kind.name)
        if account is not None:
            fact = Finding("", "ok", *kind.arrives(account.config, account.name, exposure(loaded.config)))
            text = Bilingual(fact("en"), fact("zh"))
            name = account.name
            yield label, text if name == "default" else Bilingual(f"{name}: {text}", f"{name}：{text.zh}")
            if isinstance(account.config, AccessConfig):
                access = access_of(account.config)
                yield NO_WORDS, Bilingual(f"who may talk: {access}", f"谁可以对话：{access.zh}")
        elif step := _missing(kind, loaded):
            readme = f"channels/{kind.name}/README.md"
            yield label, Bilingual(f"off: {step} ({readme})", f"未启用：{step.zh}（{readme}）")
        else:
            key = f"channels.{kind.name}.enabled"
            yield label, Bilingual(f"off: {key} is false", f"未启用：{key} 为 false")


def _missing(kind: ChannelType, loaded: Loaded) -> Bilingual:
    """The keys to set before the channel has an account; empty if it is switched off."""
    section = getattr(loaded.config.channels, kind.name)
    if section is not None and not section.enabled:
        return NO_WORDS
    names = [name for key in kind.keys for name in loaded.names.get(("channels", kind.name, key), ())]
    if not kind.keys:
        return Bilingual(f"add {kind.name}: {{}} under channels", f"请在 channels 下加入 {kind.name}: {{}}")
    if section is not None and names:
        return Bilingual(f"set {', '.join(names)}", f"请设置 {'、'.join(names)}")
    verb, keys = "add" if section is None else "set", enumerated(kind.keys, Bilingual("and", "和"))
    return Bilingual(f"{verb} {keys} under channels.{kind.name}", f"请在 channels.{kind.name} 下设置 {keys.zh}")


def _greeted_agents(loaded: Loaded) -> Iterator[tuple[Bilingual, Bilingual]]:
    agents = loaded.config.agents.list
    listed = agents if len(agents) <= AGENTS_MAX else agents[: AGENTS_MAX - 1]
    for agent in listed:
        text, model = models_of(agent, loaded), agent.model[0]
        if model.partition("/")[0] == "demo":
            step = real_model(agent, loaded)
            text = Bilingual(f"{model}, a script; {step}", f"{model}，这是脚本；{step.zh}")
        yield Bilingual("agent", "智能体"), Bilingual(f"{agent.id}: {text}", f"{agent.id}：{text.zh}")
    if rest := len(agents) - len(listed):
        command = f"{program()} check"
        yield Bilingual("agents", "智能体"), Bilingual(f"{rest} more: {command}", f"还有 {rest} 个：{command}")


def _padded(label: str) -> str:
    """Fills a label up to ten letters; a Chinese character takes the place of two."""
    return label + " " * (10 - sum(1 if it.isascii() else 2 for it in label))
