"""`cdc-assets tail`: events of a topic as Debezium would print them."""

import json
import time
from collections.abc import Iterator

import pyarrow as pa
import typer

from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, read_config
from cdc_assets.cli.lake_view import LakeView
from cdc_assets.envelope.json import to_json
from cdc_assets.errors import ConfigurationError

FOLLOW_INTERVAL_S = 1.0


def tail(
    topic: str = typer.Argument(help="Topic, or its end: `orders` finds `shop.SalesDb.dbo.orders`."),
    config: ConfigOption = DEFAULT_CONFIG,
    number: int = typer.Option(10, "--number", "-n", min=0, help="How many of the last events."),
    schemas: bool = typer.Option(False, "--schemas", help="Print each message with its schema."),
    headers: bool = typer.Option(False, "--headers", help="Print headers too."),
    follow: bool = typer.Option(False, "--follow", "-f", help="Wait for further events."),
) -> None:
    """Print the last events of a topic, one JSON object a line: key, value (null is a tombstone) and position."""
    view = LakeView(read_config(config))
    directory = find_topic(view, topic)
    events = view.newest(directory, number)
    last = ""
    while True:
        for position, line in lines(events, schemas, headers):
            typer.echo(line)
            last = position
        if not follow:
            return
        time.sleep(FOLLOW_INTERVAL_S)
        events = view.after(directory, last)


def find_topic(view: LakeView, wanted: str) -> str:
    """Directory of the newest table of the topic that is named so or ends so.

    Raises:
        ConfigurationError: none does, or several do.
    """
    names = {topic.topic: topic for topic in view.topics() if topic.directories}
    found = [wanted] if wanted in names else [name for name in names if name.lower().endswith(f".{wanted.lower()}")]
    if len(found) != 1:
        raise ConfigurationError("topic", wanted, "one of " + (", ".join(names) or "none yet"), "name one of them")
    return names[found[0]].directories[-1]


def lines(events: pa.Table, schemas: bool = False, headers: bool = False) -> Iterator[tuple[str, str]]:
    """Position and JSON line of each event."""
    for batch in events.to_batches():
        keys, values, header_texts = to_json(events.schema, batch, schemas=schemas)
        positions = batch.column("position").to_pylist()
        for place, position in enumerate(positions):
            parts = {"key": keys[place].as_py(), "value": values[place].as_py()}
            if headers:
                parts["headers"] = header_texts[place].as_py()
            fields = [f'"{name}":{text or "null"}' for name, text in parts.items()]
            yield position, "{" + ",".join([*fields, f'"position":{json.dumps(position)}']) + "}"
