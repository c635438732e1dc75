import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from waggle_collector.v1 import hold_pb2 as _hold_pb2
from waggle_collector.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GateKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GATE_KIND_UNSPECIFIED: _ClassVar[GateKind]
    GATE_KIND_NOT_DUE: _ClassVar[GateKind]
    GATE_KIND_MIN_DELAY: _ClassVar[GateKind]
    GATE_KIND_MAX_IN_FLIGHT: _ClassVar[GateKind]
    GATE_KIND_HOST_BLOCKED: _ClassVar[GateKind]
    GATE_KIND_EVERYTHING_HELD: _ClassVar[GateKind]
    GATE_KIND_POOL_HELD: _ClassVar[GateKind]
    GATE_KIND_SOURCE_HELD: _ClassVar[GateKind]
    GATE_KIND_QUEUE_HELD: _ClassVar[GateKind]
    GATE_KIND_COLLECTOR_HELD: _ClassVar[GateKind]
    GATE_KIND_SOURCE_DELETED: _ClassVar[GateKind]
    GATE_KIND_BREAKER: _ClassVar[GateKind]
    GATE_KIND_COLLECTOR_SLOWED: _ClassVar[GateKind]
    GATE_KIND_NO_COLLECTOR: _ClassVar[GateKind]
    GATE_KIND_LEASED: _ClassVar[GateKind]
    GATE_KIND_SETTLED: _ClassVar[GateKind]
    GATE_KIND_NO_SEEDS: _ClassVar[GateKind]
    GATE_KIND_LOCKED: _ClassVar[GateKind]
GATE_KIND_UNSPECIFIED: GateKind
GATE_KIND_NOT_DUE: GateKind
GATE_KIND_MIN_DELAY: GateKind
GATE_KIND_MAX_IN_FLIGHT: GateKind
GATE_KIND_HOST_BLOCKED: GateKind
GATE_KIND_EVERYTHING_HELD: GateKind
GATE_KIND_POOL_HELD: GateKind
GATE_KIND_SOURCE_HELD: GateKind
GATE_KIND_QUEUE_HELD: GateKind
GATE_KIND_COLLECTOR_HELD: GateKind
GATE_KIND_SOURCE_DELETED: GateKind
GATE_KIND_BREAKER: GateKind
GATE_KIND_COLLECTOR_SLOWED: GateKind
GATE_KIND_NO_COLLECTOR: GateKind
GATE_KIND_LEASED: GateKind
GATE_KIND_SETTLED: GateKind
GATE_KIND_NO_SEEDS: GateKind
GATE_KIND_LOCKED: GateKind

class Gate(_message.Message):
    __slots__ = ("kind", "until", "by", "reason", "time", "cause", "cause_task_id", "hold")
    KIND_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_TASK_ID_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    kind: GateKind
    until: _timestamp_pb2.Timestamp
    by: str
    reason: str
    time: _timestamp_pb2.Timestamp
    cause: _task_pb2.TaskError
    cause_task_id: str
    hold: _hold_pb2.Hold
    def __init__(self, kind: _Optional[_Union[GateKind, str]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cause: _Optional[_Union[_task_pb2.TaskError, _Mapping]] = ..., cause_task_id: _Optional[str] = ..., hold: _Optional[_Union[_hold_pb2.Hold, _Mapping]] = ...) -> None: ...
