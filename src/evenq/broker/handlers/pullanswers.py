"""The answers to pulls. Those that bring messages differ in four numbers only: their headers are made of one form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenq.protocol.codes import ResponseCode
from evenq.protocol.command import RESPONSE, Command, Serialize, frame_parts

if TYPE_CHECKING:
    from evenq.broker.store.store import Read

__all__ = ["FOUND", "found_answer", "pull_answer", "pull_ext"]

# Java's own name of it travels as the remark
FOUND = "FOUND"

# stands for the number of the request until it is known
_OPAQUE = 1_234_567_890


def pull_ext(next_offset: object, min_offset: object, max_offset: object) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


_whole = Command(ResponseCode.SUCCESS, _OPAQUE, RESPONSE, remark=FOUND, ext=pull_ext("%d", "%d", "%d"))
_HEADER = _whole.parts("JSON")[1].replace(b"%d" % _OPAQUE, b"%d")


class _Found(Command, gc=False):
    """An answer whose header is written already, in the format that it was asked in."""

    header: bytes = b""

    def parts(self, serialize: Serialize | None = None) -> tuple[bytes, bytes, bytes]:
        return frame_parts(self.header, self.body)


def pull_answer(request: Command, code: ResponseCode, read: Read, remark: str) -> Command:
    """The answer to a pull, whatever came of it."""
    ext = pull_ext(read.next_offset, read.min_offset, read.max_offset)
    return request.reply(code, ext=ext, body=read.body, remark=remark)


def found_answer(request: Command, found: Read) -> Command:
    """The answer to a pull that found messages."""
    if request.serialize != "JSON":
        return pull_answer(request, ResponseCode.SUCCESS, found, FOUND)
    header = _HEADER % (found.next_offset, found.min_offset, found.max_offset, request.opaque)
    return _Found(ResponseCode.SUCCESS, request.opaque, RESPONSE, remark=FOUND, body=found.body, header=header)
