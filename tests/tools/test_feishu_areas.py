"""The table of what the tool `feishu` may call: paths in disguise, closed areas, denied changes."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from channels.message import Chat, DocumentLink, MessageContext, Sender
from tools.feishu.areas import ENDPOINTS, ROOT, Area, endpoint_of, joined, segments_of
from tools.feishu.config import FeishuToolConfig
from tools.feishu.tool import FeishuTool
from tools.tool import Call, ToolError

ALL: tuple[Area, ...] = ("docs", "wiki", "sheets", "bitable", "calendar", "tasks", "contacts", "messages")
SENSITIVE = ("im:message.send_as_user", "space:document:delete", "calendar:calendar.event:delete", "base:table:delete")
MESSAGE = MessageContext(
    channel="feishu",
    account="default",
    chat=Chat(id="oc_1", kind="direct"),
    message_id="om_1",
    sender=Sender(id="ou_1"),
    text="",
    sent_at=datetime.fromtimestamp(0, UTC),
)


class Unused:
    """`tools.identity.Identities` that is never asked."""

    def address(self, account: str) -> str:
        raise NotImplementedError

    def links(self, account: str, text: str) -> tuple[DocumentLink, ...]:
        raise NotImplementedError

    async def app_token(self, account: str, refused: str = "") -> str:
        raise NotImplementedError

    async def token(self, call: Call, account: str, **_: Any) -> str:
        raise NotImplementedError

    async def missing(self, call: Call, account: str, scopes: Sequence[str]) -> ToolError:
        raise NotImplementedError

    async def app_lacks(self, account: str, scopes: Sequence[str]) -> ToolError:
        raise NotImplementedError


def tool(**config: Any) -> FeishuTool:
    return FeishuTool(FeishuToolConfig.model_validate({"areas": ALL, **config}), Unused())


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/open-apis/task/v2/tasks",
        "//evil.example/task/v2/tasks",
        "/open-apis/task/v2/../v2/tasks",
        "/open-apis/task/v2/%2e%2e/v2/tasks",
        "/open-apis/task/./v2/tasks",
        "/open-apis//task/v2/tasks",
        "/open-apis/task/v2/tasks/",
        "/open-apis/task/v2/tasks?page_size=1",
        "/open-apis/task/v2/tasks%3Fa=1",
        "/open-apis/task/v2/tasks#a",
        "/open-apis/task%2Fv2/tasks",
        "/open-apis/task%252Fv2/tasks",
        "/open-apis/task\\v2\\tasks",
        "/open-apis/task/v2/tasks\n",
        "/open-apis/task/v2/ta\u200bsks",
        "/OPEN-APIS/task/v2/tasks",
        "/open-apis/open-apis/task/v2/tasks",
        "/open-apis/Task/v2/tasks",
        "/open-apis/task/v2/tasks/" + "a" * 1_000,
        "",
    ],
)
def test_path_in_disguise_is_refused(path: str) -> None:
    if path.endswith("\n"):
        assert joined(segments_of(path)) == f"{ROOT}task/v2/tasks"  # white space around it is dropped
        return
    with pytest.raises(ToolError):
        endpoint_of("GET", segments_of(path), ALL)


@pytest.mark.parametrize("area", ALL)
def test_areas_open_their_own_calls_alone(area: Area) -> None:
    for endpoint in ENDPOINTS:
        path = ROOT + "/".join("x1" if it.startswith(":") else it for it in endpoint.path.split("/"))
        if endpoint.area == area:
            assert endpoint_of(endpoint.method, segments_of(path), (area,)) == endpoint
        else:
            with pytest.raises(ToolError, match="opened the area"):
                endpoint_of(endpoint.method, segments_of(path), (area,))


def test_table_has_no_sensitive_permission_and_no_delete() -> None:
    scopes = {scope for it in ENDPOINTS for scope in it.scopes}
    assert scopes.isdisjoint(SENSITIVE)
    assert {it.method for it in ENDPOINTS} == {"GET", "POST", "PUT", "PATCH"}
    assert all(it.scopes for it in ENDPOINTS)
    for it in ENDPOINTS:
        is_read = it.method == "GET" or it.path.endswith(("search", "primary", "freebusy/list", "freebusy/batch"))
        assert it.writes is not is_read, it


def test_identifiers_keep_their_characters() -> None:
    path = "/open-apis/calendar/v4/calendars/feishu.cn_a@group.calendar.feishu.cn/events/instance_view"
    assert joined(segments_of(path)) == joined(segments_of(path.replace("@", "%40"))) == path
    sheet = "/open-apis/sheets/v2/spreadsheets/shtA/values/0b1!A1:B2"
    assert joined(segments_of(sheet)) == sheet


@pytest.mark.parametrize(
    ("method", "path", "effect"),
    [
        ("GET", "task/v2/tasks", "safe"),
        ("POST", "task/v2/tasks", "keyed"),
        ("POST", "calendar/v4/calendars/c/events", "keyed"),
        ("PATCH", "task/v2/tasks/t", "once"),
        ("POST", "search/v2/doc_wiki/search", "safe"),
    ],
)
def test_effect_is_that_of_the_call(method: str, path: str, effect: str) -> None:
    assert tool().effect_of({"method": method, "path": path}) == effect


def test_denied_changes_and_bad_arguments_are_refused() -> None:
    for given, code in (
        ({"method": "POST", "path": "task/v2/tasks"}, "NOT_ALLOWED"),
        ({"method": "DELETE", "path": "task/v2/tasks/t"}, "INVALID_ARGUMENT"),
        ({"method": "GET", "path": "task/v2/tasks", "body": {"a": 1}}, "INVALID_ARGUMENT"),
        ({"method": "GET", "path": "task/v2/tasks", "query": {"a": [1]}}, "INVALID_ARGUMENT"),
        ({"method": "GET", "path": "task/v2/tasks", "host": "evil.example"}, "INVALID_ARGUMENT"),
        ({"method": "PUT", "path": "task/v2/tasks"}, "INVALID_ARGUMENT"),
        ({"method": "GET", "path": "drive/v1/files"}, "NOT_ALLOWED"),
    ):
        with pytest.raises(ToolError) as refused:
            tool(write="deny").parse(given)
        assert refused.value.code == code, given


def test_approval_shows_the_call_exactly_and_belongs_to_the_person() -> None:
    given = {"method": "PATCH", "path": "task/v2/tasks/t", "query": {"a": True}, "body": {"task": {"summary": "买灯"}}}
    call = Call(id="c", key="k", message=MESSAGE)
    subject = tool().subject(tool().parse(given), call)
    assert subject is not None
    assert (subject.decider, subject.always) == ("feishu:ou_1", False)
    assert subject.text.startswith('PATCH /open-apis/task/v2/tasks/t\na = true\n\n{\n  "task": {')
    assert "买灯" in subject.text
    as_app = tool(**{"as": "app"}).subject(tool().parse(given), call)
    assert as_app is not None
    assert as_app.decider == ""
    assert tool(write="allow").subject(tool().parse(given), call) is None
    with pytest.raises(ToolError, match="no single person"):
        tool().subject(tool().parse(given), Call(id="c", key="k", message=MESSAGE, several=True))


LEFT_OUT = ("sheets/v2/", "search/v1/user")
"""APIs of which the official SDK has no requests."""


def test_table_agrees_with_the_official_sdk() -> None:
    """Each call is a request there, by method and path; so are the places of the idempotency keys."""
    (sdk,) = find_spec("lark_oapi").submodule_search_locations  # type: ignore[union-attr, misc]
    known = set()
    for file in Path(sdk, "api").rglob("*_request.py"):
        text = file.read_text(encoding="utf-8")
        method, path = re.search(r"HttpMethod\.(\w+)", text), re.search(r'\.uri = \(?\s*"/open-apis/([^"]+)"', text)
        if method and path:
            known.add((method[1], free(path[1])))
    assert len(known) > 1_000
    unknown = [it for it in ENDPOINTS if not it.path.startswith(LEFT_OUT) and (it.method, free(it.path)) not in known]
    assert unknown == []
    for name, key in (("calendar/v4/model/create_calendar_event_request", "idempotency_key"), TASK_KEY):
        assert f"self.{key}:" in Path(sdk, "api", f"{name}.py").read_text(encoding="utf-8")


TASK_KEY = ("task/v2/model/input_task", "client_token")


def free(path: str) -> str:
    return re.sub(r":\w+", ":", path)
