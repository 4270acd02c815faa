"""Opens the reader that a configuration describes."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from cdc_assets.config.reader import FILES, ReaderSettings, reader_settings
from cdc_assets.connectors.engine.feed import Offsets
from cdc_assets.connectors.reader.encode import Encoder
from cdc_assets.connectors.reader.event_lines import EventLines
from cdc_assets.connectors.reader.feed import Reader, Source
from cdc_assets.connectors.reader.files import FileSource, folder_of
from cdc_assets.connectors.reader.messages import JsonDecoder, Schema, checked_schemas
from cdc_assets.envelope.json_schema import schema_of
from cdc_assets.errors import CdcError, ConfigurationError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.registry import SchemaRegistry

Report = Callable[[str, str], None]
OpenTopics = Callable[[ReaderSettings, Offsets, Report], Source]
"""Opens a source of Kafka topics."""


def reader_for(properties: Mapping[str, str], tables: TopicTables, open_topics: OpenTopics) -> Reader:
    """A reader of the files or topics of a configuration.

    Raises:
        ConfigurationError: a property is wrong.
    """
    settings = reader_settings(properties)
    encoder = Encoder(_declared(settings.schemas_file), lambda topic: known_of(tables, topic))

    def opened(offsets: Offsets, report: Report) -> Source:
        if settings.kind == FILES:
            return _files(settings, offsets, report)
        return open_topics(settings, offsets, report)

    return Reader(opened, encoder, settings.prefix, tolerant=settings.tolerant)


def check_converters(settings: ReaderSettings) -> None:
    """Check what is known before anything is read.

    Raises:
        ConfigurationError: files with converters that are none of theirs, or declared schemas that are none.
    """
    _declared(settings.schemas_file)
    for side, converter in (("key", settings.key), ("value", settings.value)):
        if settings.kind == FILES and converter.format != "json":
            raise ConfigurationError(f"{side}.converter", converter.format, "JsonConverter for files", "remove it")


def check_registries(settings: ReaderSettings) -> Iterator[tuple[str, CdcError | None]]:
    """The schema registries that are needed, each with why it does not answer, or does not let this user in."""
    for side in dict.fromkeys((settings.key, settings.value)):
        if side.format == "avro":
            try:
                SchemaRegistry(side.registry, side.credentials).check()
            except CdcError as error:
                yield side.registry, error
            else:
                yield side.registry, None


def _files(settings: ReaderSettings, offsets: Offsets, report: Report) -> FileSource:
    check_converters(settings)
    key, value = JsonDecoder(settings.key.schemas), JsonDecoder(settings.value.schemas)
    lines = EventLines(key, value, settings.topic, settings.prefix)
    location = folder_of(settings.path, settings.options)
    return FileSource(location, settings.pattern, lines, offsets, report)


def _declared(file: str) -> dict[str, dict[str, Schema]]:
    if not file:
        return {}
    try:
        content = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError("schemas.file", file, f"a file of JSON ({error})", "correct it") from None
    return checked_schemas(content, file)


def known_of(tables: TopicTables, topic: str) -> dict[str, Schema]:
    """What the newest generation of a topic's table says of its keys and values."""
    generations = tables.generations(topic)
    handle = tables.open(generations[-1]) if generations else None
    if handle is None:
        return {}
    found = pa.schema(handle.schema().to_arrow())
    return {
        name: schema_of(found.field(name))
        for name in ("key", "value")
        if name in found.names and b"connect.type" in (found.field(name).metadata or {})
    }
