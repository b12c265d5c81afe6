"""Feishu's open platform as a tool: the areas that the config names, and one call as the person or as the app."""
