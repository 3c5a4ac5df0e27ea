from evenq.protocol.flags import Perm, PullFlag, SysFlag


def test_transactions_are_two_bits_that_say_three_things() -> None:
    kinds = [SysFlag.PREPARED, SysFlag.COMMIT, SysFlag.ROLLBACK]
    assert [kind & SysFlag.TRANSACTION for kind in kinds] == kinds
    assert len(set(kinds)) == 3


def test_flags_travel_as_numbers() -> None:
    assert str(PullFlag.COMMIT_OFFSET | PullFlag.SUSPEND) == "3"
    assert str(Perm.READ | Perm.WRITE) == "6"
