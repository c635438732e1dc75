import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from waggle_collector.v1 import gate_pb2 as _gate_pb2
from waggle_collector.v1 import rates_pb2 as _rates_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Queue(_message.Message):
    __slots__ = ("name", "settings", "rule_pattern", "leased", "waiting", "pools", "next_grant_delay", "gates", "block_step", "slot", "queue_delay", "maps_to", "unknown", "held_pools", "rates", "mean_fetch_duration", "hour")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    RULE_PATTERN_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    NEXT_GRANT_DELAY_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_STEP_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DELAY_FIELD_NUMBER: _ClassVar[int]
    MAPS_TO_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    HELD_POOLS_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    MEAN_FETCH_DURATION_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: QueueSettings
    rule_pattern: str
    leased: int
    waiting: int
    pools: _containers.RepeatedScalarFieldContainer[str]
    next_grant_delay: _duration_pb2.Duration
    gates: _containers.RepeatedCompositeFieldContainer[_gate_pb2.Gate]
    block_step: int
    slot: int
    queue_delay: _duration_pb2.Duration
    maps_to: str
    unknown: bool
    held_pools: _containers.RepeatedScalarFieldContainer[str]
    rates: _rates_pb2.Rates
    mean_fetch_duration: _duration_pb2.Duration
    hour: _containers.RepeatedCompositeFieldContainer[QueueInterval]
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[QueueSettings, _Mapping]] = ..., rule_pattern: _Optional[str] = ..., leased: _Optional[int] = ..., waiting: _Optional[int] = ..., pools: _Optional[_Iterable[str]] = ..., next_grant_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., gates: _Optional[_Iterable[_Union[_gate_pb2.Gate, _Mapping]]] = ..., block_step: _Optional[int] = ..., slot: _Optional[int] = ..., queue_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., maps_to: _Optional[str] = ..., unknown: bool = ..., held_pools: _Optional[_Iterable[str]] = ..., rates: _Optional[_Union[_rates_pb2.Rates, _Mapping]] = ..., mean_fetch_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., hour: _Optional[_Iterable[_Union[QueueInterval, _Mapping]]] = ...) -> None: ...

class QueueInterval(_message.Message):
    __slots__ = ("start_time", "granted", "succeeded", "failed_task", "failed_host", "failed_collector", "failed_url", "expired", "delayed_duration", "blocked_duration", "mean_fetch_duration")
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_TASK_FIELD_NUMBER: _ClassVar[int]
    FAILED_HOST_FIELD_NUMBER: _ClassVar[int]
    FAILED_COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    FAILED_URL_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_DURATION_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_DURATION_FIELD_NUMBER: _ClassVar[int]
    MEAN_FETCH_DURATION_FIELD_NUMBER: _ClassVar[int]
    start_time: _timestamp_pb2.Timestamp
    granted: int
    succeeded: int
    failed_task: int
    failed_host: int
    failed_collector: int
    failed_url: int
    expired: int
    delayed_duration: _duration_pb2.Duration
    blocked_duration: _duration_pb2.Duration
    mean_fetch_duration: _duration_pb2.Duration
    def __init__(self, start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., granted: _Optional[int] = ..., succeeded: _Optional[int] = ..., failed_task: _Optional[int] = ..., failed_host: _Optional[int] = ..., failed_collector: _Optional[int] = ..., failed_url: _Optional[int] = ..., expired: _Optional[int] = ..., delayed_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., blocked_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., mean_fetch_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class QueueSettings(_message.Message):
    __slots__ = ("min_delay", "max_in_flight", "delay_factor", "max_delay", "max_block")
    MIN_DELAY_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    DELAY_FACTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_DELAY_FIELD_NUMBER: _ClassVar[int]
    MAX_BLOCK_FIELD_NUMBER: _ClassVar[int]
    min_delay: _duration_pb2.Duration
    max_in_flight: int
    delay_factor: float
    max_delay: _duration_pb2.Duration
    max_block: _duration_pb2.Duration
    def __init__(self, min_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_in_flight: _Optional[int] = ..., delay_factor: _Optional[float] = ..., max_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_block: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class QueueRule(_message.Message):
    __slots__ = ("pattern", "queue", "min_delay", "max_in_flight", "delay_factor", "max_delay", "max_block", "by", "reason", "update_time")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MIN_DELAY_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    DELAY_FACTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_DELAY_FIELD_NUMBER: _ClassVar[int]
    MAX_BLOCK_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    queue: str
    min_delay: _duration_pb2.Duration
    max_in_flight: int
    delay_factor: float
    max_delay: _duration_pb2.Duration
    max_block: _duration_pb2.Duration
    by: str
    reason: str
    update_time: _timestamp_pb2.Timestamp
    def __init__(self, pattern: _Optional[str] = ..., queue: _Optional[str] = ..., min_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_in_flight: _Optional[int] = ..., delay_factor: _Optional[float] = ..., max_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_block: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
