"""The help in Chinese: each text of the commands and their options, as it is there in English.

It is plain text: in the boxes of the English help, a long Chinese text would be cut for want of spaces. The errors of a
command line are typer's own, and English.
"""

import re
from typing import Any

import typer
from typer._click.formatting import HelpFormatter

FILLER = "\0"
"""A mark before each Chinese character while lines are made, since it is two letters wide."""
_LOST = re.compile("\n( +)([，。；：、）？！”]+)(\n?)")
"""A line that would begin with the end of a sentence."""
_WIDE = re.compile("[⺀-鿿豈-﫿︰-﹏！-｠]")
HEADINGS = {"Options": "选项", "Arguments": "参数", "Commands": "命令"}
NOTES = {"[default: ": "[默认：", "[required]": "[必填]", "; required]": "；必填]"}


def translate(command: Any) -> None:
    """Puts the help of a command, and of all beneath it, into Chinese."""
    command.rich_markup_mode = None
    command.context_class = _Context
    command.get_help_option(_Context(command, help_option_names=["-h", "--help"])).help = "显示本说明并退出。"
    command.help = in_chinese(command.help)
    command.short_help = command.help
    for parameter in command.params:
        parameter.help = in_chinese(parameter.help)
    for beneath in getattr(command, "commands", {}).values():
        translate(beneath)


def in_chinese(text: str | None) -> str:
    """The text itself if the table lacks it."""
    english = " ".join((text or "").split())
    return HELP.get(english, english)


def filled(text: str) -> str:
    return _WIDE.sub(rf"{FILLER}\g<0>", text)


class _Formatter(HelpFormatter):
    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, "用法：")

    def write_heading(self, heading: str) -> None:
        self.write(f"{HEADINGS.get(heading, heading)}：\n")

    def write_text(self, text: str) -> None:
        super().write_text(filled(text))

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        for english, chinese in NOTES.items():
            rows = [(name, text.replace(english, chinese)) for name, text in rows]
        super().write_dl([(name, filled(text)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        text = super().getvalue().replace(FILLER, "")
        return _LOST.sub(lambda it: f"{it[2]}\n{'' if it[3] else it[1]}", text)


class _Context(typer.Context):
    formatter_class = _Formatter


HELP = {
    "Clawgate: a small, durable gateway between chat channels and model agents. Without a command it "
    "serves ./config.yaml, in a clone bot/config.yaml, and writes one first if there is none.": (
        "Clawgate：连接聊天渠道与模型智能体的小巧可靠的网关。不带命令时按 ./config.yaml 启动，"
        "在克隆的仓库里按 bot/config.yaml，没有该文件时先写一份。"
    ),
    "Print the version.": "显示版本号。",
    "Write a commented config file, and .env beside it for the secrets that you give; each is tried on "
    "the spot. A config that is there is never changed, and in .env nothing but what it lacks.": (
        "写一份带注释的配置文件，并把你给出的密钥写入旁边的 .env；每个密钥都会当场试用。已有的配置不会改动，"
        ".env 中只补上缺少的内容。"
    ),
    "A platform besides the web chat; may be repeated.": "网页聊天之外的平台；可重复。",
    "The model's vendor: anthropic, openai, …; by default the one with a key.": (
        "模型厂商：anthropic、openai 等；默认是有密钥的那一家。"
    ),
    "As provider/model; by default the provider's default.": "写作 provider/model；默认是该厂商的默认模型。",
    "The id of the agent.": "智能体的 ID。",
    "Begin with an example of docs/cookbook.md, such as family-telegram.": (
        "从 docs/cookbook.md 的一个示例开始，例如 family-telegram。"
    ),
    "Ask nothing: the options and the environment say it all.": "不提问：一切以选项和环境变量为准。",
    "The config file.": "配置文件。",
    "Serve the page and the channels until Ctrl-C or SIGTERM.": "运行网页和各渠道，直到 Ctrl-C 或 SIGTERM。",
    "Listen here instead of server.host.": "监听此地址，而不是 server.host。",
    "Write a config first if there is none, and a token if the page needs one.": (
        "没有配置时先写一份；网页需要 token 时也生成一个。"
    ),
    "Listen here instead of server.port.": "监听此端口，而不是 server.port。",
    "Talk to an agent here in the terminal, beside a serving gateway or without one. With a MESSAGE, or "
    "one from a pipe, it prints the answer and exits: 1 if there is none, with the reason on standard "
    "error.": (
        "在终端里与智能体对话，无论网关是否在运行。给出 MESSAGE 或由管道传入时，打印回答后退出；"
        "没有回答时退出码为 1，原因写到标准错误。"
    ),
    "One message: its answer is printed, and nothing else. Or from a pipe.": (
        "一条消息：只打印它的回答。也可由管道传入。"
    ),
    "The agent; by default as bindings say.": "智能体；默认由 bindings 决定。",
    "Send a file along; may be repeated.": "附上一个文件；可重复。",
    "The address of the gateway, if the config has another.": "网关的地址，如果与配置不同。",
    "Send a message to a chat, beside a serving gateway or without one, and print the platform's id of it. "
    "Exit code 1 if the platform refused it or has not answered within 30 seconds: it is then tried further; "
    "2 if nothing was sent.": (
        "向一个聊天发送消息，无论网关是否在运行，并打印平台返回的消息 ID。平台拒绝或 30 秒内没有应答时退出码为 1"
        "（后者会继续尝试）；没有发送任何内容时为 2。"
    ),
    "The text, in Markdown. Or from a pipe.": "正文，使用 Markdown。也可由管道传入。",
    "channel[:account]:chat[#thread], such as feishu:oc_team.": (
        "写作 channel[:account]:chat[#thread]，例如 feishu:oc_team。"
    ),
    "The message to reply to.": "要回复的消息。",
    "Write everything that the config names into one file: config, .env, database, workspaces, uploads, skills and "
    "tools. It works next to a serving gateway. The file holds all keys and messages, and only you can read it.": (
        "把配置所指的一切写入一个文件：配置、.env、数据库、工作目录、上传的文件、技能和工具。网关运行时也可使用。"
        "文件包含全部密钥和消息，只有你可以读取。"
    ),
    "The file to write, or a folder for one that is named by the time.": "要写入的文件，或一个文件夹（文件以时间命名）。",
    "Restore a backup into an empty folder. Nothing is overwritten, and no gateway is started.": (
        "把备份恢复到一个空文件夹。不覆盖任何内容，也不启动网关。"
    ),
    "A file that `backup` wrote.": "`backup` 写出的文件。",
    "An empty folder, or one that is not there yet.": "空文件夹，或尚不存在的文件夹。",
    "PostgreSQL: the empty database to fill, instead of the one that the config names.": (
        "PostgreSQL：要写入的空数据库，代替配置所指的数据库。"
    ),
    "Check the config file: one line for each mistake, exit code 1 if there is one.": (
        "检查配置文件：每个错误一行，有错误时退出码为 1。"
    ),
    "Also try what it depends on, like `doctor`: platforms, providers, disk.": (
        "像 `doctor` 一样，也检查它所依赖的平台、厂商和磁盘。"
    ),
    "For programs.": "供程序读取。",
    "Ask the gateway that serves this config: config, database, channels, model, queue. Exit code 1 if one "
    "of them is not ok, or if no gateway serves.": (
        "询问使用此配置的网关：配置、数据库、渠道、模型、队列。有一项不正常或没有网关在运行时，退出码为 1。"
    ),
    "Show tokens and cost by agent, chat, person or model, also while the gateway serves.": (
        "按智能体、聊天、用户或模型显示 token 数和费用，网关运行时也可使用。"
    ),
    "What a line of the table is.": "表格每一行代表什么。",
    "30d: from midnight 30 days ago; 12h: the last twelve hours; or a day, 2026-11-01.": (
        "30d：从 30 天前的零点起；12h：最近十二小时；也可以是某一天，如 2026-11-01。"
    ),
    "Try what the gateway depends on, also while it serves: credentials, scopes, webhooks, keys, models, "
    "clock, database, disk, folders, sandbox. Each finding with its fix; exit code 1 if there is an "
    "error. No message is sent.": (
        "检查网关所依赖的一切，网关运行时也可使用：凭证、权限、webhook、密钥、模型、时钟、数据库、磁盘、"
        "文件夹、沙箱。每个问题都附有解决办法；有错误时退出码为 1。不发送任何消息。"
    ),
    "Run Clawgate as a service of your own, by systemd.": "通过 systemd 把 Clawgate 作为你自己的服务运行。",
    "Write the unit and start it; it starts again after a crash, and whenever you log in.": (
        "写入服务单元并启动它；崩溃后以及每次登录时会重新启动。"
    ),
    "Print the unit, and change nothing.": "只打印服务单元，不做任何改动。",
    "Stop the service and remove its unit. Config and data stay.": "停止服务并移除其单元。配置和数据保留。",
    "Show what systemd knows of the service; exit code 0 while it runs.": (
        "显示 systemd 所知的服务状态；运行中时退出码为 0。"
    ),
    "Which agent answers what.": "由哪个智能体回答什么。",
    "Show how a message would be handled: agent, session, binding, access, model, tools and skills, and "
    "why.": "显示一条消息会如何处理，以及原因：智能体、会话、绑定、准入、模型、工具和技能。",
    "Such as feishu, telegram or web.": "例如 feishu、telegram 或 web。",
    "The account on the channel.": "渠道上的账号。",
    "The id of the chat; for a direct chat, --sender is enough.": "聊天的 ID；私聊只需 --sender。",
    "By default, a chat that is not the sender is a group.": "默认情况下，与发送者不同的聊天视为群聊。",
    "The id of a topic inside the chat.": "聊天中话题的 ID。",
    "The id of the sender; by default, a person on no list.": "发送者的 ID；默认是不在任何名单上的人。",
    "What is kept of conversations: to be listed, read, exported and erased, also while the gateway "
    "serves.": "保留的对话：可列出、查看、导出和清除，网关运行时也可使用。",
    "List the sessions, the last active one at the end.": "列出会话，最近活跃的在最后。",
    "Print a session: who wrote what and when, and which tools were called.": (
        "打印一个会话：谁在何时写了什么，调用了哪些工具。"
    ),
    "A session, as `sessions list` names it.": "一个会话，名称见 `sessions list`。",
    "Write a session to standard output: `sessions export ID --format md > session.md`.": (
        "把会话写到标准输出：`sessions export ID --format md > session.md`。"
    ),
    "md is to be read; json has every row as it is kept.": "md 便于阅读；json 包含保存的每一行。",
    "Remove a session, or all that is kept of a person, for good: messages, answers, files. Nothing "
    "brings it back.": "永久移除一个会话，或某人的全部内容：消息、回答、文件。无法恢复。",
    "All of a person, such as feishu:ou_…: /whoami prints it.": "某人的全部内容，例如 feishu:ou_…：/whoami 会显示。",
    "Do not ask.": "不询问。",
    "Each turn layer by layer: event, route, prompt, requests, tool calls and reply; also while the gateway serves.": (
        "逐层查看每一轮：事件、路由、提示词、请求、工具调用和回复；网关运行时也可使用。"
    ),
    "List the newest 50 turns, the newest at the end.": "列出最近 50 轮，最新的在最后。",
    "Only turns of this agent.": "只列出该智能体的轮次。",
    "Only turns of this channel, such as feishu.": "只列出该渠道的轮次，例如 feishu。",
    "Only turns that answer this person, as channel:id.": "只列出回答此人的轮次，写作 channel:id。",
    "Only turns that ended so, such as failed; or running, waiting.": (
        "只列出以此结束的轮次，例如 failed；或 running、waiting。"
    ),
    "Only turns with a smaller number: the next page.": "只列出编号更小的轮次，即下一页。",
    "Print one turn, layer by layer; --json has every text whole.": "逐层打印一轮；--json 包含完整内容。",
    "A turn, as `turns list` numbers it.": "一轮，编号见 `turns list`。",
    "Run past turns again under another config, and show what differs: the models are asked, and cost; tools answer what "
    "they answered then; nothing is sent or written. Exit code 0 if all are the same, 1 if not, 2 if it could not run.": (
        "用另一份配置重新运行过去的轮次，并显示差异：会真实请求模型并产生费用；工具给出当时的结果；不发送也不写入任何内容。"
        "全部相同时退出码为 0，否则为 1；无法运行时为 2。"
    ),
    "The config in force: its database has the turns. Without one, it is that of --config.": (
        "生效中的配置：轮次在它的数据库里。没有时使用 --config 的配置。"
    ),
    "The number of turns, from the newest back.": "轮次的数量，从最新的往回数。",
    "This turn, as `turns list` numbers it; may be repeated.": "指定这一轮，编号见 `turns list`；可重复。",
    "Ask no more once that has been spent, in the unit of the prices.": "花费达到此数后不再请求，单位与价格相同。",
    "Who may write to the bot if dmPolicy is pairing: list, approve and revoke them, also while it "
    "serves.": "dmPolicy 为 pairing 时谁可以给机器人发消息：列出、批准和撤销，运行时也可使用。",
    "List the people who wait with a code, and those who may write.": "列出持配对码等待的人，以及可以发消息的人。",
    "Let a person write to the bot, on all replicas from now on. They are notified within seconds.": (
        "允许某人给机器人发消息，立即对所有副本生效。对方会在几秒内收到通知。"
    ),
    "The code that they were given; or channel:id.": "对方收到的配对码；或 channel:id。",
    "Take the permission back, from the next message on. What is in allowFrom and owners stays as it is.": (
        "从下一条消息起收回许可。allowFrom 和 owners 中的内容保持不变。"
    ),
    "Such as feishu:ou_…, or telegram:ACCOUNT:123456.": "例如 feishu:ou_…，或 telegram:ACCOUNT:123456。",
    "Calls that wait for a person's approval, and what was allowed for good; also while the gateway "
    "serves.": "等待人批准的调用，以及已长期允许的内容；网关运行时也可使用。",
    "List what waits for a decision, and what was allowed for good, oldest first.": (
        "列出等待决定的内容和已长期允许的内容，最早的在前。"
    ),
    "End what was allowed for good, or cancel a request that waits; a running gateway heeds it at once.": (
        "终止长期允许，或取消等待中的请求；运行中的网关立即生效。"
    ),
    "A grant or a request, as `list` names it.": "一项许可或请求，名称见 `list`。",
    "All that was allowed for good.": "所有长期允许的内容。",
    "MCP servers: list their tools, try one, accept what has changed; also while it serves.": (
        "MCP 服务器：列出工具、试用工具、确认有变化的工具；运行时也可使用。"
    ),
    "A server of mcp.servers.": "mcp.servers 中的一个服务器。",
    "Start each server and list its tools: who has them, and what an owner has not seen as it is now.": (
        "启动每个服务器并列出其工具：谁可以使用，以及哪些尚未经所有者确认。"
    ),
    "One of its tools.": "它的一个工具。",
    'Its arguments: \'{"timezone": "UTC"}\'.': '参数，例如 \'{"timezone": "UTC"}\'。',
    "Start the server, call one of its tools, and print the result as a model gets it, without the fences.": (
        "启动服务器，调用它的一个工具，并显示模型会得到的结果（不含边界标记）。"
    ),
    "Offer the tools of a server as the gateway sees them now, as far as they are new or have changed.": (
        "按网关目前所见提供该服务器的工具（限新增或有变化的）。"
    ),
    "Messages that were given up, and reply parts that could not be delivered.": (
        "已放弃的消息，以及无法送达的回复片段。"
    ),
    "List the dead letters, oldest first.": "列出死信，最早的在前。",
    "Give dead letters another chance; a running gateway takes them up within seconds.": (
        "让死信再试一次；运行中的网关会在几秒内处理。"
    ),
    "Dead letters as `list` names them: message-12 part-7.": "死信，名称见 `list`，例如 message-12 part-7。",
    "Every dead letter.": "所有死信。",
    "Skills from elsewhere: looked at, pinned in skills.lock, and used only as long as they stay as they were.": (
        "来自别处的技能：先查看，再固定在 skills.lock 中，只在未被改动时使用。"
    ),
    "A git repository, or a folder of this machine.": "git 仓库，或本机的文件夹。",
    "Skills of it; needed if it has several.": "其中的技能；有多个技能时需要指明。",
    "Every skill that it has.": "其中的所有技能。",
    "A branch or a tag of the repository.": "仓库的分支或标签。",
    "Show a skill's files and add it once you agree. Nothing of it runs; agents see it from their next message on.": (
        "显示技能的文件，经你同意后添加。不会运行其中任何内容；智能体从下一条消息起可以看到它。"
    ),
    "Reminders of people and schedules of the config: list, run, pause and cancel them, also while it serves.": (
        "人们的提醒和配置中的定时任务：列出、立即执行、暂停、取消，运行时也可以。"
    ),
    "List what is to come, what is paused, and what is over since a week at most.": (
        "列出将要执行的、已暂停的，以及一周内已结束的。"
    ),
    "Do it now, besides its times; a running gateway begins at once.": (
        "在原定时间之外立即执行一次；运行中的网关会马上开始。"
    ),
    "Pause it; the same again lets it go on, at its next time.": "暂停；再次执行则从下一个时间起恢复。",
    "End a person's for good. One of the config is removed there.": (
        "永久结束某人的提醒。配置中的定时任务请在配置中删除。"
    ),
    "As `schedules list` names it.": "名称见 `schedules list`。",
    "Skills, as `skills list` names them.": "技能，名称见 `skills list`。",
    "Show what has changed, here or at the source, and take the source's state once you agree.": (
        "显示本地或来源处的改动，经你同意后采用来源处的内容。"
    ),
    "List the added skills: their state, commit and source. Only those that are ok are used.": (
        "列出已添加的技能：状态、提交和来源。只使用状态为 ok 的技能。"
    ),
    "Remove added skills, with their folders.": "移除已添加的技能及其文件夹。",
}
