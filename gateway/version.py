"""The version, where the container finds it too: pyproject.toml stays outside. A test holds the two together."""

VERSION = "0.1.0"
