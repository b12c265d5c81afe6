"""The API channel: a program's call over `/v1` or `/mcp` as a message, and its answer as that of the call."""
