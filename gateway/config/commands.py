"""The chat commands there are, by name: what `commands:` in the config may name, and what people read of each."""

_WORDS = """
help | 帮助 | Show what can be commanded here | 显示可用的命令
commands | 命令 | Show what can be commanded here | 显示可用的命令
start | 开始 | Say hello | 打个招呼
new | 新对话 | Begin a new conversation | 开始新的对话
reset | 重置 | Begin a new conversation | 开始新的对话
stop | 停止 | Stop what is answered, what waits and the tasks; or one task | 停止当前处理、排队的消息和任务，或某一个任务
tasks | 任务 | Show the tasks of this conversation | 查看本次对话的任务
schedules | 定时 | List your reminders and schedules; cancel one | 查看你的提醒和定时任务；取消其中一个
reminders | 提醒 | List your reminders and schedules; cancel one | 查看你的提醒和定时任务；取消其中一个
retry | 重试 | Answer the last message again | 重新回答上一条消息
edit | 修改 | Say your last message in other words, and get that answered instead | 修改上一条消息并重新回答
undo | 撤销 | Forget the last exchange | 撤销上一轮对话
compact | 压缩 | Summarise the older part of the conversation | 压缩较早的对话
remember | 记住 | Keep a note for yourself; alone, list them | 记一条笔记；单独发送则列出
skill | 技能 | Use a skill; alone: list them | 使用技能；单独使用则列出全部
approve | 审批 | Decide about a call that waits for approval | 审批等待执行的调用
approvals | 待审批 | Show what waits for your approval, and what you allowed for good | 查看待审批的请求和长期许可
export | 导出 | Get the conversation as Markdown | 导出对话（Markdown）
status | 状态 | Show what runs here | 显示当前状态
context | 上下文 | Show what fills the prompt | 显示提示词的构成
usage | 用量 | Show tokens and cost | 显示用量和费用
whoami | 我是谁 | Show your id | 显示你的 ID
why | 为什么 | Show how the last answer came about, to an owner | 向所有者显示上一个回答的由来
model | 模型 | Choose a model for this conversation; alone: list them | 为本次对话选择模型；单独使用则列出全部
models | 模型列表 | List the models | 列出可选的模型
think | 思考 | Choose how hard the model thinks | 设置思考强度
reasoning | 推理 | Show the model's reasoning above its answers | 在回答上方显示思考过程
verbose | 详细 | Show the tool calls above the answers | 在回答上方显示工具调用
queue | 队列 | Choose what happens to messages that arrive during an answer | 设置回答期间收到的消息如何处理
agent | 助手 | Choose who answers in this chat; alone: list them | 选择由谁回答；单独使用则列出全部
pair | 配对 | Let a person write to the bot, by the code that they were given | 凭配对码允许某人给机器人发消息
claim | 认领 | Become the owner of a bot without one, by the code of its start | 凭启动时显示的认领码成为所有者
listen | 启用 | Switch the bot on in this group | 在本群启用机器人
unlisten | 停用 | Switch the bot off in this group | 在本群停用机器人
"""
"""A command's name, its name in Chinese, which neither the help nor a menu lists, and what it does, in both languages."""
WORDS = {name: words for name, *words in (line.split(" | ") for line in _WORDS.strip().splitlines())}
CHINESE_NAMES = {chinese: name for name, (chinese, _, _) in WORDS.items()}
OWNER_ONLY = frozenset({"pair", "listen", "unlisten", "why"})
"""No config opens them further."""
ALIASES = frozenset({"commands", "reset", "models", "start", "reminders"})
"""Other names of commands, which no menu and no help lists."""
SETTINGS = frozenset({"model", "think", "reasoning", "verbose", "queue", "agent"})
"""Commands that set how a chat is answered."""
GROUPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Conversation", "对话", ("new", "stop", "tasks", "retry", "edit", "undo", "compact", "export")),
    ("Answers", "回答", ("model", "think", "reasoning", "verbose", "queue", "agent", "skill")),
    ("You", "你自己", ("remember", "schedules", "status", "usage", "context", "whoami")),
    ("Approvals", "审批", ("approve", "approvals")),
    ("Owners", "所有者", ("pair", "listen", "unlisten", "claim", "why")),
)
"""The lines of `/help`: a heading in both languages, and its commands."""
_ASKING = frozenset({"retry", "edit", "compact", "skill"})


def asks_model(command: str | None) -> bool:
    """True if a message that is this command, or none, leads to a request to a model: it counts towards the rates."""
    return command is None or command in _ASKING
