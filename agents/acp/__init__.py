"""Agents that other programs run, over the Agent Client Protocol: one process for each session."""
