"""Token counts as providers give them: whatever is no count is none."""


def count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
