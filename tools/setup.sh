#!/bin/sh
# Makes .venv with everything the project needs, from the lock file. Names what is missing in one line.
set -eu

fail() {
    echo "setup: $1" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

python=""
for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
    if command -v "$candidate" >/dev/null 2>&1 && is_new_enough "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    found=$(python3 --version 2>/dev/null || echo "none found")
    fail "Python 3.11 or newer is needed ($found): install it (Debian: apt-get install python3 python3-venv) or say PYTHON=/path/to/python make …"
fi

java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
if ! version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1) || [ -z "$version" ]; then
    fail "Java 17 or newer is needed by Spark (none found): install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
fi
if [ "$version" -lt 17 ]; then
    fail "Java 17 or newer is needed by Spark (found $version): install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
fi

if [ -n "${UV:-}" ]; then
    uv=$UV
else
    uv=.tools/bin/uv
    if [ ! -x "$uv" ]; then
        "$python" -m venv .tools >/dev/null 2>&1 ||
            fail "$python cannot make a virtual environment: install its venv module (Debian: apt-get install python3-venv)"
        .tools/bin/python -m pip install --quiet --disable-pip-version-check "uv==0.13.7" ||
            fail "uv could not be installed from the package index: check the network, or install uv yourself and say UV=uv make …"
    fi
fi

UV_PYTHON_DOWNLOADS=never "$uv" sync --quiet --frozen --all-extras --python "$("$python" -c 'import sys; print(sys.executable)')" ||
    fail "the packages of uv.lock could not be installed: see the lines above"
echo "setup: ready in .venv ($("$python" --version), Java $version)"
