"""The reference case: who writes what to whom, and what the emulated model says to it.

One person in Feishu asks for a script; the model reads the skill, looks around, writes the file and explains it. The
demo plays it, and so does the story test: what is shown is what is tested.
"""

from pathlib import Path

from tests.emulators.models.script import Turn, calls, says

APP_ID = "cli_clawgatedemo0001"
APP_SECRET = "demo-app-secret-not-a-real-one"
ENCRYPT_KEY = "demo-encrypt-key-not-a-real-one"
VERIFICATION_TOKEN = "demo-verification-token"
API_KEY = "demo-key-for-the-emulator"
BOT_OPEN_ID = "ou_b07b07b07b07b07b07b07b07b07b07b0"

SENDER = "ou_881e8247625e31527b4d15a31471504c"
SENDER_NAME = "张三"
CHAT = "oc_7654321098765432109876543210"
MESSAGE_ID = "om_6123456789abcdefghijklmnopqrstu"
ASKED = "帮我写一个 Python 脚本，功能是遍历当前目录所有文件"

SCRIPT_NAME = "list_files.py"
SCRIPT = '''#!/usr/bin/env python3
"""列出当前目录（含子目录）中的所有文件。"""

from pathlib import Path


def list_files(root: Path) -> list[Path]:
    """root 下的所有文件，按路径排序。"""
    return sorted(path for path in root.rglob("*") if path.is_file())


def main() -> None:
    root = Path.cwd()
    for path in list_files(root):
        print(path.relative_to(root))


if __name__ == "__main__":
    main()
'''
ANSWER = (
    f"脚本写好了：`{SCRIPT_NAME}`。\n\n"
    "- 用 `Path.rglob` 遍历当前目录及所有子目录\n"
    "- 只列出文件，按路径排序，打印相对路径\n\n"
    f"运行：`python3 {SCRIPT_NAME}`"
)


def model_script() -> list[Turn]:
    """read → ls → write → text."""
    return [
        calls(("read", {"file_path": "./skills/create-python-script/SKILL.md"})),
        calls(("ls", {"path": "."})),
        calls(("write", {"file_path": SCRIPT_NAME, "content": SCRIPT})),
        says(ANSWER),
    ]


def lay_out(workspace: Path) -> None:
    """What is in the workspace before anybody writes."""
    for folder in ("scripts", "tests"):
        (workspace / folder).mkdir(parents=True)
    (workspace / "README.md").write_text("# 示例项目\n", encoding="utf-8")
    (workspace / "requirements.txt").write_text("", encoding="utf-8")


def config_yaml(*, channel: str, model: str, provider: str) -> str:
    """The user's file of the reference case, pointed at the emulators. `channel` is the platform's block and `provider`
    the line of the model's provider, which is all that differs from one to the other; `model` is how the agent names it.
    """
    return f"""\
logging: {{ level: warning }}
providers:
  {provider}
channels:
{channel}
agents:
  defaults:
    model: {model}
    systemPrompt: |
      你是一个全栈开发助手，擅长编写脚本和解释代码。
      用户当前通过飞书与你对话，请用中文回复。
  list:
    - id: coder
      name: 代码助手
      workspaceDir: ./data/workspaces/coder
      tools: {{ allow: [read, write, edit, ls, exec, message] }}
      skills: {{ allow: [create-python-script] }}
"""
