"""What of an answer is read aloud: prose without code, tables, pictures and addresses, cut at a sentence."""

import pytest

from agents.speech import SpeechConfig, speakable

ANSWER = """# Result

The build **passed** in `3 s`. See [the report](https://ci.example.com/17) or https://ci.example.com/18.

```python
print("never read aloud")
```

| a | b |
|---|---|
| 1 | 2 |

- First step
- Second ![chart](chart.png) step

---
"""


def test_speech_reads_prose_and_skips_code_tables_and_addresses() -> None:
    assert speakable(ANSWER, 1500).split("\n") == [
        "Result",
        "The build passed in 3 s. See the report or",
        "First step",
        "Second step",
    ]


@pytest.mark.parametrize("text", ["", "```\nonly code\n```", "![picture](a.png)", "https://example.com", "—"])
def test_speech_of_an_answer_without_prose_is_nothing(text: str) -> None:
    assert speakable(text, 1500) == ""


@pytest.mark.parametrize(
    ("text", "chars", "spoken"),
    [
        ("One. Two three. Four.", 16, "One. Two three."),
        ("第一句。第二句更长一些。", 6, "第一句。"),
        ("no sentence ends here", 11, "no sentence"),
        ("3.14 is pi. More text follows", 12, "3.14 is pi."),
        ("short", 5, "short"),
    ],
)
def test_speech_is_cut_at_the_last_whole_sentence(text: str, chars: int, spoken: str) -> None:
    assert speakable(text, chars) == spoken
    assert len(spoken) <= chars


def test_speech_of_an_agent_overrides_single_keys() -> None:
    base = SpeechConfig(model="openai/tts-1", mode="mirror", voice="nova")
    own = SpeechConfig.model_validate({"mode": "always"}).over(base)
    assert (own.model, own.mode, own.voice) == ("openai/tts-1", "always", "nova")
