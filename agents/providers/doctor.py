"""Checks a provider's keys, and the models that the config names, by the provider's list of models, which is free. A
name missing from it may still be valid, such as a deployment's, so that is a warning."""

import asyncio
import difflib
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from agents.messages import ModelError
from agents.providers.catalog import wire_of
from agents.providers.config import ProviderConfig, reason_of
from agents.providers.http import http_client
from agents.providers.network import WireSpec
from agents.providers.payload import objects_of
from agents.providers.refusals import RequestRefused, failure_of
from channels.bilingual import Bilingual, Finding

LIST_BYTES_MAX = 8 * 1024 * 1024


async def probe(
    name: str, config: ProviderConfig, models: Sequence[str], *, seconds: float, key_fix: Bilingual
) -> list[Finding]:
    """Return the findings of each key. `models`: the configured names; `key_fix`: where a key is set."""
    wire, keys = wire_of(name, config), config.keys
    if not keys and not wire.keyless:
        message = Bilingual("there is no key, so nothing can be answered", "没有密钥，因此无法回答")
        return [Finding(f"provider {name}", "error", message, key_fix)]
    numbered = [(f" key {number}" if len(keys) > 1 else "", key) for number, key in enumerate(keys or ("",), start=1)]
    answers = await asyncio.gather(*(listed(name, config, key, seconds=seconds) for _, key in numbered))
    findings = []
    for (label, _), answer in zip(numbered, answers, strict=True):
        check = f"provider {name}{label}"
        if isinstance(answer, ModelError):
            findings.append(_refused(check, answer, wire, key_fix))
        else:
            right = Bilingual("the key is right", "密钥正确") if keys else Bilingual("answers", "有应答")
            count = len(answer)
            findings.append(Finding(check, "ok", Bilingual(f"{right}; {count} models", f"{right.zh}；{count} 个模型")))
    offered = {it for answer in answers if not isinstance(answer, ModelError) for it in answer}
    return [*findings, *_unknown(name, models, offered)] if offered else findings


async def listed(name: str, config: ProviderConfig, key: str, *, seconds: float) -> ModelError | list[str]:
    """Return the models that the provider lists for this key, or the error."""
    import httpx

    wire, config = wire_of(name, config), config.but(timeout_seconds=seconds)
    headers = {**wire.models_headers, **config.headers, **dict([wire.key_header(key)] if key else [])}
    try:
        async with (
            asyncio.timeout(config.timeout_seconds),
            http_client(config, wire.models_url, httpx, headers=headers) as client,
        ):
            if wire.key_url:
                await client.get(wire.key_url)
            body = await _read(client, wire.models_url)
        return [*_names(json.loads(body))]
    except RequestRefused as refused:
        return failure_of(refused.body, refused.status, refused.headers, time.time()).error
    except (httpx.HTTPError, TimeoutError) as error:
        return ModelError(kind="network", summary=type(error).__name__, retryable=True)
    except (ValueError, RecursionError):
        return ModelError(kind="invalid", summary="its answer is no list of models", retryable=False)


async def _read(client: Any, url: str) -> bytes:
    """Read the body. Raises ValueError if it is too long."""
    body = b""
    response = await client.send(client.build_request("GET", url), stream=True)
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > LIST_BYTES_MAX:
                raise ValueError
    finally:
        await response.aclose()
    return body


def _names(answer: object) -> Iterator[str]:
    """Yield the model names: OpenAI-like APIs have `data`, Gemini has `models`. Raises ValueError."""
    if not isinstance(answer, dict) or not isinstance(answer.get("data", answer.get("models")), list):
        raise ValueError
    for model in objects_of(answer, "data") or objects_of(answer, "models"):
        aliases = model.get("aliases")
        for name in (model.get("id") or model.get("name"), *(aliases if isinstance(aliases, list) else ())):
            if isinstance(name, str):
                yield name.removeprefix("models/")


def _refused(check: str, error: ModelError, wire: WireSpec, key_fix: Bilingual) -> Finding:
    if error.kind in ("auth", "billing"):
        reason = reason_of(error.kind)
        message = Bilingual(f"{reason} ({error.summary})", f"{reason.zh}（{error.summary}）")
        return Finding(check, "error", message, key_fix)
    if error.kind == "network":
        fix = Bilingual(
            "is baseUrl right, and does this machine reach it? A proxy is named in HTTPS_PROXY",
            "baseUrl 是否正确？本机能否访问它？代理写在 HTTPS_PROXY 中",
        )
        message = Bilingual(f"cannot be reached ({error.summary})", f"无法连接（{error.summary}）")
        return Finding(check, "error", message, fix)
    if error.retryable:
        message = Bilingual(
            f"busy ({error.summary}), so the key was not tried", f"繁忙（{error.summary}），因此没有试用密钥"
        )
        return Finding(check, "warning", message, Bilingual("try again", "请再试一次"))
    fix = Bilingual(
        "is baseUrl right? With /v1 for openai-*, without it for anthropic and mistral. Some servers have no such list",
        "baseUrl 是否正确？openai-* 要带 /v1，anthropic 和 mistral 不带。有些服务器没有模型列表",
    )
    message = Bilingual(
        f"its list of models cannot be read ({error.summary}), so nothing was tried",
        f"无法读取它的模型列表（{error.summary}），因此没有检查",
    )
    return Finding(check, "warning", message, fix)


def _unknown(provider: str, models: Sequence[str], offered: set[str]) -> Iterator[Finding]:
    for model in models:
        if not any(_is_named(model, it) for it in offered):
            near = next(iter(difflib.get_close_matches(model, sorted(offered), n=1)), None)
            fix = Bilingual("see the names in the vendor's console", "请在厂商的控制台查看模型名称")
            if near:
                fix = Bilingual(f"did you mean {provider}/{near}?", f"是否想写 {provider}/{near}？")
            message = Bilingual("is not in the provider's list of models", "不在厂商的模型列表中")
            yield Finding(f"model {provider}/{model}", "warning", message, fix)


def _is_named(model: str, offered: str) -> bool:
    """Match short names of dated ones (`claude-x-20260101`), local tags (`x:latest`) and router suffixes after a colon."""
    stem = model.removesuffix("-latest")
    return offered in (model, model.partition(":")[0]) or offered.startswith((f"{stem}-2", f"{model}:"))
