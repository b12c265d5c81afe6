"""The report of a config, for `check` and `doctor`, and the greeting, the short version that start-up prints.

The report follows the order of the sections: what is configured, what is missing, and the next steps. No line contains a
secret.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from agents.config import AgentConfig
from agents.language import Language
from agents.providers.catalog import lacks_key
from agents.workspaces import is_template
from channels.access import ANYBODY, AccessConfig, refusal, who_may_talk
from channels.bilingual import NO_WORDS, Bilingual, Finding
from channels.message import Chat, MessageContext
from gateway.config.channels import Account, ChannelType, configured
from gateway.config.exposure import exec_mode, exposure
from gateway.config.keys import DEMO
from gateway.config.load import Loaded
from gateway.config.root import Config, route
from gateway.config.warnings import advice
from gateway.observe.secrets import redacted
from gateway.operate.mcp import seen_tools
from gateway.program import VERSION, program
from gateway.store.migrate import DatabaseUnusable
from gateway.store.opening import connected
from gateway.store.sessions import message_in
from tools.catalog import offered, own_tools

DATABASE_SECONDS = 2.0
"""The timeout for reading MCP tools from the database."""
WARNING = Bilingual("warning", "警告")
AGENTS_MAX = 4
"""More are counted; `check` names them."""


def report(loaded: Loaded) -> list[Finding]:
    """List the settings, then the warnings."""
    findings = [
        _server(loaded.config),
        *_reported_channels(loaded),
        *(Finding("api", "ok", it) for it in api_line(loaded)),
        *_hooks(loaded),
        *_providers(loaded),
        *(_agent(agent, loaded) for agent in loaded.config.agents.list),
        *_own_tools(loaded.config),
        *_servers(loaded.config),
        *_hidden_skills(loaded),
        *_demo(loaded),
        *loaded.warnings,
        *shared_workspaces(loaded.config),
    ]
    return [it.cleaned(redacted) for it in findings]


def lines(findings: Iterable[Finding], language: Language = "en") -> Iterator[str]:
    for it in findings:
        yield it.labelled(WARNING(language) if it.status == "warning" else it.check, language)


def _server(config: Config) -> Finding:
    server, database = config.server, _short(config.database.shown)
    address = f"http://{bracketed(server.host)}:{server.port}"
    public = Bilingual(server.public_url) if server.public_url else Bilingual("no publicUrl", "没有 publicUrl")
    message = Bilingual(f"{address}, {public}, database {database}", f"{address}，{public.zh}，数据库 {database}")
    return Finding("server", "ok", message)


def api_line(loaded: Loaded) -> Iterator[Bilingual]:
    server = loaded.config.server
    if names := list(server.api.open):
        url = f"{server.public_url or server.address}/v1"
        yield Bilingual(f"{url}, with the token of {', '.join(names)}", f"{url}，使用 {'、'.join(names)} 的令牌")


def _hooks(loaded: Loaded) -> Iterator[Finding]:
    server = loaded.config.server
    for name, hook in loaded.config.hooks.items():
        url, act = f"{server.public_url or server.address}/hooks/{name}", "say" if hook.say is not None else "task"
        en, zh = f"POST {url} ({hook.verify}), {act} to {hook.to}", f"POST {url}（{hook.verify}），{act} 至 {hook.to}"
        yield Finding(f"hook {name}", "ok", Bilingual(en, zh))


def _reported_channels(loaded: Loaded) -> Iterator[Finding]:
    for kind, account in channels_of(loaded):
        if account is not None:
            check = f"{kind.name} {account.name}"
            yield Finding(check, "ok", *kind.arrives(account.config, account.name, exposure(loaded.config)))
            if isinstance(account.config, AccessConfig):
                yield Finding(f"{check}, who may talk", "ok", access_of(account.config))


def channels_of(loaded: Loaded) -> Iterator[tuple[ChannelType, Account | None]]:
    """Yield each channel with each of its accounts, or once with None."""
    accounts = [*configured(loaded.config.channels)]
    for kind in loaded.config.channels.kinds.values():
        own = [it for it in accounts if it.kind is kind]
        yield from ((kind, it) for it in own or (None,))


def access_of(access: AccessConfig) -> Bilingual:
    text, command = who_may_talk(access), f"{program()} pairing approve CODE"
    if access.dm_policy != "pairing" or ANYBODY in access.allow_from:
        return text
    return Bilingual(f"{text} — a stranger gets a code: {command}", f"{text.zh}——陌生人会收到配对码：{command}")


def _providers(loaded: Loaded) -> Iterator[Finding]:
    config = loaded.config
    used = {model.partition("/")[0] for agent in config.agents.list for model in agent.model}
    idle = sorted(name for name, it in config.providers.items() if name not in used and lacks_key(name, it))
    for name in sorted({*config.providers, *used} - {*idle}):
        provider = config.provider(name)
        if (provider.api or name) == "demo":
            continue
        state, fix = _key_state(name, loaded), NO_WORDS
        if lacks_key(name, provider):
            fix = advice(("providers", name, "apiKey"), loaded.names)
        if name not in used:
            state = Bilingual(f"{state} (no agent uses it)", f"{state.zh}（没有智能体使用它）")
        yield Finding(f"provider {name}", "ok", state, fix)
    if idle:
        message = Bilingual("no key, and no agent uses them", "没有密钥，也没有智能体使用")
        yield Finding(f"providers {', '.join(idle)}", "ok", message)


def _key_state(name: str, loaded: Loaded) -> Bilingual:
    provider = loaded.config.provider(name)
    if (count := len(provider.keys)) > 1:
        return Bilingual(f"{count} keys set", f"已设置 {count} 个密钥")
    if count and (variable := loaded.variables.get(name)):
        return Bilingual(f"key set ({variable})", f"已设置密钥（{variable}）")
    if count:
        return Bilingual("key set", "已设置密钥")
    if lacks_key(name, provider):
        return Bilingual("no key", "没有密钥")
    url = provider.base_url
    return Bilingual(f"needs no key, at {url or 'its usual address'}", f"无需密钥，地址 {url or '为默认值'}")


def _agent(agent: AgentConfig, loaded: Loaded) -> Finding:
    tools = " ".join(offered(loaded.config.tools, agent.tools, off=loaded.config.tools_off))
    skills = " ".join(skill.name for skill in loaded.skills[agent.id])
    answering, workspace = models_of(agent, loaded), _short(agent.workspace_dir)
    message = Bilingual(
        f"{answering}; tools {tools or 'none'}; skills {skills or 'none'}; workspace {workspace}",
        f"{answering.zh}；工具 {tools or '无'}；技能 {skills or '无'}；工作目录 {workspace}",
    )
    return Finding(f"agent {agent.id}", "ok", message)


def models_of(agent: AgentConfig, loaded: Loaded) -> Bilingual:
    """Describe an agent's models, and why they were chosen if the file says `auto`."""
    if agent.runner.acp:
        return Bilingual(f"program {agent.runner.acp[0]}", f"程序 {agent.runner.acp[0]}")
    models = Bilingual(", then ".join(agent.model), "，其次 ".join(agent.model))
    if agent.id not in loaded.auto.agents:
        return models
    because = loaded.auto.because
    return Bilingual(f"{models} (auto: {because})", f"{models.zh}（auto：{because.zh}）")


def _own_tools(config: Config) -> Iterator[Finding]:
    for directory in config.tools.directories:
        names = " ".join(name for name, path in own_tools(config.tools).places.items() if str(path.parent) == directory)
        yield Finding(f"tools {_short(directory)}", "ok", Bilingual(names or "none", names or "无"))


def _servers(config: Config) -> Iterator[Finding]:
    # Show the last seen tools; only `doctor` connects to the servers.
    try:
        with connected(config.database, seconds=DATABASE_SECONDS) if config.mcp.servers else nullcontext() as database:
            seen = seen_tools(config, database)
    except DatabaseUnusable:
        seen = {}
    for name in config.mcp.servers:
        names = " ".join(seen.get(name, ()))
        unknown = Bilingual("its tools are known once it was reached", "连接成功后才能列出工具")
        yield Finding(f"mcp {name}", "ok", Bilingual(names or "none", names or "无") if name in seen else unknown)


def _hidden_skills(loaded: Loaded) -> Iterator[Finding]:
    hidden = {skill.name: skill for skills in loaded.hidden_skills.values() for skill in skills}
    for name, skill in sorted(hidden.items()):
        fix = Bilingual(f"it needs {' and '.join(skill.missing)}", f"它需要 {' 和 '.join(skill.missing)}")
        yield Finding(f"skill {name}", "ok", Bilingual("hidden", "已隐藏"), fix)


def _demo(loaded: Loaded) -> Iterator[Finding]:
    guided = [agent for agent in loaded.config.agents.list if agent.is_demo]
    if guided:
        names = ", ".join(agent.id for agent in guided)
        answers = Bilingual(f"a script, not a model, answers as {names}", f"以 {names} 回答的是脚本，不是模型")
        yield Finding(f"model {DEMO}", "ok", answers, real_model(guided[0], loaded))


def real_model(agent: AgentConfig, loaded: Loaded) -> Bilingual:
    if agent.id not in loaded.auto.agents:
        return Bilingual(
            "for a real model say model: auto, or name one", "如需真实模型，请写 model: auto，或指定一个模型"
        )
    if not loaded.auto.settable:
        return Bilingual("name a real model", "请指定一个真实模型")
    keys = enumerated(loaded.auto.settable, Bilingual("or", "或"))
    return Bilingual(f"set {keys} for a real model", f"设置 {keys.zh} 即可使用真实模型")


def enumerated(words: Sequence[str], joint: Bilingual) -> Bilingual:
    *others, last = words
    if not others:
        return Bilingual(last)
    return Bilingual(f"{', '.join(others)} {joint} {last}", f"{'、'.join(others)} {joint.zh} {last}")


def _short(path: str) -> str:
    try:
        return f"./{Path(path).relative_to(Path.cwd())}"
    except ValueError:
        return path


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def greeting(loaded: Loaded, *, link: str | None = None, language: Language = "en") -> list[str]:
    """Return the lines of start-up. `loaded` has the actual host and port; `link` is a single-use sign-in link."""
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
        if agent.is_demo:
            step = real_model(agent, loaded)
            text = Bilingual(f"{model}, a script; {step}", f"{model}，这是脚本；{step.zh}")
        yield Bilingual("agent", "智能体"), Bilingual(f"{agent.id}: {text}", f"{agent.id}：{text.zh}")
    if rest := len(agents) - len(listed):
        command = f"{program()} check"
        yield Bilingual("agents", "智能体"), Bilingual(f"{rest} more: {command}", f"还有 {rest} 个：{command}")


def _padded(label: str) -> str:
    # Pad to ten columns; a Chinese character takes two.
    return label + " " * (10 - sum(1 if it.isascii() else 2 for it in label))


def shared_workspaces(config: Config) -> Iterator[Finding]:
    """Warn of each agent with a workspace shared by several users, which can leak data between them."""
    for agent in config.agents.list:
        runs = exec_mode(config, agent) == "allow"
        names = {"write", "edit"} | ({"exec", "process"} if runs else set())
        changing = [it for it in offered(config.tools, agent.tools, off=config.tools_off) if it in names]
        if changing and not is_template(agent.workspace_dir) and _serves_several(config, agent.id):
            message = Bilingual(
                f"agent {agent.id}: everybody it serves shares one workspace, and can read and change others' files",
                f"智能体 {agent.id}：它服务的所有人共用一个工作目录，可以读取和改动他人的文件",
            )
            fix = Bilingual(
                f"end workspaceDir with /{{chat}} or /{{sender}}, or take {' and '.join(changing)} out of tools.allow",
                f"请让 workspaceDir 以 /{{chat}} 或 /{{sender}} 结尾，或从 tools.allow 中去掉 {' 和 '.join(changing)}",
            )
            yield Finding("config", "warning", message, fix)


def _serves_several(config: Config, agent: str) -> bool:
    people: set[tuple[str, str]] = set()
    groups: set[tuple[str, str]] = set()
    for account in configured(config.channels):
        if isinstance(account.config, AccessConfig):
            for context in _possible(config, account):
                if route(config.routes, config.agents, context) == agent:
                    direct = context.chat.kind == "direct"
                    one = context.sender.id if direct else context.chat.id
                    (people if direct else groups).add((account.kind.name, one))
    return len(people) > 1 or len(groups) > 1 or any(one == ANYBODY for _, one in people | groups)


def _possible(config: Config, account: Account) -> Iterator[MessageContext]:
    # One message of each sender named in the config and of an unknown one, if access allows it.
    access = account.config
    matches = [binding.match for binding in config.routes]
    people = {ANYBODY, *access.allow_from, *(match.sender for match in matches if match.sender)}
    groups = {ANYBODY, *access.group_allow_from, *(match.chat for match in matches if match.chat)}
    places = [(Chat(id=ANYBODY, kind="direct"), it) for it in people]
    places += [(Chat(id=it, kind="group"), ANYBODY) for it in groups]
    for chat, sender in places:
        context = message_in(account.kind.name, account.name, chat, sender)
        if refusal(access, context, is_owner=chat.kind == "group") is None:  # some sender will be listed
            yield context
