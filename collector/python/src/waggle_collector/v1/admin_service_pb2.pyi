import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from waggle_collector.v1 import collector_pb2 as _collector_pb2
from waggle_collector.v1 import filter_pb2 as _filter_pb2
from waggle_collector.v1 import gate_pb2 as _gate_pb2
from waggle_collector.v1 import hold_pb2 as _hold_pb2
from waggle_collector.v1 import queue_pb2 as _queue_pb2
from waggle_collector.v1 import rates_pb2 as _rates_pb2
from waggle_collector.v1 import source_pb2 as _source_pb2
from waggle_collector.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FindingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINDING_KIND_UNSPECIFIED: _ClassVar[FindingKind]
    FINDING_KIND_DISPATCHER: _ClassVar[FindingKind]
    FINDING_KIND_STORE: _ClassVar[FindingKind]
    FINDING_KIND_HELD: _ClassVar[FindingKind]
    FINDING_KIND_COLLECTOR: _ClassVar[FindingKind]
    FINDING_KIND_STUCK: _ClassVar[FindingKind]
    FINDING_KIND_NO_COLLECTOR: _ClassVar[FindingKind]
    FINDING_KIND_HUNG: _ClassVar[FindingKind]
    FINDING_KIND_HANDLER: _ClassVar[FindingKind]
    FINDING_KIND_RELEASED: _ClassVar[FindingKind]
    FINDING_KIND_BLOCKED: _ClassVar[FindingKind]
    FINDING_KIND_NEVER: _ClassVar[FindingKind]
    FINDING_KIND_FAILING: _ClassVar[FindingKind]
    FINDING_KIND_BACKED_OFF: _ClassVar[FindingKind]
    FINDING_KIND_LATE: _ClassVar[FindingKind]
    FINDING_KIND_DEAD: _ClassVar[FindingKind]
    FINDING_KIND_GONE: _ClassVar[FindingKind]
    FINDING_KIND_IDLE: _ClassVar[FindingKind]
    FINDING_KIND_UNREAD: _ClassVar[FindingKind]
    FINDING_KIND_MOVED: _ClassVar[FindingKind]
    FINDING_KIND_DEAF: _ClassVar[FindingKind]
    FINDING_KIND_FETCHES_FAIL: _ClassVar[FindingKind]
    FINDING_KIND_CERTIFICATE: _ClassVar[FindingKind]
    FINDING_KIND_CLOCK: _ClassVar[FindingKind]
    FINDING_KIND_PAGES_FAIL: _ClassVar[FindingKind]
    FINDING_KIND_ROOM: _ClassVar[FindingKind]
    FINDING_KIND_QUIET: _ClassVar[FindingKind]
    FINDING_KIND_EMPTY: _ClassVar[FindingKind]

class HeldKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HELD_KIND_UNSPECIFIED: _ClassVar[HeldKind]
    HELD_KIND_TASK: _ClassVar[HeldKind]
    HELD_KIND_SOURCE: _ClassVar[HeldKind]
    HELD_KIND_QUEUE: _ClassVar[HeldKind]
    HELD_KIND_POOL: _ClassVar[HeldKind]
    HELD_KIND_EVERYTHING: _ClassVar[HeldKind]
FINDING_KIND_UNSPECIFIED: FindingKind
FINDING_KIND_DISPATCHER: FindingKind
FINDING_KIND_STORE: FindingKind
FINDING_KIND_HELD: FindingKind
FINDING_KIND_COLLECTOR: FindingKind
FINDING_KIND_STUCK: FindingKind
FINDING_KIND_NO_COLLECTOR: FindingKind
FINDING_KIND_HUNG: FindingKind
FINDING_KIND_HANDLER: FindingKind
FINDING_KIND_RELEASED: FindingKind
FINDING_KIND_BLOCKED: FindingKind
FINDING_KIND_NEVER: FindingKind
FINDING_KIND_FAILING: FindingKind
FINDING_KIND_BACKED_OFF: FindingKind
FINDING_KIND_LATE: FindingKind
FINDING_KIND_DEAD: FindingKind
FINDING_KIND_GONE: FindingKind
FINDING_KIND_IDLE: FindingKind
FINDING_KIND_UNREAD: FindingKind
FINDING_KIND_MOVED: FindingKind
FINDING_KIND_DEAF: FindingKind
FINDING_KIND_FETCHES_FAIL: FindingKind
FINDING_KIND_CERTIFICATE: FindingKind
FINDING_KIND_CLOCK: FindingKind
FINDING_KIND_PAGES_FAIL: FindingKind
FINDING_KIND_ROOM: FindingKind
FINDING_KIND_QUIET: FindingKind
FINDING_KIND_EMPTY: FindingKind
HELD_KIND_UNSPECIFIED: HeldKind
HELD_KIND_TASK: HeldKind
HELD_KIND_SOURCE: HeldKind
HELD_KIND_QUEUE: HeldKind
HELD_KIND_POOL: HeldKind
HELD_KIND_EVERYTHING: HeldKind

class GetStatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatsResponse(_message.Message):
    __slots__ = ("tasks", "queues", "leases", "oldest_overdue_lease", "collectors", "counters", "store", "dispatcher", "grace", "holds", "ownership", "rates", "pool_rates", "room")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_OVERDUE_LEASE_FIELD_NUMBER: _ClassVar[int]
    COLLECTORS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    POOL_RATES_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    tasks: _task_pb2.TaskCounts
    queues: int
    leases: int
    oldest_overdue_lease: _duration_pb2.Duration
    collectors: int
    counters: StoreCounters
    store: StoreInfo
    dispatcher: DispatcherInfo
    grace: _duration_pb2.Duration
    holds: int
    ownership: Ownership
    rates: _rates_pb2.Rates
    pool_rates: _containers.RepeatedCompositeFieldContainer[PoolRates]
    room: StoreRoom
    def __init__(self, tasks: _Optional[_Union[_task_pb2.TaskCounts, _Mapping]] = ..., queues: _Optional[int] = ..., leases: _Optional[int] = ..., oldest_overdue_lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., collectors: _Optional[int] = ..., counters: _Optional[_Union[StoreCounters, _Mapping]] = ..., store: _Optional[_Union[StoreInfo, _Mapping]] = ..., dispatcher: _Optional[_Union[DispatcherInfo, _Mapping]] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., holds: _Optional[int] = ..., ownership: _Optional[_Union[Ownership, _Mapping]] = ..., rates: _Optional[_Union[_rates_pb2.Rates, _Mapping]] = ..., pool_rates: _Optional[_Iterable[_Union[PoolRates, _Mapping]]] = ..., room: _Optional[_Union[StoreRoom, _Mapping]] = ...) -> None: ...

class PoolRates(_message.Message):
    __slots__ = ("pool", "rates")
    POOL_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    pool: str
    rates: _rates_pb2.Rates
    def __init__(self, pool: _Optional[str] = ..., rates: _Optional[_Union[_rates_pb2.Rates, _Mapping]] = ...) -> None: ...

class StoreRoom(_message.Message):
    __slots__ = ("used_bytes", "limit_bytes", "free_bytes")
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    used_bytes: int
    limit_bytes: int
    free_bytes: int
    def __init__(self, used_bytes: _Optional[int] = ..., limit_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ...) -> None: ...

class Ownership(_message.Message):
    __slots__ = ("owner", "address", "owning", "epoch", "since_time", "away_shards", "ownerless_duration", "total_ownerless_duration", "changes", "self_fences", "last_self_fence_time", "groups", "group_bytes", "group_duration", "groups_refused", "load_duration", "items_loaded", "items_rewritten", "items_deleted", "lost_tasks", "standby", "shards_without_standby", "without_standby_duration", "takeovers_forced", "takeovers_warm", "takeovers_loaded", "recent_changes", "last_refused_time")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    OWNING_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SINCE_TIME_FIELD_NUMBER: _ClassVar[int]
    AWAY_SHARDS_FIELD_NUMBER: _ClassVar[int]
    OWNERLESS_DURATION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_OWNERLESS_DURATION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    SELF_FENCES_FIELD_NUMBER: _ClassVar[int]
    LAST_SELF_FENCE_TIME_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    GROUP_BYTES_FIELD_NUMBER: _ClassVar[int]
    GROUP_DURATION_FIELD_NUMBER: _ClassVar[int]
    GROUPS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    LOAD_DURATION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_LOADED_FIELD_NUMBER: _ClassVar[int]
    ITEMS_REWRITTEN_FIELD_NUMBER: _ClassVar[int]
    ITEMS_DELETED_FIELD_NUMBER: _ClassVar[int]
    LOST_TASKS_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    SHARDS_WITHOUT_STANDBY_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_STANDBY_DURATION_FIELD_NUMBER: _ClassVar[int]
    TAKEOVERS_FORCED_FIELD_NUMBER: _ClassVar[int]
    TAKEOVERS_WARM_FIELD_NUMBER: _ClassVar[int]
    TAKEOVERS_LOADED_FIELD_NUMBER: _ClassVar[int]
    RECENT_CHANGES_FIELD_NUMBER: _ClassVar[int]
    LAST_REFUSED_TIME_FIELD_NUMBER: _ClassVar[int]
    owner: str
    address: str
    owning: bool
    epoch: int
    since_time: _timestamp_pb2.Timestamp
    away_shards: _containers.RepeatedScalarFieldContainer[int]
    ownerless_duration: _duration_pb2.Duration
    total_ownerless_duration: _duration_pb2.Duration
    changes: int
    self_fences: int
    last_self_fence_time: _timestamp_pb2.Timestamp
    groups: int
    group_bytes: int
    group_duration: _duration_pb2.Duration
    groups_refused: int
    load_duration: _duration_pb2.Duration
    items_loaded: int
    items_rewritten: int
    items_deleted: int
    lost_tasks: int
    standby: str
    shards_without_standby: int
    without_standby_duration: _duration_pb2.Duration
    takeovers_forced: int
    takeovers_warm: int
    takeovers_loaded: int
    recent_changes: int
    last_refused_time: _timestamp_pb2.Timestamp
    def __init__(self, owner: _Optional[str] = ..., address: _Optional[str] = ..., owning: bool = ..., epoch: _Optional[int] = ..., since_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., away_shards: _Optional[_Iterable[int]] = ..., ownerless_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., total_ownerless_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., changes: _Optional[int] = ..., self_fences: _Optional[int] = ..., last_self_fence_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., groups: _Optional[int] = ..., group_bytes: _Optional[int] = ..., group_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., groups_refused: _Optional[int] = ..., load_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., items_loaded: _Optional[int] = ..., items_rewritten: _Optional[int] = ..., items_deleted: _Optional[int] = ..., lost_tasks: _Optional[int] = ..., standby: _Optional[str] = ..., shards_without_standby: _Optional[int] = ..., without_standby_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., takeovers_forced: _Optional[int] = ..., takeovers_warm: _Optional[int] = ..., takeovers_loaded: _Optional[int] = ..., recent_changes: _Optional[int] = ..., last_refused_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class StoreCounters(_message.Message):
    __slots__ = ("granted", "settled", "expired", "orphaned")
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    ORPHANED_FIELD_NUMBER: _ClassVar[int]
    granted: int
    settled: int
    expired: int
    orphaned: int
    def __init__(self, granted: _Optional[int] = ..., settled: _Optional[int] = ..., expired: _Optional[int] = ..., orphaned: _Optional[int] = ...) -> None: ...

class StoreInfo(_message.Message):
    __slots__ = ("kind", "shards", "time", "full")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    kind: str
    shards: int
    time: _timestamp_pb2.Timestamp
    full: bool
    def __init__(self, kind: _Optional[str] = ..., shards: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., full: bool = ...) -> None: ...

class DispatcherInfo(_message.Message):
    __slots__ = ("id", "version", "uptime", "parked_fetches", "heartbeat_streams", "draining")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_FIELD_NUMBER: _ClassVar[int]
    PARKED_FETCHES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_STREAMS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: str
    uptime: _duration_pb2.Duration
    parked_fetches: int
    heartbeat_streams: int
    draining: bool
    def __init__(self, id: _Optional[str] = ..., version: _Optional[str] = ..., uptime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., parked_fetches: _Optional[int] = ..., heartbeat_streams: _Optional[int] = ..., draining: bool = ...) -> None: ...

class ListLeasesRequest(_message.Message):
    __slots__ = ("filter", "page_size", "page_token")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    filter: _filter_pb2.Filter
    page_size: int
    page_token: str
    def __init__(self, filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListLeasesResponse(_message.Message):
    __slots__ = ("leases", "next_page_token")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[HeldLease]
    next_page_token: str
    def __init__(self, leases: _Optional[_Iterable[_Union[HeldLease, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class HeldLease(_message.Message):
    __slots__ = ("task_id", "source_id", "queue", "url", "holder")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    source_id: str
    queue: str
    url: str
    holder: _task_pb2.LeaseHolder
    def __init__(self, task_id: _Optional[str] = ..., source_id: _Optional[str] = ..., queue: _Optional[str] = ..., url: _Optional[str] = ..., holder: _Optional[_Union[_task_pb2.LeaseHolder, _Mapping]] = ...) -> None: ...

class ListCollectorsRequest(_message.Message):
    __slots__ = ("filter", "states", "page_size", "page_token")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    filter: _filter_pb2.Filter
    states: _containers.RepeatedScalarFieldContainer[_collector_pb2.CollectorState]
    page_size: int
    page_token: str
    def __init__(self, filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., states: _Optional[_Iterable[_Union[_collector_pb2.CollectorState, str]]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCollectorsResponse(_message.Message):
    __slots__ = ("collectors", "next_page_token")
    COLLECTORS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    collectors: _containers.RepeatedCompositeFieldContainer[_collector_pb2.Collector]
    next_page_token: str
    def __init__(self, collectors: _Optional[_Iterable[_Union[_collector_pb2.Collector, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("task_id", "source_id", "queue", "pool")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    source_id: str
    queue: str
    pool: str
    def __init__(self, task_id: _Optional[str] = ..., source_id: _Optional[str] = ..., queue: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("gates", "opens_in", "maps_to", "unknown", "notes", "partly", "last_error", "health")
    GATES_FIELD_NUMBER: _ClassVar[int]
    OPENS_IN_FIELD_NUMBER: _ClassVar[int]
    MAPS_TO_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    PARTLY_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    gates: _containers.RepeatedCompositeFieldContainer[ExplainedGate]
    opens_in: _duration_pb2.Duration
    maps_to: str
    unknown: bool
    notes: _containers.RepeatedScalarFieldContainer[str]
    partly: bool
    last_error: _task_pb2.TaskError
    health: str
    def __init__(self, gates: _Optional[_Iterable[_Union[ExplainedGate, _Mapping]]] = ..., opens_in: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., maps_to: _Optional[str] = ..., unknown: bool = ..., notes: _Optional[_Iterable[str]] = ..., partly: bool = ..., last_error: _Optional[_Union[_task_pb2.TaskError, _Mapping]] = ..., health: _Optional[str] = ...) -> None: ...

class ListFindingsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListFindingsResponse(_message.Message):
    __slots__ = ("findings", "sources", "sources_ok", "all_looked_at", "next_due_time")
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_OK_FIELD_NUMBER: _ClassVar[int]
    ALL_LOOKED_AT_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    sources: int
    sources_ok: int
    all_looked_at: bool
    next_due_time: _timestamp_pb2.Timestamp
    def __init__(self, findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., sources: _Optional[int] = ..., sources_ok: _Optional[int] = ..., all_looked_at: bool = ..., next_due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("kind", "since_time", "count", "names", "message", "next_step", "source", "collector", "lease", "hold", "pool", "queue", "task", "gates", "max_hold")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SINCE_TIME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    MAX_HOLD_FIELD_NUMBER: _ClassVar[int]
    kind: FindingKind
    since_time: _timestamp_pb2.Timestamp
    count: int
    names: _containers.RepeatedScalarFieldContainer[str]
    message: str
    next_step: str
    source: _source_pb2.Source
    collector: _collector_pb2.Collector
    lease: HeldLease
    hold: _hold_pb2.Hold
    pool: Pool
    queue: _queue_pb2.Queue
    task: _source_pb2.ReleasedTask
    gates: _containers.RepeatedCompositeFieldContainer[GateCount]
    max_hold: _duration_pb2.Duration
    def __init__(self, kind: _Optional[_Union[FindingKind, str]] = ..., since_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., count: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., message: _Optional[str] = ..., next_step: _Optional[str] = ..., source: _Optional[_Union[_source_pb2.Source, _Mapping]] = ..., collector: _Optional[_Union[_collector_pb2.Collector, _Mapping]] = ..., lease: _Optional[_Union[HeldLease, _Mapping]] = ..., hold: _Optional[_Union[_hold_pb2.Hold, _Mapping]] = ..., pool: _Optional[_Union[Pool, _Mapping]] = ..., queue: _Optional[_Union[_queue_pb2.Queue, _Mapping]] = ..., task: _Optional[_Union[_source_pb2.ReleasedTask, _Mapping]] = ..., gates: _Optional[_Iterable[_Union[GateCount, _Mapping]]] = ..., max_hold: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GateCount(_message.Message):
    __slots__ = ("kind", "count")
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    kind: _gate_pb2.GateKind
    count: int
    def __init__(self, kind: _Optional[_Union[_gate_pb2.GateKind, str]] = ..., count: _Optional[int] = ...) -> None: ...

class ExplainedGate(_message.Message):
    __slots__ = ("gate", "of", "name", "opened_by")
    GATE_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPENED_BY_FIELD_NUMBER: _ClassVar[int]
    gate: _gate_pb2.Gate
    of: HeldKind
    name: str
    opened_by: str
    def __init__(self, gate: _Optional[_Union[_gate_pb2.Gate, _Mapping]] = ..., of: _Optional[_Union[HeldKind, str]] = ..., name: _Optional[str] = ..., opened_by: _Optional[str] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("name", "ready_queues", "waiting_queues", "holds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    READY_QUEUES_FIELD_NUMBER: _ClassVar[int]
    WAITING_QUEUES_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    ready_queues: int
    waiting_queues: int
    holds: _containers.RepeatedCompositeFieldContainer[_hold_pb2.Hold]
    def __init__(self, name: _Optional[str] = ..., ready_queues: _Optional[int] = ..., waiting_queues: _Optional[int] = ..., holds: _Optional[_Iterable[_Union[_hold_pb2.Hold, _Mapping]]] = ...) -> None: ...

class ListPoolsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPoolsResponse(_message.Message):
    __slots__ = ("pools", "next_page_token")
    POOLS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    next_page_token: str
    def __init__(self, pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("time", "by", "said", "method", "target", "before", "after", "reason")
    TIME_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    SAID_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    by: str
    said: str
    method: str
    target: str
    before: str
    after: str
    reason: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., by: _Optional[str] = ..., said: _Optional[str] = ..., method: _Optional[str] = ..., target: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., reason: _Optional[str] = ..., **kwargs) -> None: ...

class ListAuditEntriesRequest(_message.Message):
    __slots__ = ("by", "page_size", "page_token")
    BY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    by: str
    page_size: int
    page_token: str
    def __init__(self, by: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAuditEntriesResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ReleaseCollectorRequest(_message.Message):
    __slots__ = ("collector_id", "by", "reason")
    COLLECTOR_ID_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    collector_id: str
    by: str
    reason: str
    def __init__(self, collector_id: _Optional[str] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ReleaseCollectorResponse(_message.Message):
    __slots__ = ("identity",)
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    identity: str
    def __init__(self, identity: _Optional[str] = ...) -> None: ...

class ExplainAccessRequest(_message.Message):
    __slots__ = ("method", "identity")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    method: str
    identity: str
    def __init__(self, method: _Optional[str] = ..., identity: _Optional[str] = ...) -> None: ...

class ExplainAccessResponse(_message.Message):
    __slots__ = ("allowed", "text")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    text: str
    def __init__(self, allowed: bool = ..., text: _Optional[str] = ...) -> None: ...

class MoveOwnerRequest(_message.Message):
    __slots__ = ("owner", "by", "reason")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    owner: str
    by: str
    reason: str
    def __init__(self, owner: _Optional[str] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class MoveOwnerResponse(_message.Message):
    __slots__ = ("owner", "standby")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    owner: str
    standby: str
    def __init__(self, owner: _Optional[str] = ..., standby: _Optional[str] = ...) -> None: ...
