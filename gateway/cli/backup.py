"""`backup` and `restore`: everything that a config names, in one file."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import CONFIG, ConfigOption, environment, load, number_of
from gateway.observe.terminal import print_text
from gateway.program import program


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write, or a folder for one that is named by the time.")],
    config: ConfigOption = CONFIG,
) -> None:
    """Write everything that the config names into one file: config, .env, database, workspaces, uploads, skills and tools.
    It works next to a serving gateway. The file holds all keys and messages, and only you can read it."""
    from gateway.operate.backup import back_up

    done = back_up(load(config, exact=True), config, file, environment())
    manifest = done.manifest
    files = number_of(manifest.files, "file")
    print_text(f"{done.file}: written and verified, {files}, {done.size:,} bytes")
    for at, place in manifest.moved.items():
        print_text(f"  {place} is in it as {at}")
    if manifest.database is None:
        print_text("  not in it: a database; there is no database yet")
    for line in done.left_out:
        print_text(f"  not in it: {line}")
    if manifest.variables:
        print_text(
            f"  not in it: {', '.join(manifest.variables)}, set outside of .env — keep them elsewhere, or move them there"
        )
    print_text("  It holds the keys, and everything that was said: keep it as you keep .env.")
    for line in done.unread:
        print_text(f"not in it, and it should be: {line}", err=True)
    if done.unread:
        raise typer.Exit(1)


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `backup` wrote.")],
    folder: Annotated[Path, typer.Argument(help="An empty folder, or one that is not there yet.")] = Path(),
    database_url: Annotated[
        str, typer.Option(help="PostgreSQL: the empty database to fill, instead of the one that the config names.")
    ] = "",
) -> None:
    """Restore a backup into an empty folder. Nothing is overwritten, and no gateway is started."""
    from gateway.operate.restore import restore as restore_backup

    done = restore_backup(file, folder, environment(), database_url=database_url)
    manifest = done.manifest
    option = "" if manifest.config == str(CONFIG) else f" --config {manifest.config}"
    print_text(f"{done.folder.absolute()}: restored {number_of(manifest.files, 'file')} of {manifest.made}")
    if done.database:
        print_text(f"  database     {done.database} has its rows")
    for at, place in manifest.moved.items():
        print_text(f"  move         {at} to {place}, or name it in the config where it is")
    if manifest.variables:
        print_text(f"  set          {', '.join(manifest.variables)}: the backup does not have them")
    if database_url:
        print_text("  set          database.url in the config to that database")
    if done.parked.messages or done.parked.parts:
        messages = number_of(range(done.parked.messages), "message")
        parts = number_of(range(done.parked.parts), "reply part")
        print_text(f"  in flight    {messages}, {parts}: the gateway that served went on with them.")
        print_text(f"               Here they are dead letters: {program()} dead-letters list{option}")
    print_text("  stop         the gateway that the backup is of, before you start this one: both would answer")
    start = "" if done.folder.absolute() == Path.cwd() else f"cd {done.folder} && "
    print_text(f"  then         {start}{program()} check{option} && {program()} serve{option}")
