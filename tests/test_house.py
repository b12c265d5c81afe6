"""The house rules that a machine can hold: what the documents name exists, and what the files promise is so."""

import ast
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gateway.program import PACKAGES
from tests import texts
from tests.bench.kept import LINES, PAGE, SIDES, Reshaped, kept
from tests.parsed import parsed
from tests.security_page import faults
from tests.size import report, serving, sources

ROOT = Path(__file__).resolve().parents[1]
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("channels/*/README.md")]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def committed() -> list[str]:
    return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git to list the files")
def test_the_top_level_is_the_agreed_one() -> None:
    agreed = "pyproject.toml config.yaml gateway channels agents skills tools tests Dockerfile docker-compose.yml"
    about = "README.md README.zh-CN.md ARCHITECTURE.md CHANGELOG.md LICENSE docs Makefile"
    locks = "requirements.txt requirements-dev.txt requirements-judges.txt .ci .github .gitignore .dockerignore"
    assert {Path(name).parts[0] for name in committed()} == {*agreed.split(), *about.split(), *locks.split()}


def test_readmes_have_the_same_commands_and_sections() -> None:
    commands = [
        re.findall(r"^(make \w+|python -m gateway \w+|docker compose \w+)", p.read_text(), re.M) for p in READMES
    ]
    sections = [len(re.findall(r"^## ", path.read_text(), re.M)) for path in READMES]
    each_other = {"README.md", "README.zh-CN.md"}
    links = [
        sorted({link.replace(".zh-CN", "") for link in re.findall(r"\]\(([^)#]+)\)", path.read_text())} - each_other)
        for path in READMES
    ]
    assert commands[0] == commands[1]
    assert commands[0] == ["make run", "make rehearsal", "make test"]
    assert sections[0] == sections[1]
    assert links[0] == links[1]


def cells_of(page: Path, heading: str) -> dict[str, list[str]]:
    """The rows of the first table after a heading, by their first cell."""
    section = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", section, re.M)]
    return {row[0]: row[1:] for row in rows if not set(row[0]) <= {"-"}}


def test_readme_figures_are_on_the_speed_and_reliability_pages() -> None:
    english = cells_of(ROOT / "README.md", "Why this one")
    chinese = cells_of(ROOT / "README.zh-CN.md", "为什么选它")
    measured = cells_of(ROOT / "docs/speed.md", "Beside other gateways")
    figures = {name: row for name, row in english.items() if name in measured}
    assert len(figures) >= 4
    assert {name: measured[name] for name in figures} == figures
    others = {name: row for name, row in english.items() if name not in measured and name != "chat platforms"}
    assert [row for row in others.values() if any(re.search(r"\d", cell) for cell in row[1:])] == []
    numbers = [
        [re.findall(r"\d(?:[\d,.]*\d)?", " ".join(row)) for row in table.values()] for table in (english, chinese)
    ]
    assert numbers[0] == numbers[1]
    reliability = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    counted = [re.findall(r"\d,\d{3}\b", page.read_text(encoding="utf-8").partition("\n| ")[0]) for page in READMES]
    assert counted[0] == counted[1] != []
    assert [number for number in counted[0] if f"{number} in all" not in reliability] == []


def test_the_pages_that_are_read_first_are_there_in_chinese() -> None:
    first = "quickstart-feishu quickstart-telegram cookbook troubleshooting privacy access commands approvals"
    then = "add-an-agent operate doctor deploy console"
    assert [it for it in f"{first} {then}".split() if not (ROOT / "docs" / f"{it}.zh-CN.md").exists()] == []


@pytest.mark.parametrize("document", sorted(ROOT.glob("docs/*.zh-CN.md")), ids=lambda path: path.name)
def test_chinese_pages_have_the_shape_of_the_english_ones(document: Path) -> None:
    english = document.with_name(document.name.replace(".zh-CN", ""))
    texts = [page.read_text(encoding="utf-8") for page in (english, document)]
    shapes = [re.findall(r"^ *(#+ (?:\d\.)?|```\w*|\d+\.|[*-] |\|)", text, re.M) for text in texts]
    assert shapes[0] == shapes[1]
    blocks = [re.findall(r"^ *```.*?^ *```$", text, re.M | re.S) for text in texts]
    code = [[re.sub(r"(^|\s+)# .*", "", block, flags=re.M) for block in page] for page in blocks]
    assert code[0] == code[1]
    comments = [comment for block in blocks[1] for comment in re.findall(r"(?:^|\s)# +(.*)", block, re.M)]
    sentence = re.compile(r"^[^\u4e00-\u9fff]*[a-z]{2} [a-z]{2}[^\u4e00-\u9fff]*$")
    assert [comment for comment in comments if sentence.search(comment)] == [], "not in Chinese"
    switches = [text.splitlines()[2].partition(" · ")[0] for text in texts]
    assert switches == [f"[中文]({document.name})", f"[English]({english.name})"]


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if ".zh-CN" in path.name], ids=lambda path: path.name)
def test_a_chinese_page_leads_to_chinese_pages_where_there_are_any(document: Path) -> None:
    links = set(re.findall(r"\]\(([^)#\s]+)\.md[)#]", document.read_text(encoding="utf-8")))
    english = document.name.removesuffix(".zh-CN.md")
    assert [link for link in links - {english} if (document.parent / f"{link}.zh-CN.md").exists()] == []


CHINESE = [*ROOT.glob("*.zh-CN.md"), *ROOT.glob("docs/*.zh-CN.md"), ROOT / "config.yaml", ROOT / "docker-compose.yml"]


@pytest.mark.parametrize("document", CHINESE, ids=lambda path: str(path.relative_to(ROOT)))
def test_chinese_sentences_have_full_width_punctuation(document: Path) -> None:
    prose = re.sub(
        r"`[^`\n]*`|\]\([^)\n]*\)|\$\{[^}]*\}|\*\*|^[# ]+\w+:", "", document.read_text(encoding="utf-8"), flags=re.M
    )
    assert re.findall(r".{0,20}(?:[\u4e00-\u9fff][,:;!?()]|[,;!?()][\u4e00-\u9fff]).{0,20}", prose) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_and_every_named_make_target_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)\)", text) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []
    anchors = [link.partition("#") for link in re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", text) if "://" not in link]
    places = [(document.parent / page if page else document, anchor) for page, _, anchor in anchors]
    assert [anchor for page, anchor in places if not page.exists() or anchor not in headings(page)] == []
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))
    assert set(re.findall(r"`?\bmake ([a-z-]+)`", text)) <= targets


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+)$", prose, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_file_the_architecture_names_exists() -> None:
    map_ = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`((?:gateway|agents|tools|skills|channels)/[\w/]+\.py)`", map_)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).is_file()] == []
    there = {path.name for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")}
    assert {*re.findall(r"`(\w+\.py)`", map_)} - there == set()


def test_every_package_says_in_its_first_line_what_it_holds() -> None:
    """The five outermost are empty, so that the start can tell them from another distribution's."""
    packages = {path for folder in PACKAGES for path in (ROOT / folder).rglob("__init__.py")}
    silent = {path for path in packages if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))}
    assert silent == {ROOT / folder / "__init__.py" for folder in PACKAGES}
    assert {path.stat().st_size for path in silent} == {0}


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    """Everything that is written in the packages, and the file that it is in."""
    return ((path, it) for path, nodes in parsed().items() for it in nodes)


def test_every_method_the_architecture_names_exists() -> None:
    """The hops are for a debugger's breakpoints, so each must be there to stop at."""
    members: dict[str, set[str]] = {}
    for _, node in nodes():
        if isinstance(node, ast.ClassDef):
            fields = [
                it.target.id for it in node.body if isinstance(it, ast.AnnAssign) and isinstance(it.target, ast.Name)
            ]
            members[node.name] = {*fields, *(it.name for it in node.body if isinstance(it, FUNCTIONS))}
    named = re.findall(r"`([A-Z]\w+)\.(\w+)`", (ROOT / "ARCHITECTURE.md").read_text())
    assert len(named) > 20
    assert [f"{owner}.{member}" for owner, member in named if member not in members.get(owner, set())] == []


def test_the_container_copies_what_there_is_and_starts_what_there_is() -> None:
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.M) for word in line.split()[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert set(PACKAGES) <= set(copied)
    ignored = set((ROOT / ".dockerignore").read_text().split())
    assert not ignored & set(copied)
    assert "tests" in ignored
    (command,) = re.findall(r"^CMD (\[.+\])$", DOCKERFILE, re.M)
    assert yaml.safe_load(command)[:2] == ["clawgate", "serve"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {"pyproject.toml", project["project"]["readme"], "LICENSE"} < {*copied}
    assert {*project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]} < {*copied}
    assert re.search(r"^USER (?!root)\w+", DOCKERFILE, re.M)
    assert "/readyz" in DOCKERFILE


def test_compose_gives_a_stop_more_time_than_the_gateway_takes() -> None:
    services = COMPOSE["services"]
    from gateway.config.root import LimitsConfig

    config = (ROOT / "config.yaml").read_text(encoding="utf-8")
    for name in ("clawgate", "replica-1", "replica-2"):
        service = services[name]
        assert int(service["stop_grace_period"].removesuffix("s")) > LimitsConfig().grace_seconds
        assert service["build"] == "."
        assert [variable for variable in service.get("environment", ()) if variable not in config] == []
    assert [name for name, service in services.items() if "profiles" not in service] == ["clawgate"]
    assert services["replica-1"] == services["replica-2"]
    assert "@postgres/" in services["replica-1"]["environment"]["CLAWGATE_DATABASE_URL"]
    assert services["replica-1"]["volumes"] == services["clawgate"]["volumes"]
    for name in ("replica-1", "replica-2"):
        assert f"{name}:8080" in COMPOSE["configs"]["balancer"]["content"]


def test_ci_runs_what_the_readme_tells_a_newcomer_to_type() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    assert "make check test" in script.read_text()


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_the_lock_pins_by_hash_names_no_host_and_covers_the_project(name: str) -> None:
    text = (ROOT / name).read_text()
    pins = re.findall(r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==", text, re.M | re.I)
    assert text.count("--hash=sha256:") >= len(pins) > 20
    assert "://" not in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [re.split(r"[>=;\[ ]", line)[0].lower() for line in project["project"]["dependencies"]]
    assert [package for package in wanted if package not in {pin.lower() for pin in pins}] == []


def test_every_statement_of_the_security_page_names_the_tests_that_hold_it() -> None:
    assert faults() == []


def loaded_by(code: str) -> list[set[str]]:
    """The modules of a Python at each place where the code prints them, and at its end."""
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [{*line.split()} for line in output.splitlines()]


RELATIVE = "What|Who|Whom|Whose|Where|As|How|That|Those|Which|Whether|When|Why|The same"
PREPOSITIONAL = "Of|In|On|At|By|To|For|From|With|Without|Within|After|Before|Between|Beside|Behind|About|Until|Since"
FRAGMENT = re.compile(rf"({RELATIVE}|{PREPOSITIONAL}|If|Once|There|And|Or|Also|Else|So|Then)\b")

WORN = re.compile(
    r"\b(anew|him|his|himself|he|becomes? of|became of|whoever|whomever|somebody|(is|are|was|were) told|goes on"
    r"|taken back|beneath|strikes? out|struck out|all the same)\b",
    re.I,
)
"""Words for which docs/contributing.md lists plainer ones: again, the user, the outcome, is notified, continues."""


def test_a_docstring_begins_with_its_subject_or_a_verb() -> None:
    """Also the words below a field or a constant: a fragment has to be solved before it can be read."""
    found = []
    for path, node in nodes():
        body = getattr(node, "body", None)
        for it in body if isinstance(body, list) else ():
            words = it.value.value if isinstance(it, ast.Expr) and isinstance(it.value, ast.Constant) else ""
            if isinstance(words, str) and (FRAGMENT.match(words.strip()) or WORN.search(re.sub("`[^`]*`", "", words))):
                found.append(f"{path.relative_to(ROOT)}:{it.lineno}: {words.strip()[:60]}")
    assert found == []


SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|EXISTS|UNION|AND|OR|LIMIT|VALUES|RETURNING)\b|ORDER BY")
COMPOSED = {
    "operations.py": "repeats the `VALUES` line of a statement for each row",
    "snapshot.py": "copies every table of the database, by the names that it finds there",
}


def pieces_of(node: ast.AST) -> list[ast.expr]:
    """What a text is put together from; nothing if it is one constant."""
    if isinstance(node, ast.JoinedStr) and any(isinstance(it, ast.FormattedValue) for it in node.values):
        return node.values
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        return [node.left, node.right]
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("format", "join", "replace")
    ):
        return [node.func.value, *node.args]
    return []


def test_sql_statements_of_the_store_are_whole_constants() -> None:
    """Each is pasted into `psql` as it is; tests/gateway/store/test_statements.py prepares them."""
    composed = [
        f"{file.name}:{piece.lineno}"
        for file, tree in parsed().items()
        if file.parent == ROOT / "gateway/store" and file.name not in COMPOSED
        for node in tree
        for piece in pieces_of(node)
        if isinstance(piece, ast.Constant) and isinstance(piece.value, str) and SQL.search(piece.value)
    ]
    assert composed == []


def test_a_class_name_means_one_thing() -> None:
    """A reader who meets the name of a class or of a type anywhere knows what it is. Private names count: a search finds
    them as well."""
    places: dict[str, list[str]] = {}
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            places.setdefault(ast.unparse(node.target), []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


SDKS = ("anthropic", "openai")
STARTED = f"""
import gateway.cli, gateway.app.gateway, gateway.operate.doctor
print(*sys.modules)
from agents.providers import catalog
from agents.providers.config import ProviderConfig
for api in {SDKS}:
    getattr(catalog, f"_{{api}}_client")(ProviderConfig(), "http://127.0.0.1:9")
"""


@pytest.mark.slow
def test_start_loads_no_module_that_can_wait() -> None:
    """Each of these costs tens of milliseconds or megabytes, and is for what not every gateway does. The types of every
    endpoint and the clients of every cloud are thousands of modules."""
    waiting = {
        "anthropic",
        "openai",
        "lark_oapi",
        "alembic",
        "psycopg",
        "websockets",
        "PIL",
        "lxml",
        "pypdfium2",
        "tools.documents.child",
        "mcp",
        "mcp_types",
        "jsonschema",
        "tools.mcp.client",
    }
    started, loaded = loaded_by(STARTED)
    assert waiting & started == set()
    for api in SDKS:
        parts = {it.removeprefix(f"{api}.").partition(".")[0] for it in loaded if it.startswith(f"{api}.")}
        assert {"_client", "_base_client"} <= parts, api
        assert {"resources", "pagination"} & parts == set(), api


def test_test_names_are_short_and_have_the_nouns_that_a_reader_searches() -> None:
    nouns = "album allowlist approval backoff challenge compaction cooldown dead_letter debounce dedupe edit expir idempoten"
    more = "lease pairing rate_limit recall redelivered replay retr stop taint timeout webhook_signature"
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    names = [name for text in files for name in re.findall(r"def (test_\w+)", text)]
    assert [it for it in names if len(it) > 70] == []
    assert [noun for noun in f"{nouns} {more}".split() if not any(noun in it for it in names)] == []


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git to list the files")
def test_no_committed_file_names_this_workplace() -> None:
    words = ["/".join(("", "work", "main")), ".".join(("pypi", "org")), "files." + "pythonhosted"]
    found = []
    for name in committed():
        path = ROOT / name
        if path.is_file() and path.suffix != ".png":
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{name}: {word}" for word in words if word in text]
    assert found == []


RECORDED = [*ROOT.glob("tests/**/*.json"), *ROOT.glob("channels/*/samples/**/*.json")]
OF_A_MACHINE = {
    "boot": "the-boot-of-another-machine",
    "boot_id": None,
    "machine_id": None,
    "hostname": None,
    "uid": None,
}
"""What must not be recorded, and the only value allowed instead. `boot` and `deadline` go together: another machine's
monotonic clock means nothing, so a fixture has to be of a foreign boot."""


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recorded_fixture_holds_no_boot_id_host_name_uid_or_home_folder(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    # Nested JSON is a string with escaped quotes.
    pairs = re.findall(r'"(\w+)\\*": *\\*"?([^",}\\]*)', text)
    faults = [(key, value) for key, value in pairs if key in OF_A_MACHINE and value != OF_A_MACHINE[key]]
    assert faults == []
    assert re.findall(r"(?<![\w.])/(?:root|home|Users|work|mnt|tmp)/[^\s\"]*", text) == []


def test_every_module_is_reached_from_the_command_line_or_known_not_to_be() -> None:
    product = [it for it in sources(*PACKAGES) if it.lines]
    idle = {it.path for it in product} - {it.path for it in serving(product)}
    beside = {"gateway/config/reference.py"}  # it writes the reference page
    assert {path for path in idle if "/migrations/" not in path} <= beside
    assert next(report()).startswith("serving ")


def test_nobody_waits_in_a_way_that_may_swallow_a_cancellation() -> None:
    """`asyncio.wait_for` does before Python 3.12: a shutdown that it hits never ends. `asyncio.timeout` does not."""
    sources = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    assert [str(path) for path in sources if "asyncio.wait_for(" in path.read_text(encoding="utf-8")] == []


def test_bench_reads_every_figure_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(kept(page)) == len(SIDES) * (len(LINES) + 2)
    for before, after in (("webhook ack p99 |", "ack |"), (" × (", " times ("), ("| | target |", "| | goal |")):
        with pytest.raises(Reshaped):
            kept(page.replace(before, after))


def test_texts_page_matches_the_code_and_chinese_punctuation() -> None:
    page = texts.PAGE.read_text(encoding="utf-8")
    assert page == texts.page(), "python -m tests.texts"
    for text in (
        "This is a private bot",
        "You are in.",
        "Still waiting",
        "| **Run this command?**",
        "`/claim`: ",
        "| `/listen`: ",
    ):
        assert text in page
    assert re.findall(r"\{[^{}\n]*[^\w… {}\n][^{}\n]*\}", page) == [], "code in a text"
    half = re.compile(r"[\u4e00-\u9fff][,;:?!()]|[,;?!()][\u4e00-\u9fff]")
    wrong = [zh for zh in re.findall(r"^\| .* \| (.*) \|$", page, re.M) if half.search(zh)]
    assert wrong == []
