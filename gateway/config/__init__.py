"""The config: reading it, checking it, and every mistake with its line and its fix."""
