"""The web chat as a channel: who is signed in, the archive of conversations, and what pages are shown live."""
