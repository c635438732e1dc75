import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_STATE_UNSPECIFIED: _ClassVar[TaskState]
    TASK_STATE_SCHEDULED: _ClassVar[TaskState]
    TASK_STATE_READY: _ClassVar[TaskState]
    TASK_STATE_LEASED: _ClassVar[TaskState]
    TASK_STATE_DONE: _ClassVar[TaskState]
    TASK_STATE_DEAD: _ClassVar[TaskState]
    TASK_STATE_CANCELED: _ClassVar[TaskState]

class AttemptResult(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_RESULT_UNSPECIFIED: _ClassVar[AttemptResult]
    ATTEMPT_RESULT_SUCCEEDED: _ClassVar[AttemptResult]
    ATTEMPT_RESULT_FAILED: _ClassVar[AttemptResult]
    ATTEMPT_RESULT_RELEASED: _ClassVar[AttemptResult]
    ATTEMPT_RESULT_EXPIRED: _ClassVar[AttemptResult]
    ATTEMPT_RESULT_REVOKED: _ClassVar[AttemptResult]
    ATTEMPT_RESULT_CANCELED: _ClassVar[AttemptResult]
    ATTEMPT_RESULT_HELD: _ClassVar[AttemptResult]

class DocumentKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DOCUMENT_KIND_UNSPECIFIED: _ClassVar[DocumentKind]
    DOCUMENT_KIND_FEED: _ClassVar[DocumentKind]
    DOCUMENT_KIND_SITEMAP: _ClassVar[DocumentKind]
    DOCUMENT_KIND_PAGE: _ClassVar[DocumentKind]
    DOCUMENT_KIND_OTHER: _ClassVar[DocumentKind]
    DOCUMENT_KIND_EMPTY: _ClassVar[DocumentKind]

class FailureReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_REASON_UNSPECIFIED: _ClassVar[FailureReason]
    FAILURE_REASON_NOT_FOUND: _ClassVar[FailureReason]
    FAILURE_REASON_FORBIDDEN: _ClassVar[FailureReason]
    FAILURE_REASON_GONE: _ClassVar[FailureReason]
    FAILURE_REASON_CLIENT_ERROR: _ClassVar[FailureReason]
    FAILURE_REASON_PARSE: _ClassVar[FailureReason]
    FAILURE_REASON_TOO_LARGE: _ClassVar[FailureReason]
    FAILURE_REASON_ROBOTS_DENIED: _ClassVar[FailureReason]
    FAILURE_REASON_UNSUPPORTED_CONTENT: _ClassVar[FailureReason]
    FAILURE_REASON_REDIRECT: _ClassVar[FailureReason]
    FAILURE_REASON_BAD_REQUEST: _ClassVar[FailureReason]
    FAILURE_REASON_HANDLER: _ClassVar[FailureReason]
    FAILURE_REASON_OTHER: _ClassVar[FailureReason]
    FAILURE_REASON_DNS: _ClassVar[FailureReason]
    FAILURE_REASON_CONNECT: _ClassVar[FailureReason]
    FAILURE_REASON_TLS: _ClassVar[FailureReason]
    FAILURE_REASON_THROTTLED: _ClassVar[FailureReason]
    FAILURE_REASON_ROBOTS_UNAVAILABLE: _ClassVar[FailureReason]
    FAILURE_REASON_PROXY: _ClassVar[FailureReason]
    FAILURE_REASON_DISK: _ClassVar[FailureReason]
    FAILURE_REASON_BROWSER: _ClassVar[FailureReason]
    FAILURE_REASON_NETWORK: _ClassVar[FailureReason]
    FAILURE_REASON_INTERNAL: _ClassVar[FailureReason]
    FAILURE_REASON_TIMEOUT: _ClassVar[FailureReason]
    FAILURE_REASON_SERVER_ERROR: _ClassVar[FailureReason]
    FAILURE_REASON_CONNECTION_LOST: _ClassVar[FailureReason]

class Relation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RELATION_UNSPECIFIED: _ClassVar[Relation]
    RELATION_LINK: _ClassVar[Relation]
    RELATION_FEED_ITEM: _ClassVar[Relation]
    RELATION_SITEMAP: _ClassVar[Relation]
    RELATION_REDIRECT: _ClassVar[Relation]

class FilterReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILTER_REASON_UNSPECIFIED: _ClassVar[FilterReason]
    FILTER_REASON_NO_RULE: _ClassVar[FilterReason]
    FILTER_REASON_DEPTH: _ClassVar[FilterReason]
    FILTER_REASON_HOST: _ClassVar[FilterReason]
    FILTER_REASON_INCLUDE: _ClassVar[FilterReason]
    FILTER_REASON_EXCLUDE: _ClassVar[FilterReason]

class DiscoverCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISCOVER_CODE_UNSPECIFIED: _ClassVar[DiscoverCode]
    DISCOVER_CODE_CREATED: _ClassVar[DiscoverCode]
    DISCOVER_CODE_EXISTS: _ClassVar[DiscoverCode]
    DISCOVER_CODE_REVISIT: _ClassVar[DiscoverCode]
    DISCOVER_CODE_FILTERED: _ClassVar[DiscoverCode]
    DISCOVER_CODE_LIMITED: _ClassVar[DiscoverCode]
    DISCOVER_CODE_INVALID: _ClassVar[DiscoverCode]
TASK_STATE_UNSPECIFIED: TaskState
TASK_STATE_SCHEDULED: TaskState
TASK_STATE_READY: TaskState
TASK_STATE_LEASED: TaskState
TASK_STATE_DONE: TaskState
TASK_STATE_DEAD: TaskState
TASK_STATE_CANCELED: TaskState
ATTEMPT_RESULT_UNSPECIFIED: AttemptResult
ATTEMPT_RESULT_SUCCEEDED: AttemptResult
ATTEMPT_RESULT_FAILED: AttemptResult
ATTEMPT_RESULT_RELEASED: AttemptResult
ATTEMPT_RESULT_EXPIRED: AttemptResult
ATTEMPT_RESULT_REVOKED: AttemptResult
ATTEMPT_RESULT_CANCELED: AttemptResult
ATTEMPT_RESULT_HELD: AttemptResult
DOCUMENT_KIND_UNSPECIFIED: DocumentKind
DOCUMENT_KIND_FEED: DocumentKind
DOCUMENT_KIND_SITEMAP: DocumentKind
DOCUMENT_KIND_PAGE: DocumentKind
DOCUMENT_KIND_OTHER: DocumentKind
DOCUMENT_KIND_EMPTY: DocumentKind
FAILURE_REASON_UNSPECIFIED: FailureReason
FAILURE_REASON_NOT_FOUND: FailureReason
FAILURE_REASON_FORBIDDEN: FailureReason
FAILURE_REASON_GONE: FailureReason
FAILURE_REASON_CLIENT_ERROR: FailureReason
FAILURE_REASON_PARSE: FailureReason
FAILURE_REASON_TOO_LARGE: FailureReason
FAILURE_REASON_ROBOTS_DENIED: FailureReason
FAILURE_REASON_UNSUPPORTED_CONTENT: FailureReason
FAILURE_REASON_REDIRECT: FailureReason
FAILURE_REASON_BAD_REQUEST: FailureReason
FAILURE_REASON_HANDLER: FailureReason
FAILURE_REASON_OTHER: FailureReason
FAILURE_REASON_DNS: FailureReason
FAILURE_REASON_CONNECT: FailureReason
FAILURE_REASON_TLS: FailureReason
FAILURE_REASON_THROTTLED: FailureReason
FAILURE_REASON_ROBOTS_UNAVAILABLE: FailureReason
FAILURE_REASON_PROXY: FailureReason
FAILURE_REASON_DISK: FailureReason
FAILURE_REASON_BROWSER: FailureReason
FAILURE_REASON_NETWORK: FailureReason
FAILURE_REASON_INTERNAL: FailureReason
FAILURE_REASON_TIMEOUT: FailureReason
FAILURE_REASON_SERVER_ERROR: FailureReason
FAILURE_REASON_CONNECTION_LOST: FailureReason
RELATION_UNSPECIFIED: Relation
RELATION_LINK: Relation
RELATION_FEED_ITEM: Relation
RELATION_SITEMAP: Relation
RELATION_REDIRECT: Relation
FILTER_REASON_UNSPECIFIED: FilterReason
FILTER_REASON_NO_RULE: FilterReason
FILTER_REASON_DEPTH: FilterReason
FILTER_REASON_HOST: FilterReason
FILTER_REASON_INCLUDE: FilterReason
FILTER_REASON_EXCLUDE: FilterReason
DISCOVER_CODE_UNSPECIFIED: DiscoverCode
DISCOVER_CODE_CREATED: DiscoverCode
DISCOVER_CODE_EXISTS: DiscoverCode
DISCOVER_CODE_REVISIT: DiscoverCode
DISCOVER_CODE_FILTERED: DiscoverCode
DISCOVER_CODE_LIMITED: DiscoverCode
DISCOVER_CODE_INVALID: DiscoverCode

class Task(_message.Message):
    __slots__ = ("id", "source_id", "source_uid", "scope", "queue", "pool", "url", "key", "kind", "depth", "run", "priority", "state", "recurring", "cycle", "attempt", "failures", "expirations", "throttled", "releases", "due_time", "cursor", "memo", "metadata", "payload", "last_error", "create_time", "settle_time", "holder", "history", "cancel_requested", "cancellation", "relation", "redirects", "redirected_from", "http_status", "bytes", "fetch_duration", "traceparent")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_UID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RECURRING_FIELD_NUMBER: _ClassVar[int]
    CYCLE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    EXPIRATIONS_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    MEMO_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    SETTLE_TIME_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    CANCELLATION_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    REDIRECTS_FIELD_NUMBER: _ClassVar[int]
    REDIRECTED_FROM_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FETCH_DURATION_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    id: str
    source_id: str
    source_uid: str
    scope: str
    queue: str
    pool: str
    url: str
    key: str
    kind: str
    depth: int
    run: int
    priority: int
    state: TaskState
    recurring: bool
    cycle: int
    attempt: int
    failures: int
    expirations: int
    throttled: int
    releases: int
    due_time: _timestamp_pb2.Timestamp
    cursor: bytes
    memo: bytes
    metadata: _containers.ScalarMap[str, str]
    payload: bytes
    last_error: TaskError
    create_time: _timestamp_pb2.Timestamp
    settle_time: _timestamp_pb2.Timestamp
    holder: LeaseHolder
    history: _containers.RepeatedCompositeFieldContainer[Attempt]
    cancel_requested: bool
    cancellation: Cancellation
    relation: Relation
    redirects: int
    redirected_from: str
    http_status: int
    bytes: int
    fetch_duration: _duration_pb2.Duration
    traceparent: str
    def __init__(self, id: _Optional[str] = ..., source_id: _Optional[str] = ..., source_uid: _Optional[str] = ..., scope: _Optional[str] = ..., queue: _Optional[str] = ..., pool: _Optional[str] = ..., url: _Optional[str] = ..., key: _Optional[str] = ..., kind: _Optional[str] = ..., depth: _Optional[int] = ..., run: _Optional[int] = ..., priority: _Optional[int] = ..., state: _Optional[_Union[TaskState, str]] = ..., recurring: bool = ..., cycle: _Optional[int] = ..., attempt: _Optional[int] = ..., failures: _Optional[int] = ..., expirations: _Optional[int] = ..., throttled: _Optional[int] = ..., releases: _Optional[int] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cursor: _Optional[bytes] = ..., memo: _Optional[bytes] = ..., metadata: _Optional[_Mapping[str, str]] = ..., payload: _Optional[bytes] = ..., last_error: _Optional[_Union[TaskError, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., settle_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., holder: _Optional[_Union[LeaseHolder, _Mapping]] = ..., history: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., cancel_requested: bool = ..., cancellation: _Optional[_Union[Cancellation, _Mapping]] = ..., relation: _Optional[_Union[Relation, str]] = ..., redirects: _Optional[int] = ..., redirected_from: _Optional[str] = ..., http_status: _Optional[int] = ..., bytes: _Optional[int] = ..., fetch_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class Cancellation(_message.Message):
    __slots__ = ("by", "reason", "time", "source_deleted")
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_DELETED_FIELD_NUMBER: _ClassVar[int]
    by: str
    reason: str
    time: _timestamp_pb2.Timestamp
    source_deleted: bool
    def __init__(self, by: _Optional[str] = ..., reason: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., source_deleted: bool = ...) -> None: ...

class TaskCounts(_message.Message):
    __slots__ = ("scheduled", "ready", "leased", "done", "dead", "canceled")
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    CANCELED_FIELD_NUMBER: _ClassVar[int]
    scheduled: int
    ready: int
    leased: int
    done: int
    dead: int
    canceled: int
    def __init__(self, scheduled: _Optional[int] = ..., ready: _Optional[int] = ..., leased: _Optional[int] = ..., done: _Optional[int] = ..., dead: _Optional[int] = ..., canceled: _Optional[int] = ...) -> None: ...

class TaskError(_message.Message):
    __slots__ = ("result", "reason", "message", "http_status", "time", "permanent")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    PERMANENT_FIELD_NUMBER: _ClassVar[int]
    result: AttemptResult
    reason: FailureReason
    message: str
    http_status: int
    time: _timestamp_pb2.Timestamp
    permanent: bool
    def __init__(self, result: _Optional[_Union[AttemptResult, str]] = ..., reason: _Optional[_Union[FailureReason, str]] = ..., message: _Optional[str] = ..., http_status: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., permanent: bool = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("collector_id", "cycle", "fence", "start_time", "end_time", "result", "reason", "message", "http_status", "moved_to", "bytes", "fetch_duration")
    COLLECTOR_ID_FIELD_NUMBER: _ClassVar[int]
    CYCLE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    MOVED_TO_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FETCH_DURATION_FIELD_NUMBER: _ClassVar[int]
    collector_id: str
    cycle: int
    fence: int
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    result: AttemptResult
    reason: FailureReason
    message: str
    http_status: int
    moved_to: str
    bytes: int
    fetch_duration: _duration_pb2.Duration
    def __init__(self, collector_id: _Optional[str] = ..., cycle: _Optional[int] = ..., fence: _Optional[int] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., result: _Optional[_Union[AttemptResult, str]] = ..., reason: _Optional[_Union[FailureReason, str]] = ..., message: _Optional[str] = ..., http_status: _Optional[int] = ..., moved_to: _Optional[str] = ..., bytes: _Optional[int] = ..., fetch_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("task_id", "lease_token", "fence", "duration")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    lease_token: str
    fence: int
    duration: _duration_pb2.Duration
    def __init__(self, task_id: _Optional[str] = ..., lease_token: _Optional[str] = ..., fence: _Optional[int] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class LeaseHolder(_message.Message):
    __slots__ = ("collector_id", "fence", "age", "remaining")
    COLLECTOR_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    collector_id: str
    fence: int
    age: _duration_pb2.Duration
    remaining: _duration_pb2.Duration
    def __init__(self, collector_id: _Optional[str] = ..., fence: _Optional[int] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("succeeded", "failed", "released")
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    succeeded: Succeeded
    failed: Failed
    released: Released
    def __init__(self, succeeded: _Optional[_Union[Succeeded, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., released: _Optional[_Union[Released, _Mapping]] = ...) -> None: ...

class Succeeded(_message.Message):
    __slots__ = ("http_status", "bytes", "fetch_duration", "changed", "memo", "discovered", "queue_delay", "next_crawl_delay", "message", "document", "broken_off")
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FETCH_DURATION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    MEMO_FIELD_NUMBER: _ClassVar[int]
    DISCOVERED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DELAY_FIELD_NUMBER: _ClassVar[int]
    NEXT_CRAWL_DELAY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    BROKEN_OFF_FIELD_NUMBER: _ClassVar[int]
    http_status: int
    bytes: int
    fetch_duration: _duration_pb2.Duration
    changed: bool
    memo: bytes
    discovered: _containers.RepeatedCompositeFieldContainer[DiscoveredItem]
    queue_delay: _duration_pb2.Duration
    next_crawl_delay: _duration_pb2.Duration
    message: str
    document: DocumentKind
    broken_off: bool
    def __init__(self, http_status: _Optional[int] = ..., bytes: _Optional[int] = ..., fetch_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., changed: bool = ..., memo: _Optional[bytes] = ..., discovered: _Optional[_Iterable[_Union[DiscoveredItem, _Mapping]]] = ..., queue_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., next_crawl_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., message: _Optional[str] = ..., document: _Optional[_Union[DocumentKind, str]] = ..., broken_off: bool = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("reason", "message", "http_status", "retry_after", "fetch_duration", "permanent", "queue_delay")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    FETCH_DURATION_FIELD_NUMBER: _ClassVar[int]
    PERMANENT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DELAY_FIELD_NUMBER: _ClassVar[int]
    reason: FailureReason
    message: str
    http_status: int
    retry_after: _duration_pb2.Duration
    fetch_duration: _duration_pb2.Duration
    permanent: bool
    queue_delay: _duration_pb2.Duration
    def __init__(self, reason: _Optional[_Union[FailureReason, str]] = ..., message: _Optional[str] = ..., http_status: _Optional[int] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., fetch_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., permanent: bool = ..., queue_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Released(_message.Message):
    __slots__ = ("delay",)
    DELAY_FIELD_NUMBER: _ClassVar[int]
    delay: _duration_pb2.Duration
    def __init__(self, delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class DiscoveredItem(_message.Message):
    __slots__ = ("url", "key", "queue", "kind", "priority", "metadata", "payload", "relation", "modified_time")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    URL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_TIME_FIELD_NUMBER: _ClassVar[int]
    url: str
    key: str
    queue: str
    kind: str
    priority: int
    metadata: _containers.ScalarMap[str, str]
    payload: bytes
    relation: Relation
    modified_time: _timestamp_pb2.Timestamp
    def __init__(self, url: _Optional[str] = ..., key: _Optional[str] = ..., queue: _Optional[str] = ..., kind: _Optional[str] = ..., priority: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ..., payload: _Optional[bytes] = ..., relation: _Optional[_Union[Relation, str]] = ..., modified_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class DiscoverSummary(_message.Message):
    __slots__ = ("results", "created", "existing", "revisited", "filtered", "limited", "invalid")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    REVISITED_FIELD_NUMBER: _ClassVar[int]
    FILTERED_FIELD_NUMBER: _ClassVar[int]
    LIMITED_FIELD_NUMBER: _ClassVar[int]
    INVALID_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[DiscoverResult]
    created: int
    existing: int
    revisited: int
    filtered: int
    limited: int
    invalid: int
    def __init__(self, results: _Optional[_Iterable[_Union[DiscoverResult, _Mapping]]] = ..., created: _Optional[int] = ..., existing: _Optional[int] = ..., revisited: _Optional[int] = ..., filtered: _Optional[int] = ..., limited: _Optional[int] = ..., invalid: _Optional[int] = ...) -> None: ...

class DiscoverResult(_message.Message):
    __slots__ = ("code", "task_id", "message", "filter_reason")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FILTER_REASON_FIELD_NUMBER: _ClassVar[int]
    code: DiscoverCode
    task_id: str
    message: str
    filter_reason: FilterReason
    def __init__(self, code: _Optional[_Union[DiscoverCode, str]] = ..., task_id: _Optional[str] = ..., message: _Optional[str] = ..., filter_reason: _Optional[_Union[FilterReason, str]] = ...) -> None: ...
