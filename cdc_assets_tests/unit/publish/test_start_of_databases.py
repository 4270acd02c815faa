"""Where publishing begins is said for each database: LSNs of two have no order."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cdc_assets.cli import publish as cli
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.errors import ConfigurationError, EventsDroppedError, InvalidValueError
from cdc_assets.lake.retained import Retained
from cdc_assets.overview import CaptureOverview, published_of
from cdc_assets.publish.after import by_database
from cdc_assets.publish.feed import Feed, Topic
from cdc_assets.publish.offset import Published, parse_published
from cdc_assets.publish.span import Replay, Span
from cdc_assets.publish.start import Start
from cdc_assets.publish.stops import dropped
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.publish.world import publisher
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE
from cdc_assets_tests.unit.streaming.two_databases import OTHER, TwoDatabases, config_of_two

LATE, EARLY = "0000009a:00000001:0001", "0000002a:00000001:0001"


class Apart(TwoDatabases):
    """Each database has a log of its own: that of SalesDb is far ahead."""

    def recovery_fork(self, database: str, known: Lsn = ZERO_LSN) -> None:
        return None

    def tick(self, database: str = DATABASE) -> Lsn:
        self._tick += 1
        return Lsn.from_int(((0x9A if database == DATABASE else 0x2A) << 48) + (self._tick << 16) + 1)

    def commit_other(self, *changes: tuple[TableId, str, int, object]) -> Lsn:
        own, before = self.tick, self.captured
        self.tick = lambda database=OTHER: own(OTHER)  # type: ignore[method-assign]
        try:
            return self.commit(*changes)  # type: ignore[arg-type]
        finally:
            del self.tick  # type: ignore[method-assign]
            self.captured = max(self.captured, before)

    def max_captured_lsn(self, database: str) -> Lsn | None:
        begins = "0000009a" if database == DATABASE else "0000002a"
        known = [change.lsn for change in self.history if change.table.database == database]
        known += [instance.start_lsn for instance in self.instances if instance.table.database == database]
        return max([*known, *(lsn for lsn in self.transactions if str(lsn).startswith(begins))], default=None)


class Case:
    """A lake of both, and the LSNs of their newest events."""

    def __init__(self, path: Path) -> None:
        self.server = Apart()
        self.orders, self.y = self.server.create("orders", rows=2), self.server.create_other("y", rows=1)
        self.config: CaptureConfig = config_of_two(path, transaction_metadata=True)
        self.change(10)
        make_capture(self.server, self.config).snapshot()
        self.lsns = self.change(11)
        self.capture()

    def change(self, key: int) -> dict[str, str]:
        found = self.server.commit((self.orders, "insert", key, "a"))
        other = self.server.commit_other((self.y, "insert", key, "a"))
        return {DATABASE: str(found), OTHER: str(other)}

    def capture(self) -> None:
        make_capture(self.server, self.config).stream()

    def publish(self, broker: MemoryBroker, after: str | Mapping[str, str] = "") -> None:
        found = publisher(self.config, broker, after=after)
        found.open()
        while found.turn():
            pass

    def sent(self, broker: MemoryBroker, table: TableId) -> list[str]:
        return [record.position for record in broker.topics[f"shop.{table}"]]

    def wanted(self, table: TableId, after: str) -> list[str]:
        return sorted(event.position for event in events_of(self.config, table) if event.position[:22] > after)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def waiting(case: Case, broker: MemoryBroker) -> int:
    found = published_of(CaptureOverview(case.config), datetime.now(UTC), broker.newest)
    assert found is not None
    assert not found.problem
    return found.waiting


@pytest.mark.long
def test_each_database_is_published_after_its_own_lsn(case: Case) -> None:
    broker = MemoryBroker()
    after = {DATABASE.upper(): case.lsns[DATABASE]}
    case.publish(broker, after)
    for key in (12, 13):
        case.change(key)
        case.capture()
        assert waiting(case, broker)
        case.publish(broker, after)
        assert not waiting(case, broker)
    assert case.sent(broker, case.orders) == case.wanted(case.orders, case.lsns[DATABASE])
    assert case.sent(broker, case.y) == case.wanted(case.y, "")
    assert parse_published(broker.marker or "").after == {DATABASE: case.lsns[DATABASE]}
    both = MemoryBroker()
    case.publish(both, case.lsns)
    assert case.sent(both, case.y) == case.wanted(case.y, case.lsns[OTHER])
    assert len(case.sent(both, case.y)) == 2


def found_in(case: Case, broker: MemoryBroker, topic: str) -> set[tuple[str, str, str]]:
    """What of which database a shared topic has in Kafka: kind, database and LSN of each record."""
    found = set[tuple[str, str, str]]()
    for record in broker.topics[topic]:
        value = json.loads(record.value or b"")["payload"]
        if "status" not in value:
            assert ("schema", value["databaseName"], value["source"]["commit_lsn"]) not in found
            found.add(("schema", value["databaseName"], value["source"]["commit_lsn"]))
        else:
            database = DATABASE if value["id"].startswith("0000009a") else OTHER
            assert (value["status"], database, value["id"]) not in found
            found.add((value["status"], database, value["id"]))
    return found


@pytest.mark.long
@pytest.mark.parametrize("named", [(DATABASE,), (OTHER,), (DATABASE, OTHER)])
def test_shared_topics_have_of_each_database_what_comes_after_its_lsn(case: Case, named: Sequence[str]) -> None:
    """LSNs of one database are all below those of the other; what is not named is sent whole."""
    whole, broker, after = MemoryBroker(), MemoryBroker(), {name: case.lsns[name] for name in named}
    case.publish(broker, after)
    assert not waiting(case, broker), "what is left out is not waited for"
    for key in (12, 13):
        case.server.create(f"later{key}")
        case.change(key)
        case.capture()
        case.publish(broker, after)
        assert not waiting(case, broker)
    case.publish(whole)
    for topic, kinds in (("shop.transaction", {"BEGIN", "END"}), ("shop", {"schema"})):
        all_of_it = found_in(case, whole, topic)
        assert {kind for kind, _, _ in all_of_it} == kinds
        assert {database for _, database, _ in all_of_it} == {DATABASE, OTHER}
        wanted = {row for row in all_of_it if row[2] > after.get(row[1], "")}
        assert wanted < all_of_it
        assert found_in(case, broker, topic) == wanted


def test_a_database_is_known_in_another_letter_case_before_its_first_table(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = MemoryBroker()
    names = Feed.databases
    with monkeypatch.context() as patch:
        patch.setattr(Feed, "databases", lambda feed: [name.lower() for name in names(feed)])
        found = publisher(case.config, broker, after={name.lower(): lsn for name, lsn in case.lsns.items()})
        found.open()
    while found.turn():
        pass
    assert case.sent(broker, case.y) == case.wanted(case.y, case.lsns[OTHER])


def test_what_the_other_database_has_waits_until_it_is_published(case: Case) -> None:
    """Not before: the report knows of each row of which database it is."""
    broker = MemoryBroker()
    found = publisher(case.config, broker, after={DATABASE: case.lsns[DATABASE]})
    found.open()
    assert waiting(case, broker)


def test_an_lsn_of_no_database_is_refused_where_there_are_several(case: Case) -> None:
    broker, lsn = MemoryBroker(), case.lsns[DATABASE]
    with pytest.raises(ConfigurationError, match=rf"--from-lsn {OTHER}=LSN --from-lsn {DATABASE}=LSN"):
        publisher(case.config, broker, after=lsn).open()
    one = replace(case.config, connection=replace(case.config.connection, databases=(DATABASE,)))
    with pytest.raises(ConfigurationError, match=rf"--from-lsn {OTHER}=LSN --from-lsn {DATABASE}=LSN"):
        publisher(one, broker, after=lsn).open()
    with pytest.raises(ConfigurationError, match=f"Othr={lsn}.*{OTHER}, {DATABASE}"):
        publisher(case.config, broker, after={"Othr": lsn}).open()
    assert broker.marker is None


@pytest.mark.parametrize("span", [Span(after=EARLY), Span(until=LATE)])
def test_a_range_of_lsns_is_refused_where_there_are_several_databases(case: Case, span: Span) -> None:
    with pytest.raises(ConfigurationError, match=f"numbers of windows.*{OTHER}, {DATABASE}.*cdc-assets status"):
        publisher(case.config, MemoryBroker(), replay=Replay(span, "old")).open()
    publisher(case.config, MemoryBroker(), replay=Replay(Span(), "old")).open()


def test_the_one_lsn_of_an_earlier_version_stays_until_each_database_has_its_own(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    broker = MemoryBroker()
    case.publish(broker, case.lsns)
    broker.marker = json.dumps(json.loads(broker.marker or "") | {"after": case.lsns[DATABASE]})
    case.change(12)
    case.capture()
    found = publisher(case.config, broker, after=case.lsns[DATABASE])
    found.open()
    assert parse_published(broker.marker).after == {"": case.lsns[DATABASE]}
    assert f"--from-lsn {OTHER}=LSN --from-lsn {DATABASE}=LSN" in caplog.text
    caplog.clear()
    case.publish(broker, case.lsns)
    case.publish(broker)
    assert parse_published(broker.marker).after == case.lsns
    assert "no order" not in caplog.text
    assert case.sent(broker, case.y) == case.wanted(case.y, case.lsns[OTHER])


def test_the_one_lsn_of_an_earlier_version_is_that_of_the_only_database() -> None:
    text = json.dumps({"lake": "l", "window": 3, "places": {}, "after": EARLY})
    assert parse_published(text).after == {"": EARLY}
    assert parse_published(json.dumps({"lake": "l", "window": 3, "places": {}, "after": ""})).after == {}
    assert Start("l", ["A"], {"A": EARLY}, None, "").continued(parse_published(text)).after == {"A": EARLY}
    assert by_database({"": EARLY}, ["A"]) == by_database({"a": EARLY}, ["A"]) == {"A": EARLY}
    known = Published("l", 3, after={"A": EARLY}, writer="other")
    Start("l", ["A", "B"], {"": EARLY}, None, "").check(known, 5, (), new=False)  # B has come since
    with pytest.raises(ConfigurationError, match="leave it out"):
        Start("l", ["A", "B"], {"": LATE}, None, "").check(known, 5, (), new=False)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, {}),
        ([""], {}),
        ([LATE.upper()], {"": LATE}),
        ([f"A={LATE}", f"b=c={EARLY}"], {"A": LATE, "b=c": EARLY}),
    ],
)
def test_what_options_mean(
    case: Case, monkeypatch: pytest.MonkeyPatch, given: list[str] | None, wanted: dict[str, str]
) -> None:
    seen = list[object]()

    def publish_topics(*_: object, after: object, **_more: object) -> dict[str, str]:
        seen.append(after)
        return {}

    monkeypatch.setattr(cli, "show_logs", lambda: None)
    monkeypatch.setattr(cli, "read_lake_config", lambda *_: (case.config, None))
    monkeypatch.setattr(cli, "publish_topics", publish_topics)
    cli.publish(from_lsn=given)
    assert seen == [wanted]
    with pytest.raises(InvalidValueError):
        cli.publish(from_lsn=["A="])


def topics() -> list[Topic]:
    held = {"A": Retained(LATE, 4), "B": Retained(EARLY, 7)}
    made = Topic("shop.A.t", 1, True, 9, 9, None, Retained(), database="A")  # type: ignore[arg-type]
    return [replace(made, name=f"shop.{name}.t", holds=holds, database=name) for name, holds in held.items()]


def test_next_steps_name_an_lsn_for_each_database() -> None:
    with pytest.raises(EventsDroppedError, match=f"--from-lsn A={LATE} --from-lsn B={EARLY}"):
        Start("l", ["A", "B"], {}, None, "").check(Published("l"), 9, topics(), new=True)
    with pytest.raises(EventsDroppedError, match=f"--from-lsn A={LATE} --from-lsn B={EARLY}"):
        Start("l", ["A", "B"], {"A": LATE}, None, "").check(Published("l", after={"A": LATE}), 9, topics(), new=True)
    start = Start("l", ["A", "B"], {"A": LATE, "B": EARLY}, None, "")
    start.check(start.first(), 9, topics(), new=True)
    with pytest.raises(EventsDroppedError, match=r"replay 8\.\."):
        Start("l", ["A", "B"], {}, Span(), "").check(Published("l", span="0.."), 9, topics(), new=True)
    first, second = topics()
    assert "--replay 5.. --prefix" in dropped(first, Published("l"), {"B": LATE}, several=True)
    assert f"--replay {EARLY}.. --prefix" in dropped(second, Published("l"), {}, several=False)
    assert not dropped(second, Published("l"), {"B": EARLY}, several=True)
