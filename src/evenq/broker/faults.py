"""Faults on purpose, by request code: late, refused, lost or broken off. For tests of whoever talks to a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command

__all__ = ["Fault", "Faults"]

# Clients put messages that were sent one by one together by themselves: what befalls sends befalls those as well.
_ALSO: dict[int, tuple[int, ...]] = {
    RequestCode.SEND_BATCH_MESSAGE: (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2),
}


@dataclass(slots=True)
class Fault:
    """What happens to a request instead of, or before, being handled.

    ``delay`` seconds pass first; then the first of these that is set: ``close`` breaks the connection, ``drop``
    loses the request, ``error`` refuses it. ``mute`` handles it and loses the answer. ``times`` counts down, None
    lasts until it is cleared; ``when`` picks the requests it is for.
    """

    delay: float = 0.0
    error: int | None = None
    remark: str = "a fault on purpose"
    drop: bool = False
    mute: bool = False
    close: bool = False
    times: int | None = None
    when: Callable[[Command], bool] | None = None


class Faults:
    """The faults of one server.

    >>> faults = Faults()
    >>> faults.add(105, error=ResponseCode.SYSTEM_BUSY, times=1)
    >>> [fault and fault.error for fault in (faults.take(Command(105)), faults.take(Command(105)))]
    [<ResponseCode.SYSTEM_BUSY: 2>, None]
    """

    def __init__(self) -> None:
        self._by_code: dict[int, list[Fault]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_code)

    def add(
        self,
        code: int,
        *,
        delay: float = 0.0,
        error: int | None = None,
        remark: str = "a fault on purpose",
        drop: bool = False,
        mute: bool = False,
        close: bool = False,
        times: int | None = None,
        when: Callable[[Command], bool] | None = None,
    ) -> None:
        """Let requests of ``code`` suffer; without any detail they are refused as a system error.

        Faults of single sends are those of batches, too.
        """
        if error is None and not (delay or drop or mute or close):
            error = ResponseCode.SYSTEM_ERROR
        fault = Fault(delay, error, remark, drop, mute, close, times, when)
        self._by_code.setdefault(code, []).append(fault)

    def clear(self, code: int | None = None) -> None:
        """End the faults of one code, or all."""
        if code is None:
            self._by_code.clear()
        else:
            self._by_code.pop(code, None)

    def take(self, request: Command) -> Fault | None:
        """The fault that this request suffers, counted as used."""
        codes = (*_ALSO.get(request.code, ()), request.code)
        for fault in chain.from_iterable(self._by_code.get(code, ()) for code in codes):
            if fault.when is not None and not fault.when(request):
                continue
            if fault.times is None:
                return fault
            if fault.times > 0:
                fault.times -= 1
                return fault
        return None
