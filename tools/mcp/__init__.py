"""MCP servers as tools: their life, the official SDK behind a client of ours, and checked definitions."""
