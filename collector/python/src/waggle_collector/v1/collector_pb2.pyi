import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from waggle_collector.v1 import hold_pb2 as _hold_pb2
from waggle_collector.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CollectorState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COLLECTOR_STATE_UNSPECIFIED: _ClassVar[CollectorState]
    COLLECTOR_STATE_ACTIVE: _ClassVar[CollectorState]
    COLLECTOR_STATE_STOPPING: _ClassVar[CollectorState]
    COLLECTOR_STATE_HELD: _ClassVar[CollectorState]
    COLLECTOR_STATE_GONE: _ClassVar[CollectorState]
    COLLECTOR_STATE_ENDED: _ClassVar[CollectorState]
    COLLECTOR_STATE_STUCK: _ClassVar[CollectorState]
COLLECTOR_STATE_UNSPECIFIED: CollectorState
COLLECTOR_STATE_ACTIVE: CollectorState
COLLECTOR_STATE_STOPPING: CollectorState
COLLECTOR_STATE_HELD: CollectorState
COLLECTOR_STATE_GONE: CollectorState
COLLECTOR_STATE_ENDED: CollectorState
COLLECTOR_STATE_STUCK: CollectorState

class CollectorInfo(_message.Message):
    __slots__ = ("id", "session", "version", "hostname", "labels", "pools", "slots", "stopping", "sources", "queues", "ended", "stuck_slots", "problem", "problem_duration")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    STUCK_SLOTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_DURATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    session: str
    version: str
    hostname: str
    labels: _containers.ScalarMap[str, str]
    pools: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    stopping: bool
    sources: _containers.RepeatedScalarFieldContainer[str]
    queues: _containers.RepeatedScalarFieldContainer[str]
    ended: bool
    stuck_slots: int
    problem: str
    problem_duration: _duration_pb2.Duration
    def __init__(self, id: _Optional[str] = ..., session: _Optional[str] = ..., version: _Optional[str] = ..., hostname: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., pools: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., stopping: bool = ..., sources: _Optional[_Iterable[str]] = ..., queues: _Optional[_Iterable[str]] = ..., ended: bool = ..., stuck_slots: _Optional[int] = ..., problem: _Optional[str] = ..., problem_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Collector(_message.Message):
    __slots__ = ("info", "state", "leases", "heartbeat_age", "start_time", "holds", "outcomes", "client")
    INFO_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    info: CollectorInfo
    state: CollectorState
    leases: int
    heartbeat_age: _duration_pb2.Duration
    start_time: _timestamp_pb2.Timestamp
    holds: _containers.RepeatedCompositeFieldContainer[_hold_pb2.Hold]
    outcomes: Outcomes
    client: str
    def __init__(self, info: _Optional[_Union[CollectorInfo, _Mapping]] = ..., state: _Optional[_Union[CollectorState, str]] = ..., leases: _Optional[int] = ..., heartbeat_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., holds: _Optional[_Iterable[_Union[_hold_pb2.Hold, _Mapping]]] = ..., outcomes: _Optional[_Union[Outcomes, _Mapping]] = ..., client: _Optional[str] = ...) -> None: ...

class Outcomes(_message.Message):
    __slots__ = ("answered", "failed", "released", "unable", "since_time", "last_error")
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    UNABLE_FIELD_NUMBER: _ClassVar[int]
    SINCE_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    answered: int
    failed: _containers.RepeatedCompositeFieldContainer[FailureCount]
    released: int
    unable: bool
    since_time: _timestamp_pb2.Timestamp
    last_error: _task_pb2.TaskError
    def __init__(self, answered: _Optional[int] = ..., failed: _Optional[_Iterable[_Union[FailureCount, _Mapping]]] = ..., released: _Optional[int] = ..., unable: bool = ..., since_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_error: _Optional[_Union[_task_pb2.TaskError, _Mapping]] = ...) -> None: ...

class FailureCount(_message.Message):
    __slots__ = ("reason", "count")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    reason: _task_pb2.FailureReason
    count: int
    def __init__(self, reason: _Optional[_Union[_task_pb2.FailureReason, str]] = ..., count: _Optional[int] = ...) -> None: ...
