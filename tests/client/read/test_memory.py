import resource
import subprocess
import sys
from platform import libc_ver

import pytest

pytestmark = pytest.mark.live

# takes and frees the memory of a batch over and over, and tells how often the system had to give pages for it
CHURN = """
import resource
from evenq.client.read.memory import keep_freed
{}
def churn():
    return len([bytes(90_000) for _ in range(100)])
churn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    churn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(libc_ver()[0] != "glibc", reason="other C libraries have other ways")
def test_freed_memory_is_kept_for_what_comes_next() -> None:
    def faults(first: str) -> int:
        return int(subprocess.run([sys.executable, "-c", CHURN.format(first)], capture_output=True, check=True).stdout)

    pages = 20 * 100 * 90_000 // resource.getpagesize()
    kept = faults("keep_freed()")
    assert kept < pages / 10
    assert faults("") > 3 * kept
