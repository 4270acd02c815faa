"""`cdc-assets properties`: the configuration properties, searched and explained."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from cdc_assets.cli.as_json import of_properties, print_json
from cdc_assets.cli.console import JsonOption, out, read_config, read_engine_config
from cdc_assets.config.document import detail, markdown
from cdc_assets.config.engine import is_engine_file
from cdc_assets.config.load import configuration_files, given_properties
from cdc_assets.config.masks import Masks
from cdc_assets.config.properties import PROPERTIES, property_of
from cdc_assets.config.property import Property, Status, shown_name
from cdc_assets.errors import shortened


def properties(
    search: str = typer.Argument(
        "", help="Part of a name or description; a complete name shows everything about the property."
    ),
    as_markdown: bool = typer.Option(False, "--markdown", help="Print the configuration page as Markdown."),
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="List and check the properties set by this file and the environment."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List, search or explain configuration properties, or check a configuration."""
    if as_markdown:
        typer.echo(markdown(), nl=False)
        return
    if config is not None:
        _check(config, search, as_json)
        return
    found = _matching(search)
    if as_json:
        print_json(of_properties(found))
    elif len(found) == 1 or any(row.name == search for row in PROPERTIES):
        _explain(found[0] if len(found) == 1 else property_of(search))
    else:
        _list(found)


def _check(path: Path, search: str, as_json: bool) -> None:
    """Show the given properties with secrets hidden, and end with the error if the configuration is invalid."""
    for file in configuration_files(path):
        given = given_properties(file)
        masks = Masks(given)
        chosen = [name for name in given if search.lower() in name.lower()]
        if as_json:
            print_json([{"name": shown_name(name), "value": masks.shown(name)} for name in chosen])
        else:
            table = Table(Column("property", overflow="fold"), Column("value", overflow="fold"), box=None)
            for name in chosen:
                table.add_row(_cell(shown_name(name)), _cell(masks.shown(name)))
            out.print(table)
        if is_engine_file(file):
            read_engine_config(file)
        else:
            read_config(file)


def _cell(text: str) -> Text:
    return Text(shortened(text).encode(errors="backslashreplace").decode())  # the text may be invalid Unicode


def _matching(search: str) -> list[Property]:
    needle = search.lower()
    found = [row for row in PROPERTIES if needle in row.name.lower() or needle in row.doc.lower()]
    return found or [property_of(search)]


def _explain(row: Property) -> None:
    table = Table(show_header=False, box=None)
    for label, text in detail(row):
        table.add_row(f"[bold]{label}", text)
    out.print(table)


def _list(rows: list[Property]) -> None:
    name = Column("property", overflow="fold", min_width=32)
    table = Table(name, "default", "meaning", box=None, header_style="bold")
    for row in rows:
        meaning = Text(row.doc)
        if row.status is not Status.SUPPORTED:
            meaning.append(f" ({row.status})", style="yellow")
        table.add_row(Text(row.name), row.default or ("required" if row.required else ""), meaning)
    out.print(table)
