"""Turns: the lanes that run them, the journal that persists each step, and the code that builds an answer."""
