"""The sandbox: where commands run, what they see, and how this machine confines them."""
