"""The sandbox: its walls, what commands see in it, and how a command is launched."""
