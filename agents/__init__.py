"""Agents: one turn of a model with its tools, from the request to the last word of the answer.

A turn loops over model calls; each request is fitted into the window, its history repaired, older turns summarised.
"""
