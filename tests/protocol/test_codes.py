from evenq.protocol import Command, RequestCode, ResponseCode
from evenq.protocol.codes import name_of, response_name_of


def test_numbers_are_rocketmqs() -> None:
    assert (RequestCode.SEND_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT) == (10, 11, 34)
    assert (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE) == (310, 320)
    assert (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.PULL_NOT_FOUND) == (0, 17, 19)


def test_no_two_names_share_a_number() -> None:
    for codes in (RequestCode, ResponseCode):
        assert len(codes.__members__) == len(set(codes))


def test_a_number_without_a_name_is_still_read() -> None:
    assert Command.decode(Command(31999).encode("ROCKETMQ")).code == 31999
    assert name_of(31999) == "request 31999"
    assert response_name_of(31999) == "response 31999"
