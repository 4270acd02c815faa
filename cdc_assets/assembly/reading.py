"""Whether a reader of events that others wrote could work: its settings, the registry, and the topics or files that it would read."""

from collections.abc import Callable, Iterator

from cdc_assets.assembly.engine import ask_unread
from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.reader import FILES, ReaderSettings, reader_settings
from cdc_assets.connectors.engine.feed import Offsets
from cdc_assets.connectors.engine.unread import Unread
from cdc_assets.connectors.reader.opening import check_converters, check_registries
from cdc_assets.core.check_result import CheckResult
from cdc_assets.errors import CdcError


def inspect_reader(config: EngineConfig, offsets: Callable[[], Offsets]) -> Iterator[CheckResult]:
    """What a capture would meet first; changes nothing.

    Args:
        offsets: what the lake has recorded.
    """
    try:
        settings = reader_settings(config.properties)
        check_converters(settings)
    except CdcError as error:
        yield CheckResult.failed("settings", config.topic_prefix, error, "valid")
        return
    yield CheckResult("settings", config.topic_prefix, True, "valid", "valid")
    for address, refused in check_registries(settings):
        reached = CheckResult("schema registry", address, True, "reached", "reached")
        yield CheckResult.failed("schema registry", address, refused, "readable") if refused else reached
    place = settings.path if settings.kind == FILES else settings.servers
    ask = ask_unread(config)
    try:
        found = ask(offsets()) if ask else Unread()
    except CdcError as error:
        yield CheckResult.failed("source", place, error, "readable")
        return
    yield from _source(settings, place, found)


def _source(settings: ReaderSettings, place: str, found: Unread) -> Iterator[CheckResult]:
    if found.missing:
        yield CheckResult.failed("source", place, found.missing, "readable")
        return
    if settings.kind == FILES and not found.seen:
        hint = "see files.path and files.pattern, unless files are still to come"
        yield CheckResult("source", place, False, "no file that matches", "files", hint, blocking=False)
        return
    yield CheckResult("source", place, True, "readable", "readable")
    for topic in found.absent:
        yield CheckResult("topic to read", topic, False, "not there", "there", "correct topics, or create it")
