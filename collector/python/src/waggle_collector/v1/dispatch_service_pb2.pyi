import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from waggle_collector.v1 import collector_pb2 as _collector_pb2
from waggle_collector.v1 import error_reason_pb2 as _error_reason_pb2
from waggle_collector.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EmptyReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EMPTY_REASON_UNSPECIFIED: _ClassVar[EmptyReason]
    EMPTY_REASON_NO_TASKS: _ClassVar[EmptyReason]
    EMPTY_REASON_THROTTLED: _ClassVar[EmptyReason]
    EMPTY_REASON_HELD: _ClassVar[EmptyReason]
    EMPTY_REASON_COLLECTOR_HELD: _ClassVar[EmptyReason]
    EMPTY_REASON_DISPATCHER_DRAINING: _ClassVar[EmptyReason]
    EMPTY_REASON_TOKEN_USED: _ClassVar[EmptyReason]

class LostReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOST_REASON_UNSPECIFIED: _ClassVar[LostReason]
    LOST_REASON_EXPIRED: _ClassVar[LostReason]
    LOST_REASON_MAX_HOLD: _ClassVar[LostReason]
    LOST_REASON_COLLECTOR_REPLACED: _ClassVar[LostReason]
    LOST_REASON_REVOKED: _ClassVar[LostReason]
    LOST_REASON_LOCK_DELETED: _ClassVar[LostReason]
    LOST_REASON_NOT_LEASED: _ClassVar[LostReason]
    LOST_REASON_SETTLED: _ClassVar[LostReason]
    LOST_REASON_TAKEN: _ClassVar[LostReason]
    LOST_REASON_NOT_FOUND: _ClassVar[LostReason]
    LOST_REASON_MALFORMED: _ClassVar[LostReason]

class CancelReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANCEL_REASON_UNSPECIFIED: _ClassVar[CancelReason]
    CANCEL_REASON_TASK_CANCELED: _ClassVar[CancelReason]
    CANCEL_REASON_SOURCE_DELETED: _ClassVar[CancelReason]
    CANCEL_REASON_HELD: _ClassVar[CancelReason]

class ReportCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPORT_CODE_UNSPECIFIED: _ClassVar[ReportCode]
    REPORT_CODE_OK: _ClassVar[ReportCode]
    REPORT_CODE_ALREADY_REPORTED: _ClassVar[ReportCode]
    REPORT_CODE_LEASE_LOST: _ClassVar[ReportCode]
    REPORT_CODE_NOT_FOUND: _ClassVar[ReportCode]
    REPORT_CODE_STORE_FULL: _ClassVar[ReportCode]
    REPORT_CODE_STORE_UNAVAILABLE: _ClassVar[ReportCode]
EMPTY_REASON_UNSPECIFIED: EmptyReason
EMPTY_REASON_NO_TASKS: EmptyReason
EMPTY_REASON_THROTTLED: EmptyReason
EMPTY_REASON_HELD: EmptyReason
EMPTY_REASON_COLLECTOR_HELD: EmptyReason
EMPTY_REASON_DISPATCHER_DRAINING: EmptyReason
EMPTY_REASON_TOKEN_USED: EmptyReason
LOST_REASON_UNSPECIFIED: LostReason
LOST_REASON_EXPIRED: LostReason
LOST_REASON_MAX_HOLD: LostReason
LOST_REASON_COLLECTOR_REPLACED: LostReason
LOST_REASON_REVOKED: LostReason
LOST_REASON_LOCK_DELETED: LostReason
LOST_REASON_NOT_LEASED: LostReason
LOST_REASON_SETTLED: LostReason
LOST_REASON_TAKEN: LostReason
LOST_REASON_NOT_FOUND: LostReason
LOST_REASON_MALFORMED: LostReason
CANCEL_REASON_UNSPECIFIED: CancelReason
CANCEL_REASON_TASK_CANCELED: CancelReason
CANCEL_REASON_SOURCE_DELETED: CancelReason
CANCEL_REASON_HELD: CancelReason
REPORT_CODE_UNSPECIFIED: ReportCode
REPORT_CODE_OK: ReportCode
REPORT_CODE_ALREADY_REPORTED: ReportCode
REPORT_CODE_LEASE_LOST: ReportCode
REPORT_CODE_NOT_FOUND: ReportCode
REPORT_CODE_STORE_FULL: ReportCode
REPORT_CODE_STORE_UNAVAILABLE: ReportCode

class WorkRequest(_message.Message):
    __slots__ = ("id", "heartbeat", "fetch", "report", "discovered")
    ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    DISCOVERED_FIELD_NUMBER: _ClassVar[int]
    id: int
    heartbeat: HeartbeatRequest
    fetch: FetchTaskRequest
    report: ReportTaskRequest
    discovered: SubmitDiscoveredRequest
    def __init__(self, id: _Optional[int] = ..., heartbeat: _Optional[_Union[HeartbeatRequest, _Mapping]] = ..., fetch: _Optional[_Union[FetchTaskRequest, _Mapping]] = ..., report: _Optional[_Union[ReportTaskRequest, _Mapping]] = ..., discovered: _Optional[_Union[SubmitDiscoveredRequest, _Mapping]] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("id", "heartbeat", "fetch", "report", "discovered", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    DISCOVERED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: int
    heartbeat: HeartbeatResponse
    fetch: FetchTaskResponse
    report: ReportTaskResponse
    discovered: SubmitDiscoveredResponse
    error: WorkError
    def __init__(self, id: _Optional[int] = ..., heartbeat: _Optional[_Union[HeartbeatResponse, _Mapping]] = ..., fetch: _Optional[_Union[FetchTaskResponse, _Mapping]] = ..., report: _Optional[_Union[ReportTaskResponse, _Mapping]] = ..., discovered: _Optional[_Union[SubmitDiscoveredResponse, _Mapping]] = ..., error: _Optional[_Union[WorkError, _Mapping]] = ...) -> None: ...

class WorkError(_message.Message):
    __slots__ = ("code", "message", "reason", "metadata", "retry_after")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    reason: _error_reason_pb2.ErrorReason
    metadata: _containers.ScalarMap[str, str]
    retry_after: _duration_pb2.Duration
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., reason: _Optional[_Union[_error_reason_pb2.ErrorReason, str]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class FetchTaskRequest(_message.Message):
    __slots__ = ("collector_id", "session", "client_token", "pools", "sources", "queues", "max_tasks", "max_bytes", "wait", "lease_duration", "reports", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COLLECTOR_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    MAX_TASKS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    collector_id: str
    session: str
    client_token: str
    pools: _containers.RepeatedScalarFieldContainer[str]
    sources: _containers.RepeatedScalarFieldContainer[str]
    queues: _containers.RepeatedScalarFieldContainer[str]
    max_tasks: int
    max_bytes: int
    wait: _duration_pb2.Duration
    lease_duration: _duration_pb2.Duration
    reports: _containers.RepeatedCompositeFieldContainer[TaskReport]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, collector_id: _Optional[str] = ..., session: _Optional[str] = ..., client_token: _Optional[str] = ..., pools: _Optional[_Iterable[str]] = ..., sources: _Optional[_Iterable[str]] = ..., queues: _Optional[_Iterable[str]] = ..., max_tasks: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., lease_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reports: _Optional[_Iterable[_Union[TaskReport, _Mapping]]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class FetchTaskResponse(_message.Message):
    __slots__ = ("leased_tasks", "waited", "empty_reason", "retry_after", "report_results")
    LEASED_TASKS_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    EMPTY_REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    REPORT_RESULTS_FIELD_NUMBER: _ClassVar[int]
    leased_tasks: _containers.RepeatedCompositeFieldContainer[LeasedTask]
    waited: _duration_pb2.Duration
    empty_reason: EmptyReason
    retry_after: _duration_pb2.Duration
    report_results: _containers.RepeatedCompositeFieldContainer[ReportResult]
    def __init__(self, leased_tasks: _Optional[_Iterable[_Union[LeasedTask, _Mapping]]] = ..., waited: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., empty_reason: _Optional[_Union[EmptyReason, str]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., report_results: _Optional[_Iterable[_Union[ReportResult, _Mapping]]] = ...) -> None: ...

class LeasedTask(_message.Message):
    __slots__ = ("task", "lease")
    TASK_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    task: _task_pb2.Task
    lease: _task_pb2.Lease
    def __init__(self, task: _Optional[_Union[_task_pb2.Task, _Mapping]] = ..., lease: _Optional[_Union[_task_pb2.Lease, _Mapping]] = ...) -> None: ...

class LeaseBeat(_message.Message):
    __slots__ = ("task_id", "lease_token", "cursor", "progress")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    lease_token: str
    cursor: bytes
    progress: float
    def __init__(self, task_id: _Optional[str] = ..., lease_token: _Optional[str] = ..., cursor: _Optional[bytes] = ..., progress: _Optional[float] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("collector", "leases")
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    collector: _collector_pb2.CollectorInfo
    leases: _containers.RepeatedCompositeFieldContainer[LeaseBeat]
    def __init__(self, collector: _Optional[_Union[_collector_pb2.CollectorInfo, _Mapping]] = ..., leases: _Optional[_Iterable[_Union[LeaseBeat, _Mapping]]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("status", "reconnect")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_FIELD_NUMBER: _ClassVar[int]
    status: LeaseStatus
    reconnect: bool
    def __init__(self, status: _Optional[_Union[LeaseStatus, _Mapping]] = ..., reconnect: bool = ...) -> None: ...

class LeaseStatus(_message.Message):
    __slots__ = ("lease_duration", "lost", "cancel", "held", "next_heartbeat", "limited")
    LEASE_DURATION_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    NEXT_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LIMITED_FIELD_NUMBER: _ClassVar[int]
    lease_duration: _duration_pb2.Duration
    lost: _containers.RepeatedCompositeFieldContainer[LostLease]
    cancel: _containers.RepeatedCompositeFieldContainer[CancelNotice]
    held: bool
    next_heartbeat: _duration_pb2.Duration
    limited: _containers.RepeatedCompositeFieldContainer[LimitedLease]
    def __init__(self, lease_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., lost: _Optional[_Iterable[_Union[LostLease, _Mapping]]] = ..., cancel: _Optional[_Iterable[_Union[CancelNotice, _Mapping]]] = ..., held: bool = ..., next_heartbeat: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limited: _Optional[_Iterable[_Union[LimitedLease, _Mapping]]] = ...) -> None: ...

class LostLease(_message.Message):
    __slots__ = ("task_id", "reason", "lease_token")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    reason: LostReason
    lease_token: str
    def __init__(self, task_id: _Optional[str] = ..., reason: _Optional[_Union[LostReason, str]] = ..., lease_token: _Optional[str] = ...) -> None: ...

class CancelNotice(_message.Message):
    __slots__ = ("task_id", "reason")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    reason: CancelReason
    def __init__(self, task_id: _Optional[str] = ..., reason: _Optional[_Union[CancelReason, str]] = ...) -> None: ...

class LimitedLease(_message.Message):
    __slots__ = ("task_id", "duration")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    duration: _duration_pb2.Duration
    def __init__(self, task_id: _Optional[str] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RenewLeaseRequest(_message.Message):
    __slots__ = ("collector", "leases")
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    collector: _collector_pb2.CollectorInfo
    leases: _containers.RepeatedCompositeFieldContainer[LeaseBeat]
    def __init__(self, collector: _Optional[_Union[_collector_pb2.CollectorInfo, _Mapping]] = ..., leases: _Optional[_Iterable[_Union[LeaseBeat, _Mapping]]] = ...) -> None: ...

class RenewLeaseResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: LeaseStatus
    def __init__(self, status: _Optional[_Union[LeaseStatus, _Mapping]] = ...) -> None: ...

class TaskReport(_message.Message):
    __slots__ = ("task_id", "lease_token", "outcome", "traceparent")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    lease_token: str
    outcome: _task_pb2.Outcome
    traceparent: str
    def __init__(self, task_id: _Optional[str] = ..., lease_token: _Optional[str] = ..., outcome: _Optional[_Union[_task_pb2.Outcome, _Mapping]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class ReportTaskRequest(_message.Message):
    __slots__ = ("collector_id", "session", "reports")
    COLLECTOR_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    collector_id: str
    session: str
    reports: _containers.RepeatedCompositeFieldContainer[TaskReport]
    def __init__(self, collector_id: _Optional[str] = ..., session: _Optional[str] = ..., reports: _Optional[_Iterable[_Union[TaskReport, _Mapping]]] = ...) -> None: ...

class ReportTaskResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ReportResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ReportResult, _Mapping]]] = ...) -> None: ...

class ReportResult(_message.Message):
    __slots__ = ("task_id", "code", "state", "due_time", "result", "lost_reason", "discovered", "retry_after")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    LOST_REASON_FIELD_NUMBER: _ClassVar[int]
    DISCOVERED_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    code: ReportCode
    state: _task_pb2.TaskState
    due_time: _timestamp_pb2.Timestamp
    result: _task_pb2.AttemptResult
    lost_reason: LostReason
    discovered: _task_pb2.DiscoverSummary
    retry_after: _duration_pb2.Duration
    def __init__(self, task_id: _Optional[str] = ..., code: _Optional[_Union[ReportCode, str]] = ..., state: _Optional[_Union[_task_pb2.TaskState, str]] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., result: _Optional[_Union[_task_pb2.AttemptResult, str]] = ..., lost_reason: _Optional[_Union[LostReason, str]] = ..., discovered: _Optional[_Union[_task_pb2.DiscoverSummary, _Mapping]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SubmitDiscoveredRequest(_message.Message):
    __slots__ = ("task_id", "lease_token", "items")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    lease_token: str
    items: _containers.RepeatedCompositeFieldContainer[_task_pb2.DiscoveredItem]
    def __init__(self, task_id: _Optional[str] = ..., lease_token: _Optional[str] = ..., items: _Optional[_Iterable[_Union[_task_pb2.DiscoveredItem, _Mapping]]] = ...) -> None: ...

class SubmitDiscoveredResponse(_message.Message):
    __slots__ = ("summary",)
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    summary: _task_pb2.DiscoverSummary
    def __init__(self, summary: _Optional[_Union[_task_pb2.DiscoverSummary, _Mapping]] = ...) -> None: ...
