from google.protobuf import field_mask_pb2 as _field_mask_pb2
from waggle_collector.v1 import error_reason_pb2 as _error_reason_pb2
from waggle_collector.v1 import filter_pb2 as _filter_pb2
from waggle_collector.v1 import source_pb2 as _source_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ApplyCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APPLY_CODE_UNSPECIFIED: _ClassVar[ApplyCode]
    APPLY_CODE_CREATED: _ClassVar[ApplyCode]
    APPLY_CODE_UPDATED: _ClassVar[ApplyCode]
    APPLY_CODE_UNCHANGED: _ClassVar[ApplyCode]
    APPLY_CODE_INVALID: _ClassVar[ApplyCode]
APPLY_CODE_UNSPECIFIED: ApplyCode
APPLY_CODE_CREATED: ApplyCode
APPLY_CODE_UPDATED: ApplyCode
APPLY_CODE_UNCHANGED: ApplyCode
APPLY_CODE_INVALID: ApplyCode

class CreateSourceRequest(_message.Message):
    __slots__ = ("spec", "by", "reason")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    spec: _source_pb2.SourceSpec
    by: str
    reason: str
    def __init__(self, spec: _Optional[_Union[_source_pb2.SourceSpec, _Mapping]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CreateSourceResponse(_message.Message):
    __slots__ = ("source", "warnings")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    source: _source_pb2.Source
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, source: _Optional[_Union[_source_pb2.Source, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class GetSourceRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetSourceResponse(_message.Message):
    __slots__ = ("source",)
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    source: _source_pb2.Source
    def __init__(self, source: _Optional[_Union[_source_pb2.Source, _Mapping]] = ...) -> None: ...

class GetSourceHistoryRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetSourceHistoryResponse(_message.Message):
    __slots__ = ("source", "cycles", "days")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CYCLES_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    source: _source_pb2.Source
    cycles: _containers.RepeatedCompositeFieldContainer[_source_pb2.SourceCycle]
    days: _containers.RepeatedCompositeFieldContainer[_source_pb2.SourceDay]
    def __init__(self, source: _Optional[_Union[_source_pb2.Source, _Mapping]] = ..., cycles: _Optional[_Iterable[_Union[_source_pb2.SourceCycle, _Mapping]]] = ..., days: _Optional[_Iterable[_Union[_source_pb2.SourceDay, _Mapping]]] = ...) -> None: ...

class ListSourcesRequest(_message.Message):
    __slots__ = ("filter", "health", "page_size", "page_token", "whole_specs", "gates")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WHOLE_SPECS_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    filter: _filter_pb2.Filter
    health: _containers.RepeatedScalarFieldContainer[_source_pb2.SourceHealth]
    page_size: int
    page_token: str
    whole_specs: bool
    gates: bool
    def __init__(self, filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., health: _Optional[_Iterable[_Union[_source_pb2.SourceHealth, str]]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., whole_specs: bool = ..., gates: bool = ...) -> None: ...

class ListSourcesResponse(_message.Message):
    __slots__ = ("sources", "next_page_token")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[_source_pb2.Source]
    next_page_token: str
    def __init__(self, sources: _Optional[_Iterable[_Union[_source_pb2.Source, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateSourceRequest(_message.Message):
    __slots__ = ("spec", "update_mask", "etag", "by", "reason", "validate_only")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    spec: _source_pb2.SourceSpec
    update_mask: _field_mask_pb2.FieldMask
    etag: str
    by: str
    reason: str
    validate_only: bool
    def __init__(self, spec: _Optional[_Union[_source_pb2.SourceSpec, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., etag: _Optional[str] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., validate_only: bool = ...) -> None: ...

class UpdateSourceResponse(_message.Message):
    __slots__ = ("source", "warnings", "changed")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    source: _source_pb2.Source
    warnings: _containers.RepeatedScalarFieldContainer[str]
    changed: bool
    def __init__(self, source: _Optional[_Union[_source_pb2.Source, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., changed: bool = ...) -> None: ...

class ApplySourcesRequest(_message.Message):
    __slots__ = ("specs", "validate_only", "by", "reason", "keep_absent")
    SPECS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    KEEP_ABSENT_FIELD_NUMBER: _ClassVar[int]
    specs: _containers.RepeatedCompositeFieldContainer[_source_pb2.SourceSpec]
    validate_only: bool
    by: str
    reason: str
    keep_absent: bool
    def __init__(self, specs: _Optional[_Iterable[_Union[_source_pb2.SourceSpec, _Mapping]]] = ..., validate_only: bool = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., keep_absent: bool = ...) -> None: ...

class ApplySourcesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ApplyResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ApplyResult, _Mapping]]] = ...) -> None: ...

class ApplyResult(_message.Message):
    __slots__ = ("code", "source_id", "error_reason", "message", "changed_fields", "lost_fields", "warnings")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELDS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELDS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    code: ApplyCode
    source_id: str
    error_reason: _error_reason_pb2.ErrorReason
    message: str
    changed_fields: _containers.RepeatedScalarFieldContainer[str]
    lost_fields: _containers.RepeatedScalarFieldContainer[str]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, code: _Optional[_Union[ApplyCode, str]] = ..., source_id: _Optional[str] = ..., error_reason: _Optional[_Union[_error_reason_pb2.ErrorReason, str]] = ..., message: _Optional[str] = ..., changed_fields: _Optional[_Iterable[str]] = ..., lost_fields: _Optional[_Iterable[str]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteSourcesRequest(_message.Message):
    __slots__ = ("ids", "filter", "validate_only", "page_token", "by", "reason")
    IDS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    filter: _filter_pb2.Filter
    validate_only: bool
    page_token: str
    by: str
    reason: str
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., validate_only: bool = ..., page_token: _Optional[str] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DeleteSourcesResponse(_message.Message):
    __slots__ = ("matched", "changed", "next_page_token", "missing_ids", "sample_ids")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MISSING_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_IDS_FIELD_NUMBER: _ClassVar[int]
    matched: int
    changed: int
    next_page_token: str
    missing_ids: _containers.RepeatedScalarFieldContainer[str]
    sample_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, matched: _Optional[int] = ..., changed: _Optional[int] = ..., next_page_token: _Optional[str] = ..., missing_ids: _Optional[_Iterable[str]] = ..., sample_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class TriggerSourcesRequest(_message.Message):
    __slots__ = ("ids", "filter", "validate_only", "page_token", "revisit", "by", "reason")
    IDS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVISIT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    filter: _filter_pb2.Filter
    validate_only: bool
    page_token: str
    revisit: bool
    by: str
    reason: str
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., filter: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., validate_only: bool = ..., page_token: _Optional[str] = ..., revisit: bool = ..., by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class TriggerSourcesResponse(_message.Message):
    __slots__ = ("matched", "changed", "next_page_token", "missing_ids", "canceled_seeds", "sample_ids")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MISSING_IDS_FIELD_NUMBER: _ClassVar[int]
    CANCELED_SEEDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_IDS_FIELD_NUMBER: _ClassVar[int]
    matched: int
    changed: int
    next_page_token: str
    missing_ids: _containers.RepeatedScalarFieldContainer[str]
    canceled_seeds: int
    sample_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, matched: _Optional[int] = ..., changed: _Optional[int] = ..., next_page_token: _Optional[str] = ..., missing_ids: _Optional[_Iterable[str]] = ..., canceled_seeds: _Optional[int] = ..., sample_ids: _Optional[_Iterable[str]] = ...) -> None: ...
