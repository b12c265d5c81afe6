"""Programs' door: `/v1`, as the OpenAI API has it."""
