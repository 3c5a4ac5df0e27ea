import time

from evenq.testing import Clock


def test_a_clock_runs_by_itself_and_is_moved_ahead() -> None:
    clock = Clock()
    assert abs(clock.now() - time.time()) < 1
    clock.advance(3600)
    clock.advance(60)
    assert 3659 < clock.now() - time.time() < 3661
