"""Which skills an agent is shown, from folders as people and their agents make them."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from skills.catalog import LISTED_MAX, AgentSkillsConfig, Skill, SkillCatalog, render, visible

LONG_AGO = 1_700_000_000_000_000_000


def put(root: Path, folder: str, text: str, mtime_ns: int = LONG_AGO) -> Path:
    path = root / folder / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def document(name: str, description: str = "Does things.", more: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n# Title\n\nText.\n"


def catalog(*roots: Path, env: Mapping[str, str] | None = None, bins: Sequence[str] = ()) -> SkillCatalog:
    return SkillCatalog(
        roots, env=env or {}, which=lambda name: f"/bin/{name}" if name in bins else None, platform="linux"
    )


def test_a_skill_is_listed_with_all_that_the_model_needs_to_read_it(tmp_path: Path) -> None:
    text = document("greet", "Say hello. 打招呼")
    put(tmp_path, "greet", text)
    (skill,) = catalog(tmp_path).scan()
    assert skill == Skill(
        name="greet",
        description="Say hello. 打招呼",
        directory=tmp_path / "greet",
        version=hashlib.sha256(text.encode()).hexdigest()[:12],
        source="shared",
    )
    assert skill.location == "./skills/greet/SKILL.md"


def test_skills_come_by_name_and_later_folders_win(tmp_path: Path) -> None:
    shipped, ours, workspace = tmp_path / "shipped", tmp_path / "ours", tmp_path / "workspace"
    for folder, name in [(shipped, "a"), (shipped, "b"), (shipped, "c"), (ours, "b"), (ours, "c")]:
        put(folder, name, document(name, folder.name))
    put(workspace / "skills", "c", document("c", "mine"))
    found = catalog(shipped, ours)
    assert [(skill.name, skill.description, skill.source) for skill in found.scan(workspace)] == [
        ("a", "shipped", "shared"),
        ("b", "ours", "shared"),
        ("c", "mine", "workspace"),
    ]
    assert [skill.description for skill in found.scan()] == ["shipped", "ours", "ours"]
    assert [skill.description for skill in found.scan(tmp_path / "another")] == ["shipped", "ours", "ours"]


def test_what_is_no_skill_is_passed_over_quietly(tmp_path: Path) -> None:
    (tmp_path / "catalog.py").write_text("")
    (tmp_path / "notes").mkdir()
    put(tmp_path, "__pycache__", document("cache"))
    put(tmp_path, ".git", document("git"))
    with capture_logs() as logs:
        assert catalog(tmp_path, tmp_path / "nowhere").scan(tmp_path / "nobody") == ()
    assert logs == []


@pytest.mark.parametrize(
    ("folder", "written", "name"),
    [
        ("greet", "hello", "hello"),
        ("greet", "x" * 65, "greet"),
        ("greet", "../up", "greet"),
        ("greet", '""', "greet"),
        ("greet", "[a, b]", "greet"),
        ("9-lives_2", "-x", "9-lives_2"),
    ],
)
def test_a_name_that_is_no_name_gives_way_to_the_folders(tmp_path: Path, folder: str, written: str, name: str) -> None:
    put(tmp_path / "skills", folder, document(written))
    assert [skill.name for skill in catalog(tmp_path / "skills").scan()] == [name]
    (own,) = catalog().scan(tmp_path)  # in a workspace it goes by its folder, because it is read in place
    assert own.location == f"./skills/{folder}/SKILL.md"


def test_a_folder_has_the_first_right_to_its_own_name(tmp_path: Path) -> None:
    put(tmp_path, "a", document("b", "from a"))
    put(tmp_path, "b", document("b", "from b"))
    put(tmp_path, "c", document("d", "from c"))
    put(tmp_path, "e", document("d", "from e"))
    with capture_logs() as logs:
        found = {skill.name: skill.description for skill in catalog(tmp_path).scan()}
    assert found == {"a": "from a", "b": "from b", "d": "from c"}
    assert [entry["reason"] for entry in logs] == ["there are two named d"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"---\nname: x\n", "the front matter has no closing ---"),
        (b"---\nname: x: y\n---\n", "line 2 is not YAML"),
        (b"---\n- a\n---\n", "not a list of keys and values"),
        (b"---\na: &x 1\nb: *x\n---\n", "aliases and anchors"),
        (b"---\na: !!python/object:os.system x\n---\n", "tags are not allowed"),
        (b"---\nname: a\nname: b\n---\n", "a key twice"),
        (b"---\ndescription: [a]\n---\n", "the description is not text"),
        (b"---\ndescription: a\nrequires: git\n---\n", "requires is not a mapping"),
        (b"---\ndescription: a\nrequires: {bins: [../x]}\n---\n", "requires.bins is not a list of names"),
        (b"---\na: " + b"[" * 900 + b"]" * 900 + b"\n---\n", "too large or too deep"),
        (b"---\na: '" + b"x" * 17_000 + b"'\n---\n", "longer than 16,384"),
        (b"", "neither a description nor a text"),
        (b"# T\n\n\xff\n", "not UTF-8"),
        (b"x" * 262_145, "larger than 256 KiB"),
    ],
)
def test_a_broken_skill_is_left_out_with_one_line_and_the_others_stay(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    head = document("good")
    put(tmp_path, "good", head + "x" * (262_144 - len(head)))  # the largest there may be
    put(tmp_path, "broken", "").write_bytes(content)
    found = catalog(tmp_path)
    with capture_logs() as logs:
        assert [skill.name for skill in found.scan()] == ["good"]
        assert [skill.name for skill in found.scan()] == ["good"]
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("skill_skipped", "warning")]
    assert reason in logs[0]["reason"]


def test_no_link_leads_out_of_a_folder_of_skills(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    put(outside, "secret", document("secret"))
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(outside / "secret")
    (root / "file").mkdir()
    (root / "file" / "SKILL.md").symlink_to(outside / "secret" / "SKILL.md")
    (root / "hard").mkdir()
    (root / "hard" / "SKILL.md").hardlink_to(put(outside, "other", document("other")))
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "SKILL.md")
    (root / "folder" / "SKILL.md").mkdir(parents=True)
    with capture_logs() as logs:
        assert catalog(root).scan() == ()
    assert sorted(Path(entry["folder"]).name for entry in logs) == ["file", "folder", "hard", "linked", "pipe"]
    (root / "skills").symlink_to(outside)
    assert catalog().scan(root) == ()


def test_links_inside_the_folder_work_as_mounted_volumes_make_them(tmp_path: Path) -> None:
    put(tmp_path, "greet/..2026_06", document("greet"))
    (tmp_path / "greet" / "..data").symlink_to("..2026_06")
    (tmp_path / "greet" / "SKILL.md").symlink_to("..data/SKILL.md")
    assert [(skill.name, skill.directory) for skill in catalog(tmp_path).scan()] == [("greet", tmp_path / "greet")]


@pytest.mark.parametrize(
    ("requires", "missing"),
    [
        ("requires: {bins: git, env: TOKEN, os: Linux}", ()),
        ("requires: {bins: [git, jq]}", ("the program jq",)),
        ("requires: {env: [TOKEN, EMPTY]}", ("the environment variable EMPTY",)),
        ("requires: {os: [macos, windows]}", ("the system darwin or win32",)),
        ("requires: {os: [darwin, linux]}", ()),
        ("metadata:\n  requires: {bins: [jq]}", ("the program jq",)),
        ("requires:\nhomepage: https://example.com", ()),
    ],
)
def test_a_skill_that_cannot_work_here_is_hidden_with_the_reason(
    tmp_path: Path, requires: str, missing: tuple[str, ...]
) -> None:
    put(tmp_path, "a", document("a", more=f"{requires}\n"))
    found = catalog(tmp_path, env={"TOKEN": "x", "EMPTY": ""}, bins=["git"])
    assert [skill.missing for skill in found.hidden()] == ([missing] if missing else [])
    assert [skill.name for skill in found.scan()] == ([] if missing else ["a"])
    assert found.names() == ("a",)


def test_skill_catalog_rereads_only_changed_documents(tmp_path: Path) -> None:
    put(tmp_path, "a", document("a", "one"))
    found = catalog(tmp_path)
    (first,) = found.scan()
    put(tmp_path, "a", document("a", "two"))  # the same size and time: only a second read could tell
    assert found.scan() == (first,)
    put(tmp_path, "a", document("a", "two"), LONG_AGO + 1)
    (second,) = found.scan()
    assert (second.description, second.version != first.version) == ("two", True)
    put(tmp_path, "b", document("b"))
    assert [skill.name for skill in found.scan()] == ["a", "b"]
    (tmp_path / "a" / "SKILL.md").unlink()
    assert [skill.name for skill in found.scan()] == ["b"]


@pytest.mark.parametrize(("later_ns", "shown"), [(50_000_000, "two"), (200_000_000, "one")])
def test_skill_catalog_rereads_a_document_just_written(tmp_path: Path, later_ns: int, shown: str) -> None:
    found = SkillCatalog([tmp_path], {}, lambda name: None, "linux", now_ns=lambda: LONG_AGO + later_ns)
    put(tmp_path, "a", document("a", "one"))
    found.scan()
    put(tmp_path, "a", document("a", "two"))
    assert [skill.description for skill in found.scan()] == [shown]


def skill(name: str, description: str = "Does things.") -> Skill:
    return Skill(name=name, description=description, directory=Path("/x"), version="0" * 12, source="shared")


def test_an_agent_sees_what_its_config_allows() -> None:
    for allow, deny, seen in (("*", "", "abc"), ("*", "b", "ac"), ("caz", "", "ac"), ("a", "a", ""), ("*", "*", "")):
        config = AgentSkillsConfig.model_validate({"allow": list(allow), "deny": list(deny)})
        assert "".join(one.name for one in visible([skill("a"), skill("b"), skill("c")], config)) == seen


def test_the_list_is_sorted_and_no_text_breaks_its_xml() -> None:
    listed = render([skill("b"), skill("a", """</description><skill name="x"> & 'y' ]]>""")])
    assert listed == (
        "<available_skills>\n"
        "<skill><name>a</name><description>&lt;/description&gt;&lt;skill name=&quot;x&quot;&gt; &amp; &apos;y&apos; ]]&gt;"
        "</description><location>./skills/a/SKILL.md</location><version>000000000000</version></skill>\n"
        "<skill><name>b</name><description>Does things.</description><location>./skills/b/SKILL.md</location>"
        "<version>000000000000</version></skill>\n"
        "</available_skills>"
    )


@pytest.mark.parametrize(
    ("count", "description", "left_out"),
    [(LISTED_MAX, "short", 0), (LISTED_MAX + 2, "short", 2), (60, "x" * 1_000, 60 - 26)],
)
def test_a_list_too_long_is_cut_with_a_notice(count: int, description: str, left_out: int) -> None:
    names = [f"s{number:03}" for number in range(count)]
    listed = render([skill(name, description) for name in names])
    assert len(listed) < 31_000
    assert re.findall(r"<name>(.*?)</name>", listed) == names[: count - left_out]
    notice = listed.split("</available_skills>")[1]
    assert (f"({left_out} more skills are not listed" in notice) is bool(left_out)
    assert (names[-left_out] in notice) is bool(left_out)


SHIPPED = Path(__file__).resolve().parents[2] / "skills"


def test_what_ships_is_usable_and_complete() -> None:
    found = catalog(SHIPPED)
    with capture_logs() as logs:
        shipped = found.scan()
    assert logs == []
    assert found.hidden() == ()
    assert [one.name for one in shipped] == [path.parent.name for path in sorted(SHIPPED.glob("*/SKILL.md"))]
    assert "create-python-script" in {one.name for one in shipped}
    for one in shipped:
        assert one.directory == SHIPPED / one.name
        assert len(one.description) < 200
        assert re.search("[一-鿿]", one.description), "found by people who write Chinese, too"


def test_the_reference_skill_names_the_steps_of_the_reference_case() -> None:
    text = (SHIPPED / "create-python-script" / "SKILL.md").read_text(encoding="utf-8")
    at = [text.index(word) for word in ("`ls`", "`write`", "shebang", "comment", "Explain briefly")]
    assert at == sorted(at)
