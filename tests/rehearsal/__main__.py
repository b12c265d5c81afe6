"""`make rehearsal`: a Telegram and a Feishu on this machine, four people to be, and a gateway between them."""

import argparse
import asyncio
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.loopback import serve_on_loopback
from tests.rehearsal.server import page_app
from tests.rehearsal.stage import machine, stage

PORT = 8099
ABOUT = """\
Rehearsal: a Telegram and a Feishu that run on this machine alone. Nobody outside reads along.

  open       {page}
             Ann and Ben on Telegram, 王磊 and 李娜 on Feishu, and the terminal of the gateway
  gateway    {gateway}/ is its own page, {gateway}/console its console
  config     {config}; an edit takes effect while it runs
  stop       Ctrl-C{left}
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="make rehearsal", description=__doc__)
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="keep config and database in this folder")
    parser.add_argument("--port", type=int, default=PORT, help=f"of the page; else {PORT}, or the next free one")
    parser.add_argument("--demo", action="store_true", help="the built-in demo model, also where there is a key")
    chosen = parser.parse_args()
    with ExitStack() as end:
        if chosen.keep:
            chosen.keep.mkdir(parents=True, exist_ok=True)
        folder = chosen.keep or Path(end.enter_context(tempfile.TemporaryDirectory(prefix="clawgate-rehearsal-")))
        asyncio.run(rehearse(folder.resolve(), port=chosen.port, demo=chosen.demo, kept=bool(chosen.keep)))


async def rehearse(folder: Path, *, port: int, demo: bool, kept: bool) -> None:
    """Until Ctrl-C."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    env = machine() | ({"CLAWGATE_MODEL": "demo/guide"} if demo else {})
    async with stage(folder, env) as scene:
        try:
            serving = serve_on_loopback(page_app(scene), port=port)
            page = await serving.__aenter__()
        except OSError:
            serving = serve_on_loopback(page_app(scene))
            page = await serving.__aenter__()
        left = "" if kept else "; nothing is left behind"
        sys.stdout.write(ABOUT.format(page=page, gateway=scene.program.url, config=scene.program.config, left=left))
        sys.stdout.flush()
        await ended.wait()
        sys.stdout.write("\nStopping ...\n")
        await serving.__aexit__(None, None, None)


if __name__ == "__main__":
    main()
