"""Headers of sending: plain, batched, sent back, transactional, replies."""

from __future__ import annotations

from evenq.protocol.headers.base import BrokerRequest, Header, Int32, Int64, QueueRequest, TopicRequest

__all__ = [
    "CheckTransaction",
    "EndTransaction",
    "PushReply",
    "RecallRequest",
    "RecallResponse",
    "SendBack",
    "SendRequest",
    "SendRequestV2",
    "SendResponse",
]

_LETTERS = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
    "broker_name": "n",
}


class SendRequest(QueueRequest):
    """A send under its long names (code 10). ``properties`` is in wire form; ``default_topic`` lends its settings
    to a topic that the broker may create."""

    producer_group: str
    default_topic: str = "TBW102"
    default_topic_queue_nums: Int32 = 4
    sys_flag: Int32 = 0
    born_timestamp: Int64
    flag: Int32 = 0
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False


class SendRequestV2(SendRequest, rename=_LETTERS):
    """The same send under one-letter names (codes 310 and 320): what every current client writes."""

    producer_group: str
    topic: str
    default_topic: str = "TBW102"
    default_topic_queue_nums: Int32 = 4
    queue_id: Int32
    sys_flag: Int32 = 0
    born_timestamp: Int64
    flag: Int32 = 0
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    broker_name: str | None = None


class SendResponse(Header):
    """Where a message was stored. ``msg_id`` is the broker's id; a batch has one id per message, by commas."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class SendBack(BrokerRequest):
    """A consumer gives a message back for later (36). ``delay_level`` 0: the broker's choice, -1: dead letter."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class EndTransaction(BrokerRequest):
    """A producer commits or rolls back a half message (37). ``commit_or_rollback`` is a transaction type flag."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class CheckTransaction(BrokerRequest):
    """The broker asks a producer what became of a half message (39); the message is the body."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class PushReply(QueueRequest):
    """The broker hands the reply of a request-reply pair to the asker (326); the message is the body."""

    producer_group: str
    default_topic: str = "TBW102"
    default_topic_queue_nums: Int32 = 4
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64


class RecallRequest(TopicRequest):
    """A producer takes a delayed message back (370)."""

    producer_group: str | None = None
    recall_handle: str


class RecallResponse(Header):
    """The id of the message that was taken back."""

    msg_id: str
