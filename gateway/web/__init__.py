"""The web chat's server side: pages, conversations, uploads and event streams."""
