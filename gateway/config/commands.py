"""The chat commands by name, with their descriptions for users."""

_WORDS = """
help | 帮助 | List the commands | 列出可用的命令
commands | 命令 | Explain every command | 说明所有命令
start | 开始 | Say hello | 打个招呼
new | 新对话 | Start a new conversation | 开始新的对话
reset | 重置 | Start a new conversation | 开始新的对话
stop | 停止 | Stop the answer, waiting messages and tasks, or one task | 停止当前回答、排队的消息和任务，或某一个任务
tasks | 任务 | List the tasks of this conversation | 列出本次对话的任务
schedules | 定时 | List your reminders and schedules, or cancel one | 列出你的提醒和定时任务，或取消其中一个
reminders | 提醒 | List your reminders and schedules, or cancel one | 列出你的提醒和定时任务，或取消其中一个
retry | 重试 | Answer the last message again | 重新回答上一条消息
edit | 修改 | Edit your last message and get a new answer | 修改上一条消息并重新回答
undo | 撤销 | Remove the last message and its answer from the conversation | 从对话中撤销上一条消息及其回答
compact | 压缩 | Summarise the older part of the conversation | 压缩较早的对话
remember | 记住 | Save a note about yourself, or list your notes | 记一条关于自己的笔记；单独发送则列出全部
skill | 技能 | Use a skill, or list them | 使用一个技能；单独发送则列出全部
approve | 审批 | Allow or deny a tool call that waits for approval | 允许或拒绝等待审批的工具调用
approvals | 待审批 | List what waits for your approval and what you always allow | 列出等待你审批的请求和始终允许的调用
export | 导出 | Get the conversation as a Markdown file | 将对话导出为 Markdown 文件
status | 状态 | Show the agent, the model and what is in progress | 显示当前的智能体、模型和处理进度
context | 上下文 | Show what fills the model's context | 显示模型上下文的构成
usage | 用量 | Show tokens and cost | 显示用量和费用
whoami | 我是谁 | Show who you are here: role, agent, language, ID | 显示你在这里的身份：角色、智能体、语言、ID
login | 登录 | Log in, so that tools act as you | 登录，让工具以你的身份操作
logout | 登出 | Delete your login | 删除你的登录
mydata | 我的数据 | Get everything that I hold about you as a file | 以文件形式获取我保存的关于你的全部数据
forget | 忘记 | Erase everything that I hold about you | 删除我保存的关于你的全部数据
good | 好评 | Rate the last answer as good | 给上一个回答好评
bad | 差评 | Rate the last answer as bad, and say why | 给上一个回答差评，并说明原因
why | 为什么 | Explain how the last answer was made (owners only) | 说明上一个回答的由来（仅限所有者）
human | 人工 | Ask for a human colleague, who answers here | 请人工同事来这里回答
back | 交还 | Give a chat that a colleague answers back to the agent | 将同事接手的聊天交还给智能体
model | 模型 | Choose the model of this conversation, or list the models | 为本次对话选择模型；单独发送则列出全部
models | 模型列表 | List the models | 列出可选的模型
think | 思考 | Set how hard the model thinks | 设置思考强度
reasoning | 推理 | Show or hide the model's reasoning above its answers | 在回答上方显示或隐藏思考过程
verbose | 详细 | Show or hide tool calls above the answers | 在回答上方显示或隐藏工具调用
queue | 队列 | Choose what happens to messages that arrive during an answer | 设置回答期间收到的消息如何处理
agent | 智能体 | Choose who answers in this chat, or list the agents | 选择由谁在此回答；单独发送则列出全部
pair | 配对 | Approve someone by their pairing code | 凭配对码批准某人使用机器人
claim | 认领 | Become an owner with a code, or get one for your other account | 凭认领码成为所有者；所有者可为另一个账号取码
listen | 启用 | Switch the bot on in this group | 在本群启用机器人
unlisten | 停用 | Switch the bot off in this group | 在本群停用机器人
"""
"""Name, Chinese alias (in no help or menu), and the description in both languages."""
WORDS = {name: words for name, *words in (line.split(" | ") for line in _WORDS.strip().splitlines())}
CHINESE_NAMES = {chinese: name for name, (chinese, _, _) in WORDS.items()}
OWNER_ONLY = frozenset({"pair", "listen", "unlisten", "why"})
"""Commands that the config can switch off but not open to everyone."""
ALIASES = frozenset({"commands", "reset", "models", "start", "reminders"})
"""Aliases, which no menu or help lists."""
SETTINGS = frozenset({"model", "think", "reasoning", "verbose", "queue", "agent"})
"""Commands that set how a chat is answered."""
GROUPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Conversation", "对话", ("new", "stop", "tasks", "retry", "edit", "undo", "compact", "export", "human", "back")),
    ("Answers", "回答", ("model", "think", "reasoning", "verbose", "queue", "agent", "skill", "good", "bad")),
    ("You", "个人", ("remember", "schedules", "status", "usage", "context", "whoami", "login", "logout")),
    ("Privacy", "隐私", ("mydata", "forget")),
    ("Approvals", "审批", ("approve", "approvals")),
    ("Owners", "所有者", ("pair", "listen", "unlisten", "claim", "why")),
)
"""The sections of `/help`: the heading in both languages, and its commands."""
_ASKING = frozenset({"retry", "edit", "compact", "skill"})


def asks_model(command: str | None) -> bool:
    """Return whether a message with this command, or without any, asks a model and so counts towards rate limits."""
    return command is None or command in _ASKING
