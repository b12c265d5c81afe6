"""The web as tools: search and fetch, within rules that also hold for the proxy of sandboxed commands."""
