import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from waggle_collector.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Filter(_message.Message):
    __slots__ = ("source_id_prefix", "queue_suffix", "pool", "states", "failure_reasons", "labels", "create_time_from", "create_time_before", "all", "source_id", "queue", "collector_id")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SOURCE_ID_PREFIX_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SUFFIX_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FROM_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_BEFORE_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_ID_FIELD_NUMBER: _ClassVar[int]
    source_id_prefix: str
    queue_suffix: str
    pool: str
    states: _containers.RepeatedScalarFieldContainer[_task_pb2.TaskState]
    failure_reasons: _containers.RepeatedScalarFieldContainer[_task_pb2.FailureReason]
    labels: _containers.ScalarMap[str, str]
    create_time_from: _timestamp_pb2.Timestamp
    create_time_before: _timestamp_pb2.Timestamp
    all: bool
    source_id: str
    queue: str
    collector_id: str
    def __init__(self, source_id_prefix: _Optional[str] = ..., queue_suffix: _Optional[str] = ..., pool: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_task_pb2.TaskState, str]]] = ..., failure_reasons: _Optional[_Iterable[_Union[_task_pb2.FailureReason, str]]] = ..., labels: _Optional[_Mapping[str, str]] = ..., create_time_from: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., create_time_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., all: bool = ..., source_id: _Optional[str] = ..., queue: _Optional[str] = ..., collector_id: _Optional[str] = ...) -> None: ...
