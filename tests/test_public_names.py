"""The names that users rely on. A change here is a change of the interface: say so in CHANGELOG.md."""

import importlib

import pytest

PUBLIC = {
    "evenq": """
        Admin ArgumentError ConnectError ConsumeEvent Credentials EvenqError FlowControl HashSelector
        IncompleteAnswer Intervals LitePullConsumer LocalError MachineRoomSelector Message MessageModel MessageQueue
        MessageView NoPermission NoReply OffsetsLost PartlySent Producer ProtocolError PushConsumer RandomSelector
        RecordError RefusedError RemoteError RequestTimeout Retry SendEvent SendFailed SendInterrupted SendResult
        SendStatus SendTimeout StateError Timeouts Tls TopicNotFound TransactionResult TransactionState __version__ aio
        balance protocol testing
    """,
    "evenq.aio": "Admin LitePullConsumer Producer PushConsumer",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module: str) -> None:
    loaded = importlib.import_module(module)
    assert sorted(loaded.__all__) == sorted(PUBLIC[module].split())
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None


def test_an_unknown_name_is_an_ordinary_error() -> None:
    import evenq

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        evenq.nonsense  # type: ignore[attr-defined]  # noqa: B018
