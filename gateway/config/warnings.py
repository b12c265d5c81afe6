"""Warnings about questionable settings, for start-up, `check` and `doctor`.

Each has a message that names its key, and the fix. None contains a value that could be a secret.
"""

import stat
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import add
from pathlib import Path

from agents.config import AgentConfig
from agents.providers.catalog import lacks_key
from agents.providers.config import known_models, serves_own_models
from agents.providers.models import SHIPPED_CURRENCY, facts_of
from channels.bilingual import Bilingual, Finding
from channels.web.admission import is_loopback
from gateway.config.channels import configured
from gateway.config.checks import example_warnings
from gateway.config.exposure import exec_mode
from gateway.config.keys import DEMO, Auto, Resolved
from gateway.config.problems import Findings, Key, Warned, did_you_mean, keyed, quoted, shown
from gateway.config.root import Config, specificity
from gateway.observe.secrets import secrets_in
from gateway.program import COMMAND, program
from skills.lock import LOCK, LockRefusal, SkillLock
from tools.catalog import own_tools
from tools.folder import is_own_group as _own_group
from tools.mcp.config import downloader

NO_FOLDER = Bilingual("make it, or take it out of the list", "请创建它，或从列表中去掉")


def warnings(
    resolved: Resolved, file: Path, findings: Findings, read: Iterable[tuple[Key, Bilingual, Bilingual]]
) -> list[Finding]:
    """Return all warnings, those of reading the file first. `findings` locates their keys."""
    found = (*read, *_all(resolved, file, findings.origin))
    placed = ((message.each(partial(add, findings.place_of(key))), fix) for key, message, fix in found)
    return [Finding("config", "warning", message, fix) for message, fix in placed]


def _all(resolved: Resolved, file: Path, origin: Callable[[Key], Key]) -> Warned:
    config, names = resolved.config, resolved.names
    if config.logging.content:
        message = Bilingual("logging.content: messages and answers are logged", "logging.content：消息和回答会写入日志")
        yield ("logging", "content"), message, Bilingual("set it to false when you are done", "用完后请设为 false")
    for name, server in config.mcp.servers.items():
        if server.command and server.sandbox == "off":
            message = Bilingual(
                f"MCP server {name}: its program runs without a sandbox, and can read what the gateway can read",
                f"MCP 服务器 {name}：程序在沙箱外运行，可以读取网关可读的内容",
            )
            fix = Bilingual(
                "leave sandbox out, and name what it needs in readable",
                "请去掉 sandbox，并在 readable 中写明所需文件夹",
            )
            yield ("mcp", "servers", name, "sandbox"), message, fix
        if command := downloader(server):
            message = Bilingual(
                f"MCP server {name}: {command} downloads it, and its sandbox has no network",
                f"MCP 服务器 {name}：{command} 需要下载它，而沙箱没有网络",
            )
            fix = Bilingual(
                "set network: true, or install it and name its program", "请设置 network: true，或先安装并写明其程序"
            )
            yield ("mcp", "servers", name, "command"), message, fix
    yield from _channels(config, names)
    yield from _providers(config, names)
    yield from dict.fromkeys(_models(config, origin))
    yield from _prices(config)
    yield from _auto(resolved.auto, names)
    for agent in config.agents.list:
        yield from _exec(config, agent)
        if "web_search" in (agent.tools.allow or ()) and config.tools.web.search.provider is None:
            message = Bilingual(f"agent {agent.id}: web_search is off", f"智能体 {agent.id}：web_search 未启用")
            fix = Bilingual(
                "name a provider in tools.web.search, or take it out of tools.allow",
                "请在 tools.web.search 中指定厂商，或从 tools.allow 中去掉它",
            )
            yield ("tools", "web"), message, fix
        if "feishu" in (agent.tools.allow or ()) and not config.tools.feishu.areas:
            message = Bilingual(f"agent {agent.id}: feishu is off", f"智能体 {agent.id}：feishu 未启用")
            fix = Bilingual(
                "name areas in tools.feishu.areas, or take it out of tools.allow",
                "请在 tools.feishu.areas 中列出领域，或从 tools.allow 中去掉它",
            )
            yield ("tools", "feishu"), message, fix
    yield from skill_warnings(config)
    yield from _own_tools(config)
    yield from _bindings(config)
    yield from example_warnings(config)
    yield from _server(config)
    yield from _hooks(config)
    yield from _inline_secrets(config, file, names)
    yield from _writable(file.resolve())
    yield from _open_folders(config)


def _channels(config: Config, names: Mapping[Key, tuple[str, ...]]) -> Warned:
    for account in configured(config.channels):
        for warning, fix in account.kind.warnings(account.config):
            yield account.key, keyed(account.key, warning), fix
        if getattr(account.config, "mode", "") == "polling" and config.database.path is None:
            message = Bilingual("polling needs a single replica", "轮询只能有一个副本")
            fix = Bilingual("run one, or set mode: webhook", "请只运行一个，或设置 mode: webhook")
            yield account.key, keyed(account.key, message), fix
    feishu = config.channels.feishu
    if feishu is None or not feishu.enabled or any(it.kind.name == "feishu" for it in configured(config.channels)):
        return
    if feishu.app_secret.get_secret_value().strip():
        key = ("channels", "feishu", "appId")
        message = Bilingual(
            "is empty although appSecret is set, so Feishu stays off", "为空，但已设置 appSecret，因此飞书不会启用"
        )
        yield key, keyed(key, message), advice(key, names)


def _providers(config: Config, names: Mapping[Key, tuple[str, ...]]) -> Warned:
    users: dict[str, dict[str, None]] = {}
    for agent in config.agents.list:
        for model in agent.named_models.values():
            users.setdefault(model.partition("/")[0], {})[agent.id] = None
    for name, agents in sorted(users.items()):
        if lacks_key(name, config.provider(name)):
            key, who = ("providers", name, "apiKey"), ", ".join(agents)
            message = Bilingual(f"is empty, so {who} cannot answer with {name}", f"为空，因此 {who} 无法用 {name} 回答")
            yield key, keyed(key, message), advice(key, names)


def _models(config: Config, origin: Callable[[Key], Key]) -> Warned:
    # A model that neither the table nor the config has, of a vendor whose models are known, is likely a typo.
    for index, agent in enumerate(config.agents.list):
        for place, model in agent.named_models.items():
            provider, _, name = model.partition("/")
            if facts_of(name).known or {model, name} & config.models.keys():
                continue
            if serves_own_models(provider, config.provider(provider).base_url):
                step = Bilingual(
                    "a line under models: makes it known (docs/providers.md)",
                    "在 models: 下加一行即可（docs/providers.md）",
                )
                key = (*(part for part in place if isinstance(part, str)),)
                written = origin(("agents", "list", index, *key))
                message = Bilingual(f"unknown model {quoted(name)}", f"未知的模型 {quoted(name)}")
                if meant := did_you_mean(name, known_models()):
                    step = Bilingual(f"{meant} Otherwise {step}", f"{meant.zh}否则{step.zh}")
                yield written, keyed(written, message), step


def _prices(config: Config) -> Warned:
    # A model without prices counts as free in a cost budget or another currency.
    whose = [
        f"budgets.{name}.{key}"
        for name, budget in config.budgets
        for key, limit in (("costPerDay", budget.cost_per_day), ("costPerMonth", budget.cost_per_month))
        if limit is not None
    ]
    named = dict.fromkeys(model for agent in config.agents.list for model in agent.model)
    free = [model for model in named if config.prices(model) is None and not config.is_demo(model)]
    if not whose and free and config.currency != SHIPPED_CURRENCY:
        whose = ["currency"]
    if whose and free:
        setting = f"models: {{ {quoted(free[0])}: {{ prices: … }} }}"
        step = Bilingual(f"set {setting} (docs/providers.md)", f"请设置 {setting}（docs/providers.md）")
        message = Bilingual(
            f"{', '.join(whose)}: no price in {config.currency} is known of {', '.join(free)}, so what they take costs "
            "nothing here",
            f"{'、'.join(whose)}：{'、'.join(free)} 没有以 {config.currency} 计的价格，因此用量在这里不计费用",
        )
        yield (*whose[0].split("."),), message, step


def _auto(auto: Auto, names: Mapping[Key, tuple[str, ...]]) -> Warned:
    if not auto.agents or auto.model != DEMO:
        return
    step = advice(("agents", "defaults", "model"), names)
    for what, name in auto.passed_over:
        message = Bilingual(
            f"{what}, but auto cannot know which of its models you want",
            f"{what.zh}，但 auto 无法知道你要用它的哪个模型",
        )
        yield (), message, Bilingual(f"{step} to {name}/…", f"{step.zh} 为 {name}/…")


def _exec(config: Config, agent: AgentConfig) -> Warned:
    mode = exec_mode(config, agent)
    if mode == "allow":
        message = Bilingual(
            f"agent {agent.id}: exec runs every command unasked",
            f"智能体 {agent.id}：exec 不经询问就执行所有命令",
        )
        fix = Bilingual("tools.exec.mode: ask has people approve them", "设置 tools.exec.mode: ask 可改为由人批准")
        yield ("tools", "exec", "mode"), message, fix
    elif mode == "ask":
        named = config.approvers(agent)
        if named == () or (named is None and config.channels.web is None):
            message = Bilingual(
                f"agent {agent.id}: nobody can approve its commands, so exec refuses them all",
                f"智能体 {agent.id}：没有人能批准它的命令，因此 exec 全部拒绝",
            )
            fix = Bilingual(
                "name people in approvals.approvers, or in owners", "请在 approvals.approvers 或 owners 中列出批准人"
            )
            yield (), message, fix


def _own_tools(config: Config) -> Warned:
    for index, directory in enumerate(config.tools.directories):
        key: Key = ("tools", "directories", index)
        if not Path(directory).is_dir():
            yield key, keyed(key, Bilingual("there is no such folder", "没有这个文件夹")), NO_FOLDER
    for fault in own_tools(config.tools).faults:
        what = Bilingual(f"a tool is not used: {fault}", f"有工具未启用：{fault}")
        yield (), what, Bilingual("mend it; it is read again once it is saved", "请修正；保存后会重新读取")


def _bindings(config: Config) -> Warned:
    for index, binding in enumerate(config.bindings):
        earlier = next(i for i, other in enumerate(config.bindings) if other.match == binding.match)
        if earlier < index:
            message = Bilingual(
                f"bindings[{index}]: never used, as bindings[{earlier}] matches the same messages",
                f"bindings[{index}]：不会用到，因为 bindings[{earlier}] 匹配同样的消息",
            )
            yield ("bindings", index), message, Bilingual("remove one of the two", "请删除其中一个")
        elif specificity(binding.match) == 0:
            message = Bilingual(f"bindings[{index}]: matches everything", f"bindings[{index}]：匹配所有消息")
            fix = Bilingual(
                "remove it and list its agent first: that one answers by default",
                "请删除它，并把它的智能体列在最前：默认由第一个回答",
            )
            yield ("bindings", index), message, fix


def _server(config: Config) -> Warned:
    server = config.server
    if not is_loopback(server.host) and not (server.allowed_hosts or server.public_url):
        fix = Bilingual(
            "put a proxy that ends TLS in front, and name your host in server.allowedHosts",
            "请在前面放置终止 TLS 的代理，并在 server.allowedHosts 中写明你的主机名",
        )
        yield ("server", "host"), Bilingual("server.host: open to the network", "server.host：对网络开放"), fix
    if "*" in server.allowed_hosts:
        message = Bilingual(
            "server.allowedHosts: any host name is accepted, also one that a stranger points here",
            "server.allowedHosts：接受任何主机名，包括陌生人指向这里的",
        )
        yield ("server", "allowedHosts"), message, Bilingual("name your hosts", "请写明你的主机名")


def _hooks(config: Config) -> Warned:
    first: dict[str, str] = {}
    for name, hook in config.hooks.items():
        other = first.setdefault(hook.secret.get_secret_value(), name)
        if other != name:
            message = Bilingual(
                f"hooks.{name}.secret: the same as that of hooks.{other}, so an event of one is valid at the other",
                f"hooks.{name}.secret：与 hooks.{other} 相同，因此一处的事件在另一处也有效",
            )
            fix = Bilingual("give each hook its own secret", "请为每个 hook 设置各自的密钥")
            yield ("hooks", name, "secret"), message, fix


def _inline_secrets(config: Config, file: Path, names: Mapping[Key, tuple[str, ...]]) -> Warned:
    if file.stat().st_mode & 0o077:
        for key, secret in secrets_in(config):
            # A token alone means the mapping that it is a key of.
            if secret.strip() and not {key, key[:-1]} & names.keys():
                message = Bilingual("a secret in a file that others can read", "密钥写在他人可以读取的文件中")
                fix = Bilingual("use ${NAME}, or chmod 600 the file", "请改用 ${NAME}，或对文件执行 chmod 600")
                yield key, keyed(key, message), fix


def _writable(file: Path) -> Warned:
    # An edit of these is in force two seconds later.
    for path in (file, file.parent / ".env", file.parent):
        try:
            status = path.stat()
        except OSError:
            continue
        by_group = status.st_mode & stat.S_IWGRP and not _own_group(status)
        if status.st_mode & stat.S_IWOTH or by_group:
            message = Bilingual(
                f"{path}: others on this machine can write it, and so decide what runs here",
                f"{path}：本机的其他用户可以写入，从而决定这里运行什么",
            )
            yield (), message, Bilingual("chmod go-w it", "请执行 chmod go-w")


def _open_folders(config: Config) -> Warned:
    database = [Path(config.database.path).parent] if config.database.path else []
    kept = (*database, Path(config.tools.files.uploads_dir), *(Path(it.workspace_dir) for it in config.agents.list))
    for folder in dict.fromkeys(kept):
        if folder.is_dir() and folder.stat().st_mode & 0o066:
            message = Bilingual(f"{folder}: can be read by others on this machine", f"{folder}：可被本机的其他用户读取")
            yield (), message, Bilingual("chmod 700 it", "请执行 chmod 700")


def advice(key: Key, names: Mapping[Key, tuple[str, ...]]) -> Bilingual:
    """Return the fix for an empty value: set the variable that it refers to, or the key itself."""
    if not names.get(key):
        return Bilingual(f"set {shown(key)}", f"请设置 {shown(key)}")
    return Bilingual(f"set {' and '.join(names[key])} in the environment", f"请设置环境变量 {' 和 '.join(names[key])}")


def skill_warnings(config: Config) -> Warned:
    added = config.skills.added_dir
    yield from _added_skills(Path(added))
    named: dict[Key, str] = {("skills", "directories", index): it for index, it in enumerate(config.skills.directories)}
    for key, directory in {("skills", "addedDir"): added, **named}.items():
        if key in named and not Path(directory).is_dir():
            yield key, keyed(key, Bilingual("there is no such folder", "没有这个文件夹")), NO_FOLDER
        for agent in config.agents.list:
            if Path(agent.workspace_dir) in (Path(directory), *Path(directory).parents):
                inside = Bilingual(
                    f"lies in the workspace of agent {agent.id}, whose tools can change it for every agent",
                    f"位于智能体 {agent.id} 的工作目录中，它的工具可以替所有智能体改动其内容",
                )
                yield key, keyed(key, inside), Bilingual("move it out", "请移到别处")


def _added_skills(folder: Path) -> Warned:
    there = (it.name for it in folder.iterdir() if it.is_dir() and it.name[0] not in "._") if folder.is_dir() else ()
    for name, reason in SkillLock(folder).refusals(there).items():
        what, fix = _REFUSED[reason]
        where = folder.parent / name if name == LOCK else folder / name
        yield (), Bilingual(f"skill {where}: {what}", f"技能 {where}：{what.zh}"), fix.each(partial(_named, name))


def _named(name: str, text: str) -> str:
    return text.replace("NAME", name).replace(COMMAND, program())


_REFUSED: dict[LockRefusal, tuple[Bilingual, Bilingual]] = {
    "changed": (
        Bilingual("has changed since it was added, and is not used", "添加后被改动过，因此不使用"),
        Bilingual("`clawgate skills update NAME` shows the difference", "用 `clawgate skills update NAME` 查看差异"),
    ),
    "missing": (
        Bilingual("is in skills.lock, and its folder is not there", "记录在 skills.lock 中，但文件夹不存在"),
        Bilingual(
            "`clawgate skills update NAME` fetches it again, `clawgate skills remove NAME` forgets it",
            "用 `clawgate skills update NAME` 重新获取，或用 `clawgate skills remove NAME` 移除记录",
        ),
    ),
    "unlisted": (
        Bilingual("is not in skills.lock, and is not used", "不在 skills.lock 中，因此不使用"),
        Bilingual(
            "move it away and add it with `clawgate skills add`, or move it to a folder of skills.directories",
            "请移走后用 `clawgate skills add` 添加，或移到 skills.directories 的文件夹中",
        ),
    ),
    "unreadable": (
        Bilingual("is not used: skills.lock cannot be read", "不使用：skills.lock 无法读取"),
        Bilingual(
            "restore the lock, or remove it and add the skills again",
            "请恢复该文件，或删除后重新添加这些技能",
        ),
    ),
}
