"""Mistral's chat API, over plain HTTP: its own SDK serves only as a judge in the tests."""
