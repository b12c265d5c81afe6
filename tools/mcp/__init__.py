"""MCP servers as tools: their lifecycle, a client on the official SDK, and checked definitions."""
