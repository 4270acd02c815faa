"""The recipe of docs/reading.md for an asset that reads only new events: each once, whatever its runs do."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.spark import lake_reader
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.spark import SparkResource
from cdc_assets_tests.shop import ROOT, Shop, key, open_shop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"),
]
PART = (ROOT / "docs" / "reading.md").read_text().split("#### Only new events, in an asset\n")[1]
RECIPE = next(iter(re.findall(r"```python\n(.*?)```", PART, re.DOTALL)))
OWN = dg.AssetKey(["reports", "large_credits"])


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    with open_shop(tmp_path) as found:
        (tmp_path / "var").mkdir()
        (tmp_path / "var" / "lake").symlink_to(tmp_path / "lake")
        (tmp_path / "shop.json").symlink_to(found.file)
        monkeypatch.chdir(tmp_path)
        yield found


@pytest.mark.long
def test_each_event_once(shop: Shop, spark_resource: SparkResource) -> None:
    with shop.in_environment(), dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        module: dict[str, Any] = {}
        exec(compile(RECIPE, "reading.md", "exec"), module)  # noqa: S102 - our own document
        definitions: dg.Definitions = module["defs"]()
        assert key("customers", "changes") in definitions.resolve_asset_graph().get(OWN).parent_keys

        def materialize() -> bool:
            job = definitions.resolve_implicit_global_asset_job_def()
            return job.execute_in_process(instance=instance, asset_selection=[OWN], raise_on_error=False).success

        def change(credit: int, *ids: int) -> None:
            for number in ids:
                shop.execute("UPDATE dbo.customers SET credit = ? WHERE id = ?", credit, number)
            assert shop.changes(instance).success

        def kept() -> Counter[int]:
            return Counter(DeltaTable("var/lake/reports.large_credits").to_pyarrow_table()["id"].to_pylist())

        change(5, 1)
        assert materialize(), "and keeps nothing"
        change(2000, 1, 2)
        assert materialize()
        assert kept() == {1: 1, 2: 1}
        assert materialize(), "nothing is new"
        change(10, 1, 3)
        change(3000, 2, 4)
        with patch.object(EnvelopeIOManager, "append", side_effect=RuntimeError("the run dies before the commit")):
            assert not materialize()
        assert kept() == {1: 1, 2: 1}
        commit = EnvelopeIOManager.append

        def dies_behind(*given: Any) -> None:
            commit(*given)
            raise RuntimeError

        with patch.object(EnvelopeIOManager, "append", dies_behind):
            assert not materialize()
        assert materialize()
        assert kept() == {1: 1, 2: 2, 4: 1}


@pytest.mark.long
def test_it_opens_only_files_with_something_new(shop: Shop, spark_resource: SparkResource) -> None:
    with shop.in_environment(), dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        for credit in (1000, 2000, 3000):
            shop.execute("UPDATE dbo.customers SET credit = ? WHERE id = 1", credit)
            assert shop.changes(instance).success
        newest = shop.events("customers")[-2]["position"]
        frame = lake_reader.LakeReader(shop.view().lake, lambda: spark_resource.spark_session)
        found = frame.events("shop.SalesDb.dbo.customers", lake_reader.LsnRange.parse(newest[:22]))
        assert len(found.inputFiles()) == 1
        assert found.count() == 1
