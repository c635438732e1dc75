import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HoldEffect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOLD_EFFECT_UNSPECIFIED: _ClassVar[HoldEffect]
    HOLD_EFFECT_STOP_GRANTS: _ClassVar[HoldEffect]
    HOLD_EFFECT_END_LEASES: _ClassVar[HoldEffect]
HOLD_EFFECT_UNSPECIFIED: HoldEffect
HOLD_EFFECT_STOP_GRANTS: HoldEffect
HOLD_EFFECT_END_LEASES: HoldEffect

class Hold(_message.Message):
    __slots__ = ("target", "name", "effect", "by", "reason", "create_time", "until", "etag")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    target: HoldTarget
    name: str
    effect: HoldEffect
    by: str
    reason: str
    create_time: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    etag: str
    def __init__(self, target: _Optional[_Union[HoldTarget, _Mapping]] = ..., name: _Optional[str] = ..., effect: _Optional[_Union[HoldEffect, str]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ...) -> None: ...

class HoldTarget(_message.Message):
    __slots__ = ("everything", "pool", "source_id", "queue", "collector_id", "collector_labels")
    class CollectorLabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EVERYTHING_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_ID_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_LABELS_FIELD_NUMBER: _ClassVar[int]
    everything: bool
    pool: str
    source_id: str
    queue: str
    collector_id: str
    collector_labels: _containers.ScalarMap[str, str]
    def __init__(self, everything: bool = ..., pool: _Optional[str] = ..., source_id: _Optional[str] = ..., queue: _Optional[str] = ..., collector_id: _Optional[str] = ..., collector_labels: _Optional[_Mapping[str, str]] = ...) -> None: ...
