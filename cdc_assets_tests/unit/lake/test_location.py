"""Where the lake lies."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from cdc_assets.config.settings import LakeSettings
from cdc_assets.errors import ConfigurationError, LakeError
from cdc_assets.lake.audit import examine
from cdc_assets.lake.location import Location, list_files, plain
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.unit.lake.writing import schema_of, write


def test_local_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.of(LakeSettings("lake")).root == str(tmp_path / "lake")


def test_urls_stay_and_options_are_not_shown() -> None:
    location = Location.of(LakeSettings("s3://bucket/lake/", (("key", "word"),)))
    assert location.uri("topic") == "s3://bucket/lake/topic"
    assert "word" not in repr(location)


def test_probe_leaves_nothing(tmp_path: Path) -> None:
    Location(str(tmp_path)).check_writable()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [0, 5, 100_000])
@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_small_files_are_written_whole(tmp_path: Path, form: str, size: int) -> None:
    location = Location(form.format(tmp_path))
    location.check_writable()
    location.write("a", "b", b"x" * size)
    assert [(file.name, file.stat().st_size) for file in (tmp_path / "a").iterdir()] == [("b", size)]


def test_unknown_scheme_is_a_lake_error() -> None:
    with pytest.raises(LakeError, match="foo://"):
        Location("foo://bucket").check_writable()


def test_errors_are_reported_in_one_plain_line() -> None:
    assert plain(OSError("Generic error\n  \x1b[31m↳\x1b[0m refused.")) == "Generic error ↳ refused"


LOCATED = "from cdc_assets.config.settings import LakeSettings; from cdc_assets.lake.location import Location; "


def test_too_little_address_space_is_refused_in_place_of_hanging(tmp_path: Path) -> None:
    """In a process whose limit is real."""
    limit, work = 1_600_000_000, f"Location.of(LakeSettings({str(tmp_path)!r})).check_writable()"
    done = subprocess.run(
        [sys.executable, "-c", LOCATED + work],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 1
    assert "1,562,500 kB of address space (ulimit -v), expected at least 1,708,984" in done.stderr
    assert "Next: raise that limit" in done.stderr


def test_an_address_with_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match=r"lake\.storage\.option") as told:
        Location.of(LakeSettings("s3://user:pl4nted@bucket/lake"))
    assert "pl4nted" not in str(told.value)
    assert Location.of(LakeSettings("abfss://lake@account.dfs.core.windows.net/x")).root.startswith("abfss://lake@")


def test_names_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    """Folders and files that somebody has put into the lake from a system with another encoding."""
    tables, schema = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32())
    tables.ensure("topic", schema)
    many = [file for _ in range(5) for file in write(tables, schema, 1, {"id": 1})]  # so many are listed
    assert tables.commit("topic", schema, many, 1, {})
    for folder in (tmp_path, tmp_path / "topic"):
        os.makedirs(os.fsencode(folder) + b"/f\xfcr")  # noqa: PTH103 - of bytes
    assert tables.location.directories() == ["topic"]
    found = examine(tables, "topic", None)
    assert (found.loss, found.mark and found.mark.rows) == (None, 5)


def test_a_folder_that_is_created_while_it_is_listed_is_listed(tmp_path: Path) -> None:
    """Arrow finds that it is not there, and then that it is, which it takes for an error."""
    selectors: list[fs.FileSelector] = []

    class Files:
        """Those of a folder that another process creates."""

        def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
            selectors.append(selector)
            if len(selectors) == 1:
                raise FileNotFoundError("Cannot list directory")
            return local.get_file_info(selector)

    local = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert list_files(local, "no") == []
    (tmp_path / "readers").mkdir()
    (tmp_path / "readers" / "0.ready").touch()
    assert [info.base_name for info in list_files(Files(), "readers")] == ["0.ready"]  # type: ignore[arg-type]
    assert len(selectors) == 2
