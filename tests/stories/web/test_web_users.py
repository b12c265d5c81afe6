"""Several people in the web chat: what is one's is nobody else's, through whatever door it is asked for."""

from pathlib import Path

from channels.web.admission import COOKIE
from tests.emulators.models.script import says
from tests.offers import presses
from tests.running import running
from tests.web_page import CHAT, WEB, Page, new_id, opened

TOKENS = {"operator": "o" * 40, "ann": "a" * 40, "bob": "b" * 40}
SERVER = f"server: {{ host: 0.0.0.0, adminToken: {'o' * 40}, users: {{ ann: {'a' * 40}, bob: {'b' * 40} }} }}"
SECRET = "the-heron-lands-at-noon"


def bearer(person: str) -> str:
    return f"Bearer {TOKENS[person]}"


async def everything(page: Page, file: str) -> list[str]:
    """All that a page can ask for, as text, and what it was told unasked."""
    paths = ["/api/chats", f"/api/chats/{CHAT}", f"/api/chats/{CHAT}/export", f"/api/search?words={SECRET}"]
    paths.append(f"/api/chats/{CHAT}/choices")
    answers = [await page.http.get(path) for path in (*paths, f"/api/files/{file}", f"/api/files/{file}?download")]
    return [*(it.text for it in answers), str(page.events)]


async def test_web_users_see_only_their_own(tmp_path: Path) -> None:
    script = [says(f"{SECRET} it is"), says("mine"), says("still mine")]
    async with (
        running(tmp_path, script=script, more=SERVER, feishu=WEB) as house,
        opened(house.url, authorization=bearer("ann")) as ann,
        opened(house.url, authorization=bearer("bob")) as bob,
        opened(house.url, authorization=bearer("operator")) as operator,
    ):
        file = (await ann.upload(SECRET.encode(), f"{SECRET}.txt", "text/plain")).json()["id"]
        assert SECRET not in str(await everything(bob, file))
        assert (await bob.say("look", files=[file])).status_code == 400
        assert (await bob.http.delete(f"/api/files/{file}")).status_code == 404
        assert (await ann.say(f"{SECRET}?", files=[file])).status_code == 200
        await ann.answers(1)
        assert SECRET in str(await everything(ann, file))

        for other in (bob, operator):
            assert SECRET not in str(await everything(other, file))
            assert (await other.say("/export")).status_code == 404
            press = {"id": new_id(), "chat": CHAT, "press": {"token": "ap_1", "message": "m_12345678"}}
            assert (await other.http.post("/webhooks/web/default", json=press)).status_code in (400, 404)
            assert (await other.http.patch(f"/api/chats/{CHAT}", json={"title": "x"})).status_code == 404
            assert (await other.http.delete(f"/api/chats/{CHAT}")).status_code == 404
        assert (await bob.say("hello", chat="c_of_bobs_own")).status_code == 200
        await bob.answers(1)
        assert [it["id"] for it in await bob.chats()] == ["c_of_bobs_own"]
        assert [it["id"] for it in await ann.chats()] == [CHAT]
        assert (await ann.say("and now?")).status_code == 200
        await ann.answers(2)
        assert SECRET not in str(house.anthropic.requests[1].body)
        assert SECRET not in str(bob.events)

        for person in (ann, bob):
            assert (await person.http.get("/api/sessions")).status_code == 403
        listed = (await operator.http.get("/api/sessions")).json()["sessions"]
        assert [(it["chat"], it["channel"]) for it in listed] == [(CHAT, "web"), ("c_of_bobs_own", "web")]
        for person in (ann, bob):
            assert (await person.http.get(f"/api/sessions/{listed[0]['id']}")).status_code == 403
        read = (await operator.http.get(f"/api/sessions/{listed[0]['id']}")).json()
        assert SECRET in read["html"]
        assert (await operator.http.get("/api/sessions/nothing")).status_code == 404


async def test_web_session_cookie_is_per_person_and_token(tmp_path: Path) -> None:
    cookies = {}
    async with running(tmp_path, more=SERVER, feishu=WEB) as house:
        for person, token in TOKENS.items():
            async with opened(house.url, watching=False) as page:
                answer = await page.http.post("/api/session", json={"token": token})
                cookies[person] = {"cookie": f"{COOKIE}={answer.cookies[COOKIE]}"}
                seen = (await page.http.get("/api/chats")).json()
                assert (seen["person"], seen["operator"]) == (
                    ("local", True) if person == "operator" else (person, False)
                )
    changed = SERVER.replace("a" * 40, "c" * 40)
    async with running(tmp_path, more=changed, feishu=WEB) as house:
        for person, status in (("ann", 401), ("bob", 200), ("operator", 200)):
            async with opened(house.url, watching=False, **cookies[person]) as page:
                assert (await page.http.get("/api/chats")).status_code == status


async def test_web_users_of_the_config_are_no_owners(tmp_path: Path) -> None:
    async with running(tmp_path, more=SERVER, feishu=WEB) as house:
        for person, words in (("ann", "web:ann"), ("operator", "web:local")):
            async with opened(house.url, authorization=bearer(person)) as page:
                chat = f"c_of_{person}s"
                assert (await page.say("/whoami", chat=chat)).status_code == 200
                assert words in (await page.answers(1))[0]
                assert (await page.say("/pair list", chat=chat)).status_code == 200
                answer = (await page.answers(2))[1]
                assert ("owner" in answer) == (person == "ann")


CHOICES = f"""
{SERVER}
commands: {{ model: owner, think: owner }}
owners: ["web:local"]
bindings: [{{ agent: reviewer, match: {{ channel: feishu }} }}]
"""
THREE = """
agents:
  list:
    - { id: helper, name: Helper, model: [anthropic/claude-sonnet-4-6, anthropic/claude-opus-4-6] }
    - { id: reviewer, name: Reviewer, model: anthropic/claude-sonnet-4-6 }
"""


async def test_web_settings_follow_each_persons_commands(tmp_path: Path) -> None:
    async with (
        running(tmp_path, script=[says("hi")], agents=THREE, more=CHOICES, feishu=WEB) as house,
        opened(house.url, authorization=bearer("ann")) as ann,
        opened(house.url, authorization=bearer("operator")) as operator,
    ):
        both = ["anthropic/claude-sonnet-4-6", "anthropic/claude-opus-4-6"]
        for page, models, agents in ((ann, both[:1], ["helper"]), (operator, both, ["helper", "reviewer"])):
            assert [it["id"] for it in (await page.http.get("/api/chats")).json()["agents"]] == agents
            offer = (await page.http.get("/api/agents/helper/choices")).json()
            assert (offer["model"], offer["own"], offer["models"]) == (both[0], both[0], models)
            assert bool(offer["levels"]) == (page is operator)
            others = (await page.http.get("/api/agents/reviewer/choices")).status_code
            assert others == (200 if page is operator else 404)
        await operator.say("/model opus")
        await operator.answers(1)
        offer = (await operator.http.get(f"/api/chats/{CHAT}/choices")).json()
        assert (offer["model"], offer["own"]) == (both[1], both[0])
        assert (await ann.http.get(f"/api/chats/{CHAT}/choices")).status_code == 404


async def test_web_users_reach_no_agent_bound_to_others(tmp_path: Path) -> None:
    """The page offers it to no one else, and whoever posts its name by hand is answered by their own."""
    async with (
        running(tmp_path, script=lambda _: says("hi"), agents=THREE, more=CHOICES, feishu=WEB) as house,
        opened(house.url, authorization=bearer("ann")) as ann,
        opened(house.url, authorization=bearer("operator")) as operator,
    ):
        for page, answers in ((ann, "helper"), (operator, "reviewer")):
            await page.say("hello", agent="reviewer", chat=f"c_{answers}0000000000")
            await page.answers(1)
            assert [it["agent"] for it in await page.chats()] == [answers]
        press = {"id": new_id(), "chat": "c_helper0000000000", "press": {"token": "ap_1", "message": "m_12345678"}}
        assert (await ann.http.post("/webhooks/web/default", json=press | {"agent": "reviewer"})).json() == {}
        await house.idle()
        assert [sid.split(":")[2] for sid, _ in presses(house.gateway)] == ["helper"]


async def test_web_conversation_continues_with_an_allowed_agent(tmp_path: Path) -> None:
    """The agent was hers when the conversation began, and its binding has gone to others since."""
    hers = CHOICES.replace("channel: feishu }", "channel: web, sender: ann }")
    chat = "c_ann00000000000000"
    for more, answers in ((hers, "reviewer"), (CHOICES, "helper")):
        async with (
            running(tmp_path, script=lambda _: says("hi"), agents=THREE, more=more, feishu=WEB) as house,
            opened(house.url, authorization=bearer("ann")) as ann,
        ):
            await ann.say("hello", agent="reviewer", chat=chat)
            await house.requested(1)
            await house.idle()
            system = "".join(it["text"] for it in house.anthropic.requests[-1].body["system"])
            assert f"/workspaces/{answers}" in system
            assert (await ann.http.get(f"/api/chats/{chat}/choices")).json()["agent"] == answers
