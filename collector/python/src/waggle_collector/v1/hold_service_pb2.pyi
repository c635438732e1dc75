import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from waggle_collector.v1 import filter_pb2 as _filter_pb2
from waggle_collector.v1 import hold_pb2 as _hold_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SetHoldsRequest(_message.Message):
    __slots__ = ("targets", "filter", "name", "effect", "until", "by", "reason", "replace", "etag", "validate_only", "page_token")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[_hold_pb2.HoldTarget]
    filter: _filter_pb2.Filter
    name: str
    effect: _hold_pb2.HoldEffect
    until: _timestamp_pb2.Timestamp
    by: str
    reason: str
    replace: bool
    etag: str
    validate_only: bool
    page_token: str
    def __init__(self, targets: _Optional[_Iterable[_Union[_hold_pb2.HoldTarget, _Mapping]]] = ..., filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., name: _Optional[str] = ..., effect: _Optional[_Union[_hold_pb2.HoldEffect, str]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., replace: bool = ..., etag: _Optional[str] = ..., validate_only: bool = ..., page_token: _Optional[str] = ...) -> None: ...

class SetHoldsResponse(_message.Message):
    __slots__ = ("matched", "changed", "next_page_token", "holds", "replaced", "unknown", "ended_leases")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    ENDED_LEASES_FIELD_NUMBER: _ClassVar[int]
    matched: int
    changed: int
    next_page_token: str
    holds: _containers.RepeatedCompositeFieldContainer[_hold_pb2.Hold]
    replaced: _containers.RepeatedCompositeFieldContainer[_hold_pb2.Hold]
    unknown: _containers.RepeatedCompositeFieldContainer[_hold_pb2.HoldTarget]
    ended_leases: int
    def __init__(self, matched: _Optional[int] = ..., changed: _Optional[int] = ..., next_page_token: _Optional[str] = ..., holds: _Optional[_Iterable[_Union[_hold_pb2.Hold, _Mapping]]] = ..., replaced: _Optional[_Iterable[_Union[_hold_pb2.Hold, _Mapping]]] = ..., unknown: _Optional[_Iterable[_Union[_hold_pb2.HoldTarget, _Mapping]]] = ..., ended_leases: _Optional[int] = ...) -> None: ...

class LiftHoldsRequest(_message.Message):
    __slots__ = ("targets", "filter", "name", "by", "reason", "validate_only", "page_token")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[_hold_pb2.HoldTarget]
    filter: _filter_pb2.Filter
    name: str
    by: str
    reason: str
    validate_only: bool
    page_token: str
    def __init__(self, targets: _Optional[_Iterable[_Union[_hold_pb2.HoldTarget, _Mapping]]] = ..., filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., name: _Optional[str] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., validate_only: bool = ..., page_token: _Optional[str] = ...) -> None: ...

class LiftHoldsResponse(_message.Message):
    __slots__ = ("matched", "changed", "next_page_token", "lifted", "remaining")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LIFTED_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    matched: int
    changed: int
    next_page_token: str
    lifted: _containers.RepeatedCompositeFieldContainer[_hold_pb2.Hold]
    remaining: _containers.RepeatedCompositeFieldContainer[_hold_pb2.Hold]
    def __init__(self, matched: _Optional[int] = ..., changed: _Optional[int] = ..., next_page_token: _Optional[str] = ..., lifted: _Optional[_Iterable[_Union[_hold_pb2.Hold, _Mapping]]] = ..., remaining: _Optional[_Iterable[_Union[_hold_pb2.Hold, _Mapping]]] = ...) -> None: ...

class ListHoldsRequest(_message.Message):
    __slots__ = ("filter", "blocks", "page_size", "page_token")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    filter: _filter_pb2.Filter
    blocks: bool
    page_size: int
    page_token: str
    def __init__(self, filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., blocks: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListHoldsResponse(_message.Message):
    __slots__ = ("holds", "next_page_token")
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    holds: _containers.RepeatedCompositeFieldContainer[_hold_pb2.Hold]
    next_page_token: str
    def __init__(self, holds: _Optional[_Iterable[_Union[_hold_pb2.Hold, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
