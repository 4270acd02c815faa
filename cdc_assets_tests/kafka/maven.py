"""Jars and archives from Maven Central, by Ivy, which Spark carries; fetched once into `.cache`."""

import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree

CACHE = Path(__file__).parents[2] / ".cache"
_SETTINGS = """<ivysettings><settings defaultResolver="central"/><caches defaultCacheDir="{cache}"/>
<resolvers><ibiblio name="central" m2compatible="true" root="https://repo1.maven.org/maven2/"/></resolvers></ivysettings>"""
_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="tests" module="tests"/>
<configurations><conf name="default"/></configurations><dependencies>{needs}</dependencies></ivy-module>"""


@dataclass(frozen=True)
class Need:
    """A module.

    Args:
        classifier: of an archive that is wanted alone, as `.tar.gz`; empty for jars with all that they need.
    """

    group: str
    name: str
    version: str
    classifier: str = ""

    def __str__(self) -> str:
        start = f'<dependency org="{self.group}" name="{self.name}" rev="{self.version}"'
        if not self.classifier:
            return f'{start} conf="default->default"/>'
        kind = f'type="tar.gz" ext="tar.gz" m:classifier="{self.classifier}"'
        return f'{start} transitive="false"><artifact name="{self.name}" {kind}/></dependency>'


def fetched(folder: str | Path, *needs: Need) -> Path:
    """A folder with what is needed, archives unpacked.

    Args:
        folder: its name in the cache, or another place.
    """
    place = CACHE / folder
    done = place / "complete"
    if done.exists():
        return place
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    [ivy] = (Path(spec.origin).parent / "jars").glob("ivy-*.jar")
    rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    settings, module = place / "ivysettings.xml", place / "ivy.xml"
    settings.write_text(_SETTINGS.format(cache=place / "cache"))
    module.write_text(_MODULE.format(needs="".join(map(str, needs))))
    command = ["java", "-jar", str(ivy), "-settings", str(settings), "-ivy", str(module), "-confs", "default"]
    command += ["-types", "jar", "bundle", "tar.gz", "-retrieve", f"{place}/[artifact]-[revision].[ext]"]
    log = place / "log"
    with log.open("wb") as out:
        ended = subprocess.run(command, timeout=600, stdout=out, stderr=out, check=False)
    assert ended.returncode == 0, log.read_text()[-3000:]
    for archive in place.glob("*.tar.gz"):
        subprocess.run(["tar", "xzf", str(archive), "-C", str(place)], check=True)
        archive.unlink()
    rmtree(place / "cache")
    done.touch()
    return place
