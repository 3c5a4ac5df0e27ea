"""Receipts of batches: one for each message, made when somebody looks at it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, count
from typing import overload

from evenq.model import MessageQueue, SendResult, SendStatus

__all__ = ["BatchReceipts", "JoinedReceipts"]


class _Receipts(Sequence[SendResult]):
    """What both kinds share: slices."""

    __slots__ = ()

    def _one(self, index: int) -> SendResult:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> SendResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[SendResult]: ...
    def __getitem__(self, index: int | slice) -> SendResult | list[SendResult]:
        if isinstance(index, slice):
            return [self._one(at) for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"there are {len(self)} receipts, none at {index}")
        return self._one(at)


class BatchReceipts(_Receipts):
    """The receipts of one batch, which is in one queue, one message after the other.

    >>> got = BatchReceipts(SendStatus.SEND_OK, MessageQueue("t", "b", 0), 7, ["K1", "K2"], "ID1,ID2")
    >>> got[1].offset, got[1].msg_id, got[1].offset_msg_id, len(got)
    (8, 'K2', 'ID2', 2)
    """

    __slots__ = ("_ids", "_keys", "offset", "queue", "status")

    def __init__(self, status: SendStatus, queue: MessageQueue, offset: int, keys: Sequence[str], ids: str) -> None:
        self.status = status
        self.queue = queue
        self.offset = offset
        self._keys = keys
        self._ids: str | list[str] = ids

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[SendResult]:
        # all at once: the way by their positions would take twice as long
        status, queue = self.status, self.queue
        for offset, key, msg_id in zip(count(self.offset), self._keys[:], self._all_ids(), strict=False):
            yield SendResult(status=status, queue=queue, offset=offset, msg_id=key, offset_msg_id=msg_id)

    def _one(self, index: int) -> SendResult:
        return SendResult(
            status=self.status,
            queue=self.queue,
            offset=self.offset + index,
            msg_id=self._keys[index],
            offset_msg_id=self._all_ids()[index],
        )

    def _all_ids(self) -> list[str]:
        if isinstance(self._ids, str):
            ids = self._ids.split(",")
            # a topic of batches has a single record for all of them, and so a single id
            self._ids = ids if len(ids) == len(self._keys) else ids[:1] * len(self._keys)
        return self._ids


class JoinedReceipts(_Receipts):
    """The receipts of several batches, one batch after the other."""

    __slots__ = ("_ends", "_parts")

    def __init__(self, parts: Sequence[Sequence[SendResult]]) -> None:
        self._parts = parts
        self._ends = list(accumulate(map(len, parts), initial=0))

    def __len__(self) -> int:
        return self._ends[-1]

    def _one(self, index: int) -> SendResult:
        part = bisect_right(self._ends, index) - 1
        return self._parts[part][index - self._ends[part]]
