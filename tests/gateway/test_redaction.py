"""What looks like a secret, and what only looks long."""

import random
import string

import pytest

from gateway.observe.secrets import looks_secret, redacted

HEX = "0123456789abcdef"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-AbCdEf0123456789",
        "7000000001:AAExampleExampleExampleExampleExamp1",
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXaMPLEKEy",
        "AIzaSyD4x9b2Kq7Lm3Np5Rt8Vw1Yz6Bc0Df2Gh",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "xoxb-123456789012-AbC1dEf2GhI3jKl4MnO5pQr6",
        "0123a5b6c7d8e9f0a1b2c3d4e5f60718.AbCdEfGh12345678",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    ],
)
def test_what_a_vendor_hands_out_is_struck_out_whole(secret: str) -> None:
    assert looks_secret(secret)
    assert redacted(f'unknown key "{secret}": here') == 'unknown key "***": here'
    assert redacted(f"export API_KEY={secret}").endswith("***")


@pytest.mark.parametrize(
    "word",
    [
        "anthropic/claude-sonnet-4-6-20260101",
        "openrouter/Qwen/Qwen3-235B-A22B-Instruct-2507",
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8",
        "gemini-2.5-flash-preview-09-2025",
        "maxConcurrentTurnsPerChatAndSenderAtMost",
        "claudeSonnetOfTeam20260101",
        "ou_7d8a6e6df7621556ce0d21922b676706",
        "cli_a1b2c3d4e5f6a7b8c9d0",
        "/tmp/x/5ad11d72b830411d72b836c20a1b2c3d/config.yaml",
        "feishu:oc_0123456789abcdef",
        "postgresql://user:password@host:5432/name",
        "CLAWGATE_WEBHOOK_VERIFICATION_TOKEN_2",
        "100000000000000000000000000000",
    ],
)
def test_names_ids_and_paths_are_shown(word: str) -> None:
    assert not looks_secret(word)
    assert redacted(f"({word})") == f"({word})"


@pytest.mark.parametrize(
    ("alphabet", "length"),
    [
        (HEX, 32),
        (HEX, 64),
        (string.ascii_letters + string.digits, 32),
        (string.ascii_letters + string.digits + "-_", 43),
    ],
    ids=["hex 32", "hex 64", "letters and digits 32", "token_urlsafe"],
)
def test_random_words_are_seen_nearly_always(alphabet: str, length: int) -> None:
    chance = random.Random(91827)
    words = ["".join(chance.choices(alphabet, k=length)) for _ in range(1_000)]
    assert sum(map(looks_secret, words)) > 985
