import subprocess
import sys

import pytest

import evenq.protocol
from evenq.protocol import Command, FrameParser, RequestCode, ResponseCode, decode_messages

HEAVY = ("numpy", "pyarrow", "lz4", "zstandard")


def test_the_names_that_others_rely_on() -> None:
    assert {Command, FrameParser, RequestCode, ResponseCode, decode_messages} <= {
        getattr(evenq.protocol, name) for name in evenq.protocol.__all__
    }


@pytest.mark.live
def test_columns_and_compression_are_loaded_on_use() -> None:
    code = f"import sys, evenq.protocol; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
