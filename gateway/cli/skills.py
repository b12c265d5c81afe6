"""`skills add | update | list | remove`: skills from a folder or a git repository, shown before they are used."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import CONFIG, AsJson, ConfigOption, Yes, language, load, number_of
from gateway.observe.terminal import confirm, print_list, print_text
from gateway.program import OperatorError

if TYPE_CHECKING:
    from gateway.operate.skills import AddedSkills

skills_app = typer.Typer(
    no_args_is_help=True,
    help="Skills from elsewhere: looked at, pinned in skills.lock, and used only as long as they stay as they were.",
)


@skills_app.command("add")
def add_skills(
    source: Annotated[
        str, typer.Argument(metavar="GIT_URL|DIR", help="A git repository, or a folder of this machine.")
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Skills of it; needed if it has several.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every skill that it has.")] = False,
    ref: Annotated[str, typer.Option(metavar="REF", help="A branch or a tag of the repository.")] = "",
    yes: Yes = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Show a skill's files and add it once you agree. Nothing of it runs; agents see it from their next message on."""
    added = _added(config)
    read = added.read(source, ref)
    chosen = added.chosen(read, list(names or []), everything=everything)
    for skill in chosen:
        print_text("\n".join(added.described(skill, read)), err=True)
    if not yes and not confirm(f"Add {number_of(chosen, 'skill')} to {added.folder}?"):
        raise OperatorError("nothing was added")
    for skill in chosen:
        added.add(skill, read, ref)
        agents = ", ".join(added.seen_by(skill)) or "no agent, by their skills.allow"
        print_text(f"{skill.name}: added, seen by {agents}")


@skills_app.command("update")
def update_skills(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Skills, as `skills list` names them.")],
    yes: Yes = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Show what has changed, here or at the source, and take the source's state once you agree."""
    added = _added(config)
    for name in dict.fromkeys(names):
        skill, source = added.newest(name)
        if added.is_current(skill):
            print_text(f"{name}: unchanged")
            continue
        before = added.pin(name)
        print_text(f"{name}: {before.commit[:12] or 'a folder'} -> {source.commit[:12] or 'a folder'}", err=True)
        print_text("\n".join(added.differences(skill)) or "The files are the same; the lock is renewed.", err=True)
        if not yes and not confirm(f"Update {name}?"):
            raise OperatorError(f"{name}: not updated")
        added.add(skill, source, before.ref)
        print_text(f"{name}: updated")


@skills_app.command("list")
def list_skills(as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """List the added skills: their state, commit and source. Only those that are ok are used."""
    from gateway.operate.skills import line

    rows, spoken = _added(config, exact=False).listed(), language(config)
    used = sum(it["state"] == "ok" for it in rows)
    total = (
        f"{len(rows)} 个技能，使用其中 {used} 个" if spoken == "zh" else f"{used} of {number_of(rows, 'skill')} used"
    )
    print_list(rows, partial(line, language=spoken), total, as_json=as_json)


@skills_app.command("remove")
def remove_skills(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Skills, as `skills list` names them.")],
    yes: Yes = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Remove added skills, with their folders."""
    added = _added(config)
    for name in dict.fromkeys(names):
        added.pin(name)
    if not yes and not confirm(f"Remove {', '.join(names)} from {added.folder}?"):
        raise OperatorError("nothing was removed")
    for name in dict.fromkeys(names):
        added.remove(name)
        print_text(f"{name}: removed")


def _added(config: "ConfigOption", *, exact: bool = True) -> "AddedSkills":
    from gateway.operate.skills import AddedSkills

    return AddedSkills(load(config, exact=exact))
