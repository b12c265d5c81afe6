"""The web as tools: search and fetch, under rules that also apply to the proxy of sandboxed commands."""
