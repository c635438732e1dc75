import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Rates(_message.Message):
    __slots__ = ("settled_last_minute", "settled_last_hour", "failed_last_minute", "failed_last_hour", "remaining_duration")
    SETTLED_LAST_MINUTE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_LAST_HOUR_FIELD_NUMBER: _ClassVar[int]
    FAILED_LAST_MINUTE_FIELD_NUMBER: _ClassVar[int]
    FAILED_LAST_HOUR_FIELD_NUMBER: _ClassVar[int]
    REMAINING_DURATION_FIELD_NUMBER: _ClassVar[int]
    settled_last_minute: int
    settled_last_hour: int
    failed_last_minute: int
    failed_last_hour: int
    remaining_duration: _duration_pb2.Duration
    def __init__(self, settled_last_minute: _Optional[int] = ..., settled_last_hour: _Optional[int] = ..., failed_last_minute: _Optional[int] = ..., failed_last_hour: _Optional[int] = ..., remaining_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
