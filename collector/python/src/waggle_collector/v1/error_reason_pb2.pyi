from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_FIELD: _ClassVar[ErrorReason]
    ERROR_REASON_PAGE_TOKEN_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_SOURCE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_SOURCE_EXISTS: _ClassVar[ErrorReason]
    ERROR_REASON_ETAG_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_TASK_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_QUEUE_RULE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_QUEUE_NOT_EMPTY: _ClassVar[ErrorReason]
    ERROR_REASON_HOLD_EXISTS: _ClassVar[ErrorReason]
    ERROR_REASON_LEASE_LOST: _ClassVar[ErrorReason]
    ERROR_REASON_COLLECTOR_REPLACED: _ClassVar[ErrorReason]
    ERROR_REASON_CLIENT_TOO_OLD: _ClassVar[ErrorReason]
    ERROR_REASON_STORE_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_STORE_FULL: _ClassVar[ErrorReason]
    ERROR_REASON_NO_STANDBY: _ClassVar[ErrorReason]
    ERROR_REASON_TOO_MANY_WAITERS: _ClassVar[ErrorReason]
    ERROR_REASON_RATE_LIMITED: _ClassVar[ErrorReason]
    ERROR_REASON_DISPATCHER_DRAINING: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_PERMISSION_DENIED: _ClassVar[ErrorReason]
    ERROR_REASON_COLLECTOR_BOUND: _ClassVar[ErrorReason]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_INVALID_FIELD: ErrorReason
ERROR_REASON_PAGE_TOKEN_INVALID: ErrorReason
ERROR_REASON_SOURCE_NOT_FOUND: ErrorReason
ERROR_REASON_SOURCE_EXISTS: ErrorReason
ERROR_REASON_ETAG_MISMATCH: ErrorReason
ERROR_REASON_TASK_NOT_FOUND: ErrorReason
ERROR_REASON_QUEUE_RULE_NOT_FOUND: ErrorReason
ERROR_REASON_QUEUE_NOT_EMPTY: ErrorReason
ERROR_REASON_HOLD_EXISTS: ErrorReason
ERROR_REASON_LEASE_LOST: ErrorReason
ERROR_REASON_COLLECTOR_REPLACED: ErrorReason
ERROR_REASON_CLIENT_TOO_OLD: ErrorReason
ERROR_REASON_STORE_UNAVAILABLE: ErrorReason
ERROR_REASON_STORE_FULL: ErrorReason
ERROR_REASON_NO_STANDBY: ErrorReason
ERROR_REASON_TOO_MANY_WAITERS: ErrorReason
ERROR_REASON_RATE_LIMITED: ErrorReason
ERROR_REASON_DISPATCHER_DRAINING: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_PERMISSION_DENIED: ErrorReason
ERROR_REASON_COLLECTOR_BOUND: ErrorReason
