from evenq.broker.faults import Faults
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command

PULL, SEND = RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


def test_a_fault_is_for_its_code_only() -> None:
    faults = Faults()
    assert not faults
    faults.add(PULL, drop=True)
    assert faults
    assert faults.take(Command(SEND)) is None
    fault = faults.take(Command(PULL))
    assert fault is not None
    assert (fault.drop, fault.error) == (True, None)


def test_without_details_a_request_is_refused() -> None:
    faults = Faults()
    faults.add(PULL)
    fault = faults.take(Command(PULL))
    assert fault is not None
    assert fault.error == ResponseCode.SYSTEM_ERROR


def test_a_fault_ends_after_its_times_and_the_next_one_follows() -> None:
    faults = Faults()
    faults.add(PULL, error=2, times=2)
    faults.add(PULL, error=14, times=1)
    errors = [fault.error if (fault := faults.take(Command(PULL))) else None for _ in range(4)]
    assert errors == [2, 2, 14, None]


def test_a_fault_may_pick_its_requests() -> None:
    faults = Faults()
    faults.add(PULL, close=True, when=lambda request: request.ext.get("topic") == "orders")
    assert faults.take(Command(PULL, ext={"topic": "bills"})) is None
    assert faults.take(Command(PULL, ext={"topic": "orders"})) is not None


def test_faults_are_cleared_by_code_or_all() -> None:
    faults = Faults()
    faults.add(PULL)
    faults.add(SEND)
    faults.clear(PULL)
    assert faults.take(Command(PULL)) is None
    assert faults.take(Command(SEND)) is not None
    faults.clear()
    assert not faults


def test_what_befalls_sends_befalls_batches_of_them() -> None:
    faults = Faults()
    faults.add(SEND, error=2, times=2)
    faults.add(BATCH, error=14)
    errors = [fault.error if (fault := faults.take(Command(code))) else None for code in (SEND, BATCH, BATCH, SEND)]
    assert errors == [2, 2, 14, None]
    faults.clear(SEND)
    assert faults.take(Command(BATCH)) is not None
    faults.clear(BATCH)
    assert not faults
