import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from waggle_collector.v1 import gate_pb2 as _gate_pb2
from waggle_collector.v1 import hold_pb2 as _hold_pb2
from waggle_collector.v1 import rates_pb2 as _rates_pb2
from waggle_collector.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FirstCrawl(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FIRST_CRAWL_UNSPECIFIED: _ClassVar[FirstCrawl]
    FIRST_CRAWL_NOW: _ClassVar[FirstCrawl]
    FIRST_CRAWL_SPREAD: _ClassVar[FirstCrawl]

class SourceHealth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SOURCE_HEALTH_UNSPECIFIED: _ClassVar[SourceHealth]
    SOURCE_HEALTH_OK: _ClassVar[SourceHealth]
    SOURCE_HEALTH_LATE: _ClassVar[SourceHealth]
    SOURCE_HEALTH_FAILING: _ClassVar[SourceHealth]
    SOURCE_HEALTH_BACKED_OFF: _ClassVar[SourceHealth]
    SOURCE_HEALTH_HELD: _ClassVar[SourceHealth]
    SOURCE_HEALTH_STUCK: _ClassVar[SourceHealth]
    SOURCE_HEALTH_EMPTY: _ClassVar[SourceHealth]
    SOURCE_HEALTH_QUIET: _ClassVar[SourceHealth]
    SOURCE_HEALTH_PAGES_FAIL: _ClassVar[SourceHealth]
FIRST_CRAWL_UNSPECIFIED: FirstCrawl
FIRST_CRAWL_NOW: FirstCrawl
FIRST_CRAWL_SPREAD: FirstCrawl
SOURCE_HEALTH_UNSPECIFIED: SourceHealth
SOURCE_HEALTH_OK: SourceHealth
SOURCE_HEALTH_LATE: SourceHealth
SOURCE_HEALTH_FAILING: SourceHealth
SOURCE_HEALTH_BACKED_OFF: SourceHealth
SOURCE_HEALTH_HELD: SourceHealth
SOURCE_HEALTH_STUCK: SourceHealth
SOURCE_HEALTH_EMPTY: SourceHealth
SOURCE_HEALTH_QUIET: SourceHealth
SOURCE_HEALTH_PAGES_FAIL: SourceHealth

class Source(_message.Message):
    __slots__ = ("id", "uid", "spec", "status", "etag", "version", "create_time", "update_time")
    ID_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    id: str
    uid: str
    spec: SourceSpec
    status: SourceStatus
    etag: str
    version: int
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., uid: _Optional[str] = ..., spec: _Optional[_Union[SourceSpec, _Mapping]] = ..., status: _Optional[_Union[SourceStatus, _Mapping]] = ..., etag: _Optional[str] = ..., version: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SourceSpec(_message.Message):
    __slots__ = ("id", "display_name", "labels", "scope", "seeds", "pool", "schedule", "first_crawl", "priority", "lease_duration", "max_hold", "retry", "remember", "revisit_after", "follow", "max_outstanding", "metadata", "payload", "canonical_rules", "quiet_after")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    FIRST_CRAWL_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_FIELD_NUMBER: _ClassVar[int]
    MAX_HOLD_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    REMEMBER_FIELD_NUMBER: _ClassVar[int]
    REVISIT_AFTER_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTSTANDING_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CANONICAL_RULES_FIELD_NUMBER: _ClassVar[int]
    QUIET_AFTER_FIELD_NUMBER: _ClassVar[int]
    id: str
    display_name: str
    labels: _containers.ScalarMap[str, str]
    scope: str
    seeds: _containers.RepeatedCompositeFieldContainer[Seed]
    pool: str
    schedule: Schedule
    first_crawl: FirstCrawl
    priority: int
    lease_duration: _duration_pb2.Duration
    max_hold: _duration_pb2.Duration
    retry: RetryPolicy
    remember: _duration_pb2.Duration
    revisit_after: _duration_pb2.Duration
    follow: Follow
    max_outstanding: int
    metadata: _containers.ScalarMap[str, str]
    payload: bytes
    canonical_rules: int
    quiet_after: _duration_pb2.Duration
    def __init__(self, id: _Optional[str] = ..., display_name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., scope: _Optional[str] = ..., seeds: _Optional[_Iterable[_Union[Seed, _Mapping]]] = ..., pool: _Optional[str] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ..., first_crawl: _Optional[_Union[FirstCrawl, str]] = ..., priority: _Optional[int] = ..., lease_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_hold: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry: _Optional[_Union[RetryPolicy, _Mapping]] = ..., remember: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., revisit_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., follow: _Optional[_Union[Follow, _Mapping]] = ..., max_outstanding: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ..., payload: _Optional[bytes] = ..., canonical_rules: _Optional[int] = ..., quiet_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Seed(_message.Message):
    __slots__ = ("url", "key", "queue", "kind")
    URL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    url: str
    key: str
    queue: str
    kind: str
    def __init__(self, url: _Optional[str] = ..., key: _Optional[str] = ..., queue: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("every", "cron", "adaptive", "time_zone", "revisit", "jitter")
    EVERY_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    ADAPTIVE_FIELD_NUMBER: _ClassVar[int]
    TIME_ZONE_FIELD_NUMBER: _ClassVar[int]
    REVISIT_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    every: _duration_pb2.Duration
    cron: str
    adaptive: Adaptive
    time_zone: str
    revisit: bool
    jitter: _duration_pb2.Duration
    def __init__(self, every: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cron: _Optional[str] = ..., adaptive: _Optional[_Union[Adaptive, _Mapping]] = ..., time_zone: _Optional[str] = ..., revisit: bool = ..., jitter: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Adaptive(_message.Message):
    __slots__ = ("min_interval", "max_interval")
    MIN_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    MAX_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    min_interval: _duration_pb2.Duration
    max_interval: _duration_pb2.Duration
    def __init__(self, min_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RetryPolicy(_message.Message):
    __slots__ = ("max_attempts", "max_expirations", "max_throttled", "min_backoff", "max_backoff")
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_EXPIRATIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_THROTTLED_FIELD_NUMBER: _ClassVar[int]
    MIN_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    MAX_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    max_attempts: int
    max_expirations: int
    max_throttled: int
    min_backoff: _duration_pb2.Duration
    max_backoff: _duration_pb2.Duration
    def __init__(self, max_attempts: _Optional[int] = ..., max_expirations: _Optional[int] = ..., max_throttled: _Optional[int] = ..., min_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Follow(_message.Message):
    __slots__ = ("max_depth", "allow_hosts", "include", "exclude")
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    ALLOW_HOSTS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    max_depth: int
    allow_hosts: _containers.RepeatedScalarFieldContainer[str]
    include: _containers.RepeatedScalarFieldContainer[str]
    exclude: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, max_depth: _Optional[int] = ..., allow_hosts: _Optional[_Iterable[str]] = ..., include: _Optional[_Iterable[str]] = ..., exclude: _Optional[_Iterable[str]] = ...) -> None: ...

class SourceStatus(_message.Message):
    __slots__ = ("health", "holds", "breaker", "pending_versions", "tasks", "last_success_time", "consecutive_failures", "next_due_time", "lag", "limited", "last_error", "last_failure_time", "outstanding", "gates", "shortest_interval", "longest_interval", "canceled_seeds", "collector_unknown", "filtered", "released_tasks", "moves", "last_new_time", "usual_gap", "empty_cycles", "new_by_day", "recent_pages", "recent_failed_pages", "recent_failures", "rates")
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    BREAKER_FIELD_NUMBER: _ClassVar[int]
    PENDING_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    LAST_SUCCESS_TIME_FIELD_NUMBER: _ClassVar[int]
    CONSECUTIVE_FAILURES_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    LIMITED_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_TIME_FIELD_NUMBER: _ClassVar[int]
    OUTSTANDING_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    SHORTEST_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    LONGEST_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    CANCELED_SEEDS_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    FILTERED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_TASKS_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    LAST_NEW_TIME_FIELD_NUMBER: _ClassVar[int]
    USUAL_GAP_FIELD_NUMBER: _ClassVar[int]
    EMPTY_CYCLES_FIELD_NUMBER: _ClassVar[int]
    NEW_BY_DAY_FIELD_NUMBER: _ClassVar[int]
    RECENT_PAGES_FIELD_NUMBER: _ClassVar[int]
    RECENT_FAILED_PAGES_FIELD_NUMBER: _ClassVar[int]
    RECENT_FAILURES_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    health: SourceHealth
    holds: _containers.RepeatedCompositeFieldContainer[_hold_pb2.Hold]
    breaker: Breaker
    pending_versions: int
    tasks: _task_pb2.TaskCounts
    last_success_time: _timestamp_pb2.Timestamp
    consecutive_failures: int
    next_due_time: _timestamp_pb2.Timestamp
    lag: _duration_pb2.Duration
    limited: int
    last_error: _task_pb2.TaskError
    last_failure_time: _timestamp_pb2.Timestamp
    outstanding: int
    gates: _containers.RepeatedCompositeFieldContainer[_gate_pb2.Gate]
    shortest_interval: _duration_pb2.Duration
    longest_interval: _duration_pb2.Duration
    canceled_seeds: int
    collector_unknown: bool
    filtered: _containers.RepeatedCompositeFieldContainer[FilteredLinks]
    released_tasks: _containers.RepeatedCompositeFieldContainer[ReleasedTask]
    moves: _containers.RepeatedCompositeFieldContainer[SeedMove]
    last_new_time: _timestamp_pb2.Timestamp
    usual_gap: _duration_pb2.Duration
    empty_cycles: int
    new_by_day: _containers.RepeatedScalarFieldContainer[int]
    recent_pages: int
    recent_failed_pages: int
    recent_failures: _containers.RepeatedCompositeFieldContainer[FailedAttempts]
    rates: _rates_pb2.Rates
    def __init__(self, health: _Optional[_Union[SourceHealth, str]] = ..., holds: _Optional[_Iterable[_Union[_hold_pb2.Hold, _Mapping]]] = ..., breaker: _Optional[_Union[Breaker, _Mapping]] = ..., pending_versions: _Optional[int] = ..., tasks: _Optional[_Union[_task_pb2.TaskCounts, _Mapping]] = ..., last_success_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., consecutive_failures: _Optional[int] = ..., next_due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lag: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limited: _Optional[int] = ..., last_error: _Optional[_Union[_task_pb2.TaskError, _Mapping]] = ..., last_failure_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., outstanding: _Optional[int] = ..., gates: _Optional[_Iterable[_Union[_gate_pb2.Gate, _Mapping]]] = ..., shortest_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., longest_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., canceled_seeds: _Optional[int] = ..., collector_unknown: bool = ..., filtered: _Optional[_Iterable[_Union[FilteredLinks, _Mapping]]] = ..., released_tasks: _Optional[_Iterable[_Union[ReleasedTask, _Mapping]]] = ..., moves: _Optional[_Iterable[_Union[SeedMove, _Mapping]]] = ..., last_new_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., usual_gap: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., empty_cycles: _Optional[int] = ..., new_by_day: _Optional[_Iterable[int]] = ..., recent_pages: _Optional[int] = ..., recent_failed_pages: _Optional[int] = ..., recent_failures: _Optional[_Iterable[_Union[FailedAttempts, _Mapping]]] = ..., rates: _Optional[_Union[_rates_pb2.Rates, _Mapping]] = ...) -> None: ...

class SeedMove(_message.Message):
    __slots__ = ("seed_url", "moved_to", "moved_for_good_to", "away")
    SEED_URL_FIELD_NUMBER: _ClassVar[int]
    MOVED_TO_FIELD_NUMBER: _ClassVar[int]
    MOVED_FOR_GOOD_TO_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    seed_url: str
    moved_to: str
    moved_for_good_to: str
    away: bool
    def __init__(self, seed_url: _Optional[str] = ..., moved_to: _Optional[str] = ..., moved_for_good_to: _Optional[str] = ..., away: bool = ...) -> None: ...

class ReleasedTask(_message.Message):
    __slots__ = ("task_id", "url", "releases", "collector_id", "release_time")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_ID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_TIME_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    url: str
    releases: int
    collector_id: str
    release_time: _timestamp_pb2.Timestamp
    def __init__(self, task_id: _Optional[str] = ..., url: _Optional[str] = ..., releases: _Optional[int] = ..., collector_id: _Optional[str] = ..., release_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class FilteredLinks(_message.Message):
    __slots__ = ("reason", "count")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    reason: _task_pb2.FilterReason
    count: int
    def __init__(self, reason: _Optional[_Union[_task_pb2.FilterReason, str]] = ..., count: _Optional[int] = ...) -> None: ...

class Breaker(_message.Message):
    __slots__ = ("given_up_cycles", "dead_seeds")
    GIVEN_UP_CYCLES_FIELD_NUMBER: _ClassVar[int]
    DEAD_SEEDS_FIELD_NUMBER: _ClassVar[int]
    given_up_cycles: int
    dead_seeds: int
    def __init__(self, given_up_cycles: _Optional[int] = ..., dead_seeds: _Optional[int] = ...) -> None: ...

class SourceCycle(_message.Message):
    __slots__ = ("end_time", "failed", "reason", "http_status", "fetch_duration", "bytes", "document", "unchanged", "broken_off", "found", "new", "filtered")
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    FETCH_DURATION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    BROKEN_OFF_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    FILTERED_FIELD_NUMBER: _ClassVar[int]
    end_time: _timestamp_pb2.Timestamp
    failed: bool
    reason: _task_pb2.FailureReason
    http_status: int
    fetch_duration: _duration_pb2.Duration
    bytes: int
    document: _task_pb2.DocumentKind
    unchanged: bool
    broken_off: bool
    found: int
    new: int
    filtered: _containers.RepeatedCompositeFieldContainer[FilteredLinks]
    def __init__(self, end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., failed: bool = ..., reason: _Optional[_Union[_task_pb2.FailureReason, str]] = ..., http_status: _Optional[int] = ..., fetch_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., bytes: _Optional[int] = ..., document: _Optional[_Union[_task_pb2.DocumentKind, str]] = ..., unchanged: bool = ..., broken_off: bool = ..., found: _Optional[int] = ..., new: _Optional[int] = ..., filtered: _Optional[_Iterable[_Union[FilteredLinks, _Mapping]]] = ...) -> None: ...

class SourceDay(_message.Message):
    __slots__ = ("begin_time", "cycles", "pages", "new", "kibibytes", "failed")
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    CYCLES_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    KIBIBYTES_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    begin_time: _timestamp_pb2.Timestamp
    cycles: int
    pages: int
    new: int
    kibibytes: int
    failed: _containers.RepeatedCompositeFieldContainer[FailedAttempts]
    def __init__(self, begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cycles: _Optional[int] = ..., pages: _Optional[int] = ..., new: _Optional[int] = ..., kibibytes: _Optional[int] = ..., failed: _Optional[_Iterable[_Union[FailedAttempts, _Mapping]]] = ...) -> None: ...

class FailedAttempts(_message.Message):
    __slots__ = ("reason", "count")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    reason: _task_pb2.FailureReason
    count: int
    def __init__(self, reason: _Optional[_Union[_task_pb2.FailureReason, str]] = ..., count: _Optional[int] = ...) -> None: ...
