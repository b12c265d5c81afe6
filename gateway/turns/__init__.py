"""Turns: lanes that run them, the journal that keeps each step, and what an answer is made of."""
