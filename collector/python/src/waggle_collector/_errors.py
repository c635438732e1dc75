"""Errors: what a failed call says, and how long to wait before it is repeated."""

from __future__ import annotations

import random

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from waggle_collector import v1

FIRST_PAUSE = 0.1  # seconds before the first repetition
LONGEST_PAUSE = 5.0
LONGEST_ASKED = 60.0  # more is not waited, whatever a dispatcher asks for

# The dispatcher or its store is away, or stops: another one may answer. The call may have had its effect.
AWAY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}

# No repetition is answered differently. UNAUTHENTICATED is not among them: the file may get another token.
FINAL = {
    grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.ABORTED,
    grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.OUT_OF_RANGE,
}


class CallError(Exception):
    """A call that failed, or a collector that ended because its calls are refused.

    The protocol manual lists the reasons, as LEASE_LOST, COLLECTOR_REPLACED or CLIENT_TOO_OLD. `reason` is empty if the error is
    not one of Waggle, but of gRPC or the network. `metadata` has the values that the message names."""

    def __init__(self, code: grpc.StatusCode, message: str, reason: str = "", metadata: dict[str, str] | None = None,
                 retry_after: float = 0.0) -> None:
        super().__init__(f"{reason or code.name}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.metadata = metadata or {}
        self.retry_after = retry_after
        """The least pause in seconds that the dispatcher asks for before the call is repeated."""

    @property
    def repeatable(self) -> bool:
        """Whether the call may succeed when it is repeated unchanged. RESOURCE_EXHAUSTED without a reason and a pause is gRPC's: the
        message is too large."""
        if self.code == grpc.StatusCode.RESOURCE_EXHAUSTED:
            return bool(self.reason or self.retry_after)
        return self.code not in FINAL


def call_error(error: grpc.aio.AioRpcError) -> CallError:
    """The error of a call, with the details that came with it."""
    reason, metadata, pause = "", {}, 0.0
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for packed in status_pb2.Status.FromString(value).details:
            info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
            if packed.Unpack(info) and info.domain == "waggle":
                reason, metadata = info.reason, dict(info.metadata)
            elif packed.Unpack(retry):
                pause = seconds_asked(retry.retry_delay)
    return CallError(error.code(), error.details() or "", reason, metadata, pause)


CODES = {code.value[0]: code for code in grpc.StatusCode}


def work_error(error: v1.WorkError) -> CallError:
    """The error of a call over a stream, as the plain call would have it."""
    known = error.reason and error.reason in v1.ErrorReason.values()
    reason = v1.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_") if known else ""
    return CallError(CODES.get(error.code, grpc.StatusCode.UNKNOWN), error.message, reason, dict(error.metadata), seconds_asked(error.retry_after))


def seconds_asked(pause: Duration) -> float:
    """The pause in seconds that a dispatcher asks for."""
    return min(max(pause.ToNanoseconds() / 1e9, 0.0), LONGEST_ASKED)


class Backoff:
    """Pauses between repetitions: twice as long each time, at random between half and all of it."""

    def __init__(self) -> None:
        self.failures = 0

    def next(self, asked: float = 0.0, longest: float = LONGEST_PAUSE) -> float:
        """The pause after one more failure, in seconds; at least the one that was asked for."""
        pause = min(FIRST_PAUSE * (1 << min(self.failures, 10)), longest)
        self.failures += 1
        return max(pause * random.uniform(0.5, 1), asked * random.uniform(1, 1.1))
