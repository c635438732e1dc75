from google.protobuf import field_mask_pb2 as _field_mask_pb2
from waggle_collector.v1 import filter_pb2 as _filter_pb2
from waggle_collector.v1 import queue_pb2 as _queue_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QueueOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUEUE_ORDER_UNSPECIFIED: _ClassVar[QueueOrder]
    QUEUE_ORDER_WAITING: _ClassVar[QueueOrder]
    QUEUE_ORDER_SLOW: _ClassVar[QueueOrder]
QUEUE_ORDER_UNSPECIFIED: QueueOrder
QUEUE_ORDER_WAITING: QueueOrder
QUEUE_ORDER_SLOW: QueueOrder

class GetQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetQueueResponse(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: _queue_pb2.Queue
    def __init__(self, queue: _Optional[_Union[_queue_pb2.Queue, _Mapping]] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("filter", "page_size", "page_token", "order", "held", "blocked")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    filter: _filter_pb2.Filter
    page_size: int
    page_token: str
    order: QueueOrder
    held: bool
    blocked: bool
    def __init__(self, filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., order: _Optional[_Union[QueueOrder, str]] = ..., held: bool = ..., blocked: bool = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "next_page_token")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[_queue_pb2.Queue]
    next_page_token: str
    def __init__(self, queues: _Optional[_Iterable[_Union[_queue_pb2.Queue, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SetQueueRuleRequest(_message.Message):
    __slots__ = ("rule", "by", "reason", "etag", "update_mask")
    RULE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    rule: _queue_pb2.QueueRule
    by: str
    reason: str
    etag: str
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, rule: _Optional[_Union[_queue_pb2.QueueRule, _Mapping]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class SetQueueRuleResponse(_message.Message):
    __slots__ = ("rule", "etag")
    RULE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    rule: _queue_pb2.QueueRule
    etag: str
    def __init__(self, rule: _Optional[_Union[_queue_pb2.QueueRule, _Mapping]] = ..., etag: _Optional[str] = ...) -> None: ...

class ListQueueRulesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListQueueRulesResponse(_message.Message):
    __slots__ = ("rules", "next_page_token", "etag")
    RULES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[_queue_pb2.QueueRule]
    next_page_token: str
    etag: str
    def __init__(self, rules: _Optional[_Iterable[_Union[_queue_pb2.QueueRule, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class DeleteQueueRuleRequest(_message.Message):
    __slots__ = ("pattern", "by", "reason", "etag")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    by: str
    reason: str
    etag: str
    def __init__(self, pattern: _Optional[str] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class DeleteQueueRuleResponse(_message.Message):
    __slots__ = ("rule", "etag")
    RULE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    rule: _queue_pb2.QueueRule
    etag: str
    def __init__(self, rule: _Optional[_Union[_queue_pb2.QueueRule, _Mapping]] = ..., etag: _Optional[str] = ...) -> None: ...
