"""Queries schema registries whether topics could be published; changes nothing."""

from collections.abc import Iterator

from cdc_assets.config.settings import KafkaSettings
from cdc_assets.core.check_result import CheckResult
from cdc_assets.errors import CdcError
from cdc_assets.registry import SchemaRegistry


def inspect_registries(settings: KafkaSettings) -> Iterator[CheckResult]:
    """Whether those of keys and values answer, and let this user in."""
    for side in dict.fromkeys((settings.key, settings.value)):
        if side.format != "avro":
            continue
        try:
            SchemaRegistry(side.registry, side.credentials).check()
        except CdcError as error:
            yield CheckResult.failed("schema registry", side.registry, error, "reached")
        else:
            yield CheckResult("schema registry", side.registry, True, "reached", "reached")
