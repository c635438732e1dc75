import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from waggle_collector.v1 import error_reason_pb2 as _error_reason_pb2
from waggle_collector.v1 import filter_pb2 as _filter_pb2
from waggle_collector.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IfExists(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IF_EXISTS_UNSPECIFIED: _ClassVar[IfExists]
    IF_EXISTS_KEEP: _ClassVar[IfExists]
    IF_EXISTS_SOONER: _ClassVar[IfExists]
    IF_EXISTS_AGAIN: _ClassVar[IfExists]

class SubmitCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUBMIT_CODE_UNSPECIFIED: _ClassVar[SubmitCode]
    SUBMIT_CODE_CREATED: _ClassVar[SubmitCode]
    SUBMIT_CODE_EXISTS: _ClassVar[SubmitCode]
    SUBMIT_CODE_REVISIT: _ClassVar[SubmitCode]
    SUBMIT_CODE_LIMITED: _ClassVar[SubmitCode]
    SUBMIT_CODE_INVALID: _ClassVar[SubmitCode]

class TaskChangeCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_CHANGE_CODE_UNSPECIFIED: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_NOT_FOUND: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_CANCELED: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_CANCEL_REQUESTED: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_ALREADY_REQUESTED: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_ALREADY_SETTLED: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_RETRIED: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_NOT_SETTLED: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_LIMITED: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_REFUSED: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_REVOKED: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_NOT_LEASED: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_OTHER_LEASE: _ClassVar[TaskChangeCode]
    TASK_CHANGE_CODE_OTHER_STATE: _ClassVar[TaskChangeCode]
IF_EXISTS_UNSPECIFIED: IfExists
IF_EXISTS_KEEP: IfExists
IF_EXISTS_SOONER: IfExists
IF_EXISTS_AGAIN: IfExists
SUBMIT_CODE_UNSPECIFIED: SubmitCode
SUBMIT_CODE_CREATED: SubmitCode
SUBMIT_CODE_EXISTS: SubmitCode
SUBMIT_CODE_REVISIT: SubmitCode
SUBMIT_CODE_LIMITED: SubmitCode
SUBMIT_CODE_INVALID: SubmitCode
TASK_CHANGE_CODE_UNSPECIFIED: TaskChangeCode
TASK_CHANGE_CODE_NOT_FOUND: TaskChangeCode
TASK_CHANGE_CODE_CANCELED: TaskChangeCode
TASK_CHANGE_CODE_CANCEL_REQUESTED: TaskChangeCode
TASK_CHANGE_CODE_ALREADY_REQUESTED: TaskChangeCode
TASK_CHANGE_CODE_ALREADY_SETTLED: TaskChangeCode
TASK_CHANGE_CODE_RETRIED: TaskChangeCode
TASK_CHANGE_CODE_NOT_SETTLED: TaskChangeCode
TASK_CHANGE_CODE_LIMITED: TaskChangeCode
TASK_CHANGE_CODE_REFUSED: TaskChangeCode
TASK_CHANGE_CODE_REVOKED: TaskChangeCode
TASK_CHANGE_CODE_NOT_LEASED: TaskChangeCode
TASK_CHANGE_CODE_OTHER_LEASE: TaskChangeCode
TASK_CHANGE_CODE_OTHER_STATE: TaskChangeCode

class SubmitTasksRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SubmitItem]
    def __init__(self, items: _Optional[_Iterable[_Union[SubmitItem, _Mapping]]] = ...) -> None: ...

class SubmitItem(_message.Message):
    __slots__ = ("source_id", "url", "key", "queue", "kind", "priority", "due_time", "metadata", "payload", "if_exists")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    IF_EXISTS_FIELD_NUMBER: _ClassVar[int]
    source_id: str
    url: str
    key: str
    queue: str
    kind: str
    priority: int
    due_time: _timestamp_pb2.Timestamp
    metadata: _containers.ScalarMap[str, str]
    payload: bytes
    if_exists: IfExists
    def __init__(self, source_id: _Optional[str] = ..., url: _Optional[str] = ..., key: _Optional[str] = ..., queue: _Optional[str] = ..., kind: _Optional[str] = ..., priority: _Optional[int] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., payload: _Optional[bytes] = ..., if_exists: _Optional[_Union[IfExists, str]] = ...) -> None: ...

class SubmitTasksResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SubmitResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SubmitResult, _Mapping]]] = ...) -> None: ...

class SubmitResult(_message.Message):
    __slots__ = ("code", "task_id", "state", "error_reason", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: SubmitCode
    task_id: str
    state: _task_pb2.TaskState
    error_reason: _error_reason_pb2.ErrorReason
    message: str
    def __init__(self, code: _Optional[_Union[SubmitCode, str]] = ..., task_id: _Optional[str] = ..., state: _Optional[_Union[_task_pb2.TaskState, str]] = ..., error_reason: _Optional[_Union[_error_reason_pb2.ErrorReason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class GetTaskRequest(_message.Message):
    __slots__ = ("task_id", "source_id", "url", "key", "queue")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    source_id: str
    url: str
    key: str
    queue: str
    def __init__(self, task_id: _Optional[str] = ..., source_id: _Optional[str] = ..., url: _Optional[str] = ..., key: _Optional[str] = ..., queue: _Optional[str] = ...) -> None: ...

class GetTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("filter", "page_size", "page_token")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    filter: _filter_pb2.Filter
    page_size: int
    page_token: str
    def __init__(self, filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "next_page_token")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[_task_pb2.Task]
    next_page_token: str
    def __init__(self, tasks: _Optional[_Iterable[_Union[_task_pb2.Task, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CancelTasksRequest(_message.Message):
    __slots__ = ("task_ids", "by", "reason", "filter", "validate_only", "page_token")
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    task_ids: _containers.RepeatedScalarFieldContainer[str]
    by: str
    reason: str
    filter: _filter_pb2.Filter
    validate_only: bool
    page_token: str
    def __init__(self, task_ids: _Optional[_Iterable[str]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., validate_only: bool = ..., page_token: _Optional[str] = ...) -> None: ...

class CancelTasksResponse(_message.Message):
    __slots__ = ("results", "matched", "changed", "next_page_token")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TaskChange]
    matched: int
    changed: int
    next_page_token: str
    def __init__(self, results: _Optional[_Iterable[_Union[TaskChange, _Mapping]]] = ..., matched: _Optional[int] = ..., changed: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RetryTasksRequest(_message.Message):
    __slots__ = ("task_ids", "by", "reason", "filter", "validate_only", "page_token")
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    task_ids: _containers.RepeatedScalarFieldContainer[str]
    by: str
    reason: str
    filter: _filter_pb2.Filter
    validate_only: bool
    page_token: str
    def __init__(self, task_ids: _Optional[_Iterable[str]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., validate_only: bool = ..., page_token: _Optional[str] = ...) -> None: ...

class RetryTasksResponse(_message.Message):
    __slots__ = ("results", "matched", "changed", "next_page_token")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TaskChange]
    matched: int
    changed: int
    next_page_token: str
    def __init__(self, results: _Optional[_Iterable[_Union[TaskChange, _Mapping]]] = ..., matched: _Optional[int] = ..., changed: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RevokeLeasesRequest(_message.Message):
    __slots__ = ("task_ids", "by", "reason", "fences", "filter", "validate_only", "page_token")
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FENCES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    task_ids: _containers.RepeatedScalarFieldContainer[str]
    by: str
    reason: str
    fences: _containers.RepeatedScalarFieldContainer[int]
    filter: _filter_pb2.Filter
    validate_only: bool
    page_token: str
    def __init__(self, task_ids: _Optional[_Iterable[str]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., fences: _Optional[_Iterable[int]] = ..., filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., validate_only: bool = ..., page_token: _Optional[str] = ...) -> None: ...

class RevokeLeasesResponse(_message.Message):
    __slots__ = ("results", "matched", "changed", "next_page_token")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TaskChange]
    matched: int
    changed: int
    next_page_token: str
    def __init__(self, results: _Optional[_Iterable[_Union[TaskChange, _Mapping]]] = ..., matched: _Optional[int] = ..., changed: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class TaskChange(_message.Message):
    __slots__ = ("task_id", "code", "state", "error_reason", "message")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    code: TaskChangeCode
    state: _task_pb2.TaskState
    error_reason: _error_reason_pb2.ErrorReason
    message: str
    def __init__(self, task_id: _Optional[str] = ..., code: _Optional[_Union[TaskChangeCode, str]] = ..., state: _Optional[_Union[_task_pb2.TaskState, str]] = ..., error_reason: _Optional[_Union[_error_reason_pb2.ErrorReason, str]] = ..., message: _Optional[str] = ...) -> None: ...
