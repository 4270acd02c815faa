"""`cdc-assets tail`: prints events of a topic as Debezium or FlinkX would."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from time import sleep
from typing import Annotated

import pyarrow as pa
import typer

from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, err
from cdc_assets.cli.read import read_capture
from cdc_assets.cli.topic_events import after, newest
from cdc_assets.config.settings import TextFormat, TextSettings
from cdc_assets.core.lsn import LSN_WIDTH, Lsn
from cdc_assets.envelope.flat import flat_json, flat_records
from cdc_assets.envelope.json import event_text, headers_text
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.retained import retained
from cdc_assets.lake.topics import TopicTables

FOLLOW_INTERVAL_S = 1.0


def tail(
    topic: str = typer.Argument(
        help="Topic or table, or the end of its name: `orders` finds `shop.SalesDb.dbo.orders`."
    ),
    config: ConfigOption = DEFAULT_CONFIG,
    number: int = typer.Option(10, "--number", "-n", min=0, help="Number of last events to print."),
    form: Annotated[TextFormat | None, typer.Option("--format", help="Format of the output (value.format).")] = None,
    schemas: bool = typer.Option(
        False, "--schemas", help="Print keys and values with their schemas (*.converter.schemas.enable)."
    ),
    headers: bool = typer.Option(False, "--headers", help="Print headers too."),
    follow: bool = typer.Option(False, "--follow", "-f", help="Wait for new events and print them."),
    from_lsn: Annotated[
        str, typer.Option("--from-lsn", help="Print all events after this commit LSN, not only the last ones.")
    ] = "",
) -> None:
    """Print the last events of a topic, one JSON object per line: key, value (null is a tombstone) and position.

    With the format flinkx each line is a flat FlinkX record.
    """
    capture = read_capture(config)
    name = capture.find(topic)
    text = _text(capture.text, form, schemas, headers)
    start = str(Lsn.parse(from_lsn)) if from_lsn else None
    tables = _tables(capture.lake, name, number, follow, start)
    for line in lines(tables, text, headers=headers):
        typer.echo(line)


def _tables(lake: TopicTables, topic: str, number: int, follow: bool, start: str | None = None) -> Iterator[pa.Table]:
    """The last events of all generations of the topic, or those after a commit LSN; then new events without end."""
    if start is None:
        last_events = [newest(lake, directory, max(number, 1)) for directory in lake.generations(topic)]
        _warn_dropped(lake, topic, last_events, number)
        yield from in_order(last_events, number)
        last = _last_position(last_events, "")  # at least one event was read, so there is a position to continue from
    else:
        last = f"{start}~"
        events = [after(lake, directory, last) for directory in lake.generations(topic)]
        holds = retained(lake, topic)  # after the files: what is dropped is announced before it goes
        holds.require(
            topic, start, f"events after {start}", f"tail --from-lsn {holds.after}, or read the table's mirror"
        )
        yield from in_order(events, sum(part.num_rows for part in events))
        last = _last_position(events, last)
    while follow:
        sleep(FOLLOW_INTERVAL_S)
        events = [after(lake, directory, last) for directory in lake.generations(topic)]
        last = _last_position(events, last)
        yield from in_order(events, sum(part.num_rows for part in events))


def _warn_dropped(lake: TopicTables, topic: str, parts: Sequence[pa.Table], number: int) -> None:
    """Report that events were dropped, if some of them would be among the last ones."""
    holds = retained(lake, topic)
    places = sorted(position for part in parts for position in part["position"].to_pylist())
    if holds.after and number and (len(places) < number or places[-number][:LSN_WIDTH] <= holds.after):
        err.print(
            f"{topic} holds every event after {holds.after}; older ones were dropped.", markup=False, soft_wrap=True
        )


def in_order(parts: Sequence[pa.Table], count: int) -> Iterator[pa.Table]:
    """The last events of tables with different structures, as slices in position order; each table is sorted by position."""
    places = [(position, number) for number, part in enumerate(parts) for position in part["position"].to_pylist()]
    skipped = Counter(number for _, number in sorted(places)[: max(0, len(places) - count)])
    taken = [skipped[number] for number in range(len(parts))]
    for number, run in groupby(sorted(places)[max(0, len(places) - count) :], key=itemgetter(1)):
        length = len(list(run))
        yield parts[number].slice(taken[number], length)
        taken[number] += length


def _text(given: TextSettings, form: TextFormat | None, schemas: bool, headers: bool) -> TextSettings:
    """The settings combined with the options of the command line.

    Raises:
        ConfigurationError: the format does not have what an option requests.
    """
    text = replace(given, format=form or given.format)
    if text.format == "flinkx" and (schemas or headers):
        option = "--schemas" if schemas else "--headers"
        raise ConfigurationError(
            "option", option, "the format debezium: flat records have neither schema nor headers", "leave it out"
        )
    return replace(text, key_schema=True, value_schema=True) if schemas else text


def _last_position(parts: Sequence[pa.Table], before: str) -> str:
    return max([str(part["position"][-1]) for part in parts if part.num_rows], default=before)


def lines(tables: Iterable[pa.Table], text: TextSettings, *, headers: bool = False) -> Iterator[str]:
    """JSON lines of events in the format of the settings.

    Args:
        tables: rows of a topic table in position order.
        text: the format and its options.
        headers: whether lines include the headers; Debezium's format only.
    """
    batches = (batch for table in tables for batch in _with_value(table).to_batches())
    return _flat_lines(batches, text) if text.format == "flinkx" else _debezium_lines(batches, text, headers)


def _with_value(events: pa.Table) -> pa.Table:
    """The events with a value each, if their topic has none: nothing but tombstones were written to it."""
    if "value" in events.column_names:
        return events
    return events.append_column("value", pa.nulls(events.num_rows))


def _debezium_lines(batches: Iterable[pa.RecordBatch], text: TextSettings, headers: bool) -> Iterator[str]:
    for batch in batches:
        key, value = batch.schema.field("key"), batch.schema.field("value")
        parts = {
            "key": event_text(
                key,
                batch.column("key"),
                schema=text.key_schema,
                defaults=text.key_defaults,
                numeric=text.key_decimals == "NUMERIC",
            ),
            "value": event_text(
                value,
                batch.column("value"),
                schema=text.value_schema,
                defaults=text.value_defaults,
                numeric=text.value_decimals == "NUMERIC",
            ),
        }
        if headers:
            parts["headers"] = headers_text(key, batch.column("headers"), schemas=text.value_schema)
        for index, position in enumerate(batch.column("position").to_pylist()):
            fields = [f'"{name}":{texts[index].as_py() or "null"}' for name, texts in parts.items()]
            yield "{" + ",".join([*fields, f'"position":{json.dumps(position)}']) + "}"


def _flat_lines(batches: Iterable[pa.RecordBatch], text: TextSettings) -> Iterator[str]:
    last = -1
    for batch in batches:
        if pa.types.is_null(batch.schema.field("value").type):  # tombstones are left out
            continue
        records = flat_records(batch, paved=text.paved, split=text.split, last_number=last)
        if len(records):
            last = records.column("ts")[-1].as_py()
        yield from flat_json(records).to_pylist()
