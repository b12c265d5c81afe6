"""The causes for which a Feishu app receives nothing, each with its next step, and the one that an error means."""

from collections.abc import Mapping

from channels.bilingual import Bilingual
from channels.channel import DeliveryError, Refused
from channels.condition import Cause

WRONG_CREDENTIALS = frozenset({"514", "10003", "10014", "1000040344"})
"""The app id or the secret is wrong."""
_ENCRYPTION = "事件与回调 → 加密策略"

CAUSES: Mapping[str, Cause] = {
    "credentials": Cause(
        "refused",
        Bilingual("the app id or secret is wrong", "App ID 或 App Secret 不正确"),
        Bilingual(
            "are {at}.appId and {at}.appSecret those of the console, and is {at}.baseUrl right for this app?",
            "{at}.appId 和 {at}.appSecret 与开发者后台的一致吗？{at}.baseUrl 适用于该应用吗？",
        ),
    ),
    "console": Cause(
        "refused",
        Bilingual("Feishu refuses this app", "飞书拒绝了该应用"),
        Bilingual("see the app in the developer console", "请在开发者后台检查该应用"),
    ),
    "network": Cause(
        "unreachable",
        Bilingual("Feishu cannot be reached", "无法连接飞书"),
        Bilingual("is {at}.baseUrl right, and does a proxy let it through?", "{at}.baseUrl 是否正确？是否有代理拦截？"),
    ),
    "encryptKey": Cause(
        "refused",
        Bilingual("the signature is wrong", "推送的签名不正确"),
        Bilingual(
            "is {at}.encryptKey the one in the console? Events & Callbacks → Encryption Strategy has it",
            f"{{at}}.encryptKey 与开发者后台的一致吗？见“{_ENCRYPTION}”",
        ),
    ),
    "unsigned": Cause(
        "refused",
        Bilingual("the signature is missing", "推送没有签名"),
        Bilingual(
            "is an Encrypt Key set in the console? Enter that of {at}.encryptKey under Events & Callbacks → Encryption "
            "Strategy",
            f"开发者后台设置了 Encrypt Key 吗？请在“{_ENCRYPTION}”中填入 {{at}}.encryptKey 的值",
        ),
    ),
    "keyless": Cause(
        "refused",
        Bilingual("the console encrypts, and no key is set here", "开发者后台启用了加密，而此处没有密钥"),
        Bilingual(
            "set {at}.encryptKey to the Encrypt Key of the console", "请将 {at}.encryptKey 设为开发者后台的 Encrypt Key"
        ),
    ),
    "verificationToken": Cause(
        "refused",
        Bilingual("the verification token is wrong", "Verification Token 不正确"),
        Bilingual(
            "is {at}.verificationToken the one in the console? Events & Callbacks → Encryption Strategy has it",
            f"{{at}}.verificationToken 与开发者后台的一致吗？见“{_ENCRYPTION}”",
        ),
    ),
    "appId": Cause(
        "refused",
        Bilingual("the events are another app's", "收到的是另一个应用的事件"),
        Bilingual(
            "is {at}.appId the app whose console names this address?", "该地址是填写在 {at}.appId 的开发者后台中的吗？"
        ),
    ),
    "clock": Cause(
        "refused",
        Bilingual("the signature is too old", "推送的签名已过期"),
        Bilingual(
            "is this machine's clock right? Otherwise see {at}.timestampWindowSeconds",
            "本机时钟准确吗？否则请检查 {at}.timestampWindowSeconds",
        ),
    ),
    "unanswered": Cause(
        "silent",
        Bilingual("no gateway answers at server.publicUrl", "server.publicUrl 处没有网关应答"),
        Bilingual(
            "let its name and the proxy lead to this gateway; a first delivery of Feishu ends this, too",
            "请让该域名和代理指向本网关；收到飞书的第一条推送后也会恢复",
        ),
    ),
}


def cause_of(error: DeliveryError) -> str:
    if error.code in WRONG_CREDENTIALS:
        return "credentials"
    return "console" if isinstance(error, Refused) else "network"
