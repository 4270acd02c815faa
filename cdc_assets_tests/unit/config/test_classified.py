"""Every property that the real connector defines acts, is ignored with a reason, or is refused with a reason."""

from pathlib import Path

import pytest

from cdc_assets.config.build import build_config
from cdc_assets.config.properties import property_of
from cdc_assets.config.property import Status
from cdc_assets.errors import ConfigurationError
from cdc_assets_tests.unit.config.minimum import MINIMUM

NAMES = (Path(__file__).parents[2] / "golden" / "connector-properties.txt").read_text().split()
"""What `conformance.properties` prints; `conformance/test_properties.py` compares it with the connector."""


@pytest.mark.parametrize("name", NAMES)
def test_property_of_the_connector_is_classified(name: str) -> None:
    row = property_of(name)
    assert row.doc
    assert row.reason or row.status is Status.SUPPORTED


def test_a_configuration_of_another_house_is_refused_in_one_message() -> None:
    given = MINIMUM | {
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.password": "hidden-1",
        "converters": "iso",
        "iso.type": "a.B",
        "post.processors": "reselector",
        "reselector.type": "c.D",
        "poll.interval.ms": "often",
        "tabel.include.list": "dbo.orders",
    }
    with pytest.raises(ConfigurationError) as found:
        build_config(given)
    text = str(found.value)
    assert text.startswith("5 properties of the configuration are not valid:")
    for part in ("transforms", "converters", "post.processors", "poll.interval.ms", "table.include.list"):
        assert part in text
    assert "mirror.enabled" in text
    assert "hidden-1" not in text


def test_of_very_many_errors_the_first_are_listed() -> None:
    with pytest.raises(ConfigurationError, match=r"^50 properties") as found:
        build_config(MINIMUM | {f"unheard.of.{number}": "x" for number in range(50)})
    *listed, last = str(found.value).splitlines()[1:]
    assert 1 < len(listed) < 50
    assert last == f"… and {50 - len(listed)} more, which are listed when these are corrected."


def test_stores_of_the_jvm_and_of_structures_are_warned_of() -> None:
    names = [
        "database.ssl.truststore",
        "driver.trustStore",
        "driver.trustStorePassword",
        "driver.keyStoreLocation",
        "schema.history.internal.s3.bucket.name",
        "schema.history.internal.jdbc.url",
    ]
    ignored = dict(build_config(MINIMUM | dict.fromkeys(names, "x")).ignored)
    assert set(ignored) == set(names)
    assert "driver.serverCertificate" in ignored["database.ssl.truststore"]
    assert "driver.serverCertificate" in ignored["driver.trustStore"]
