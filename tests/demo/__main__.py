"""`make demo`: one message through the gateway, offline. `ARGS="--api mistral --channel telegram"`, `ARGS=--full`."""

import argparse
import asyncio

from gateway.observe import logs
from gateway.observe.secrets import Scrubber
from tests.demo.makers import MAKERS
from tests.demo.platforms import PLATFORMS
from tests.demo.play import play
from tests.demo.show import show


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--api", choices=MAKERS, default="anthropic-messages", help="the wire the model speaks")
    parser.add_argument("--channel", choices=PLATFORMS, default="feishu", help="where the message is written")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--full", dest="shape", action="store_const", const="full", help="every layer, as it was")
    shape.add_argument("--json", dest="shape", action="store_const", const="json", help="one document for programs")
    chosen = parser.parse_args()
    logs.configure(level="warning", output="console", scrubber=Scrubber())
    show(asyncio.run(play(MAKERS[chosen.api], PLATFORMS[chosen.channel]())), chosen.shape or "tale")


if __name__ == "__main__":
    main()
