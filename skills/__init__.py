"""Skills: documents that an agent can read, those that ship and those that are pinned from elsewhere."""
