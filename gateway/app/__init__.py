"""One gateway as a whole: what it is built of, how it starts, reloads and stops."""
