"""What a SKILL.md says of itself, in the many ways people write one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skills.frontmatter import BadSkill, Requirements, SkillHead, read_head

NOTHING = Requirements()


@pytest.mark.parametrize(
    ("text", "name", "description"),
    [
        ("---\nname: a\ndescription: Does it.\n---\n# Title\n", "a", "Does it."),
        ("\ufeff---\r\nname: a\r\ndescription: Does it.\r\n---\r\nText.", "a", "Does it."),
        ("---\ndescription: >-\n  Two\n  lines.\n---", None, "Two lines."),
        ('---\ndescription: "a: b # c"\nversion: 012\nuser-invocable: no\n---\n', None, "a: b # c"),
        ("---\ndescription: yes\n...\n", None, "yes"),
        ("---\nname: a\n---\n# Title\n\nFirst sentence. Second.", "a", "Title: First sentence."),
        ("---\n---\n# Title\n", None, "Title"),
        ("# 写周报 #\n\n把零散的记录整理成周报。第二句。\n", None, "写周报: 把零散的记录整理成周报。"),
        ("Version 1.5 does it! And more.", None, "Version 1.5 does it!"),
        ("First line\nsecond line\n\nanother paragraph.", None, "First line second line"),
        ("## Deep\ntext without a full stop\n# Other\n", None, "Deep: text without a full stop"),
        (f"---\ndescription: {'x' * 5_000}\n---\n", None, "x" * 1_023 + "…"),
        ('---\ndescription: "a\\u2028b\\u202E\\u200Bc\\x7F d"\n---\n', None, "a b c d"),
    ],
)
def test_name_and_description_are_found(text: str, name: str | None, description: str) -> None:
    assert read_head(text) == SkillHead(name=name, description=description, requires=NOTHING)


def test_requirements_of_all_places_count_together() -> None:
    text = """---
description: a
requires: {bins: [git], os: [MacOS]}
metadata:
  requires: {bins: [jq, git]}
  other: {requires: {env: [TOKEN]}, emoji: x}
  third: text
---
"""
    assert read_head(text).requires == Requirements(bins=("git", "jq"), env=("TOKEN",), os=("darwin",))


_WORDS = ["---", "\n", ": ", "a", "name", "description", "requires", "&x", "*x", "!!t", "- ", "...", "<<", "\ud800"]
_pieces = st.sampled_from([*"[]{}'\"#|>\t?%@`\x00 ", *_WORDS])


@given(st.lists(_pieces, max_size=24).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"---\n{text}\n---\n{text}"):
        try:
            head = read_head(whole)
        except BadSkill:
            continue
        assert head.description
        assert len(head.description.splitlines()) == 1
