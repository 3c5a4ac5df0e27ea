import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, as_completed, wait

import pytest

from evenq.client.sync.pending import Pending


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_it_is_a_future_that_has_begun() -> None:
    pending: Pending[int] = Pending()
    assert isinstance(pending, concurrent.futures.Future)
    assert (pending.done(), pending.running(), pending.cancelled(), pending.cancel()) == (False, True, False, False)
    with pytest.raises(TimeoutError):
        pending.result(0)
    pending.set_result(7)
    assert (pending.done(), pending.running(), pending.cancel(), pending.result(), pending.exception()) == (
        True, False, False, 7, None,
    )  # fmt: skip


def test_an_error_is_raised_to_whoever_asks() -> None:
    before: Pending[int] = Pending()
    after: Pending[int] = Pending()
    seen: list[BaseException | None] = []
    thread = in_thread(lambda: seen.append(before.exception(10)))
    before.set_exception(ZeroDivisionError("before"))
    after.set_exception(ZeroDivisionError("after"))
    thread.join()
    assert str(seen[0]) == "before"
    with pytest.raises(ZeroDivisionError, match="after"):
        after.result()


def test_callbacks_are_called_once_whenever_they_come() -> None:
    called: list[str] = []
    pending: Pending[int] = Pending(then=lambda: called.append(f"then, done {pending.done()}"))
    pending.add_done_callback(lambda done: called.append(f"before {done.result()}"))
    pending.set_result(1)
    pending.add_done_callback(lambda done: called.append(f"after {done.result()}"))
    untouched: Pending[int] = Pending()
    untouched.set_result(2)
    untouched.add_done_callback(lambda done: called.append(f"late {done.result()}"))
    assert called == ["then, done False", "before 1", "after 1", "late 2"]


@pytest.mark.parametrize("keep_first", [True, False])
def test_waiting_for_many_finds_each_once(keep_first: bool) -> None:
    for _ in range(20):
        pendings: list[Pending[int]] = [Pending() for _ in range(50)]

        def keep(pendings: list[Pending[int]] = pendings) -> None:
            for number, pending in enumerate(pendings):
                pending.set_result(number)

        thread = in_thread(keep) if keep_first else None
        found: list[int] = []
        results = as_completed(pendings, timeout=10)
        if thread is None:
            thread = in_thread(keep)
        found.extend(future.result() for future in results)
        thread.join()
        assert sorted(found) == list(range(50))
        assert wait(pendings, 0, FIRST_EXCEPTION).not_done == set()


def test_many_threads_wait_for_one() -> None:
    pending: Pending[str] = Pending()
    got: list[str] = []
    threads = [in_thread(lambda: got.append(pending.result(10))) for _ in range(20)]
    pending.set_result("kept")
    for thread in threads:
        thread.join()
    assert got == ["kept"] * 20


def test_other_names_are_missed_as_usual() -> None:
    with pytest.raises(AttributeError, match="'Pending' object has no attribute 'nonsense'"):
        Pending[int]().nonsense  # noqa: B018
