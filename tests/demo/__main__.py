"""`make demo`: one message, layer by layer, offline. `ARGS="--api mistral --channel telegram"`, `ARGS=--json`."""

import argparse
import asyncio

from gateway.observe import logs
from gateway.observe.scrubber import Scrubber
from tests.demo.makers import MAKERS
from tests.demo.platforms import PLATFORMS
from tests.demo.play import play
from tests.demo.show import show


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--api", choices=MAKERS, default="anthropic-messages", help="the wire the model speaks")
    parser.add_argument("--channel", choices=PLATFORMS, default="feishu", help="where the message is written")
    parser.add_argument("--json", action="store_true", help="one JSON document for programs")
    chosen = parser.parse_args()
    logs.configure(level="warning", output="console", scrubber=Scrubber())
    show(asyncio.run(play(MAKERS[chosen.api], PLATFORMS[chosen.channel]())), as_json=chosen.json)


if __name__ == "__main__":
    main()
