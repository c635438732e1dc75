import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { DurationSchema, durationMs } from "@bufbuild/protobuf/wkt";
import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";

import type { WorkError } from "./gen/waggle/v1/dispatch_service_pb.js";
import { ErrorReason } from "./gen/waggle/v1/error_reason_pb.js";

/**
 * Why a handler must stop; it is the `reason` of its signal.
 *
 * | code | the handler's result |
 * |---|---|
 * | `LEASE_LOST` | is dropped: somebody else may have the task. Write nothing more |
 * | `NOT_RENEWED` | is dropped, and the task is given back: no dispatcher renewed the lease in time |
 * | `TASK_CANCELED`, `SOURCE_DELETED`, `CANCELED` | is reported; the task ends CANCELED |
 * | `HELD` | is reported if it succeeded, else the task is given back |
 * | `STOPPING` | is reported if it succeeded, else the task is given back: the collector stops |
 */
export class Interrupted extends Error {
  override readonly name = "Interrupted";

  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** The fields of a message with strings and messages only, by number: google.rpc.ErrorInfo and RetryInfo are such. */
function fields(bytes: Uint8Array): Map<number, Uint8Array> {
  const found = new Map<number, Uint8Array>();
  for (const reader = new BinaryReader(bytes); reader.pos < reader.len; ) {
    const [number, type] = reader.tag();
    if (type === 2) found.set(number, reader.bytes());
    else reader.skip(type, number);
  }
  return found;
}

function detail(error: unknown, type: string): Map<number, Uint8Array> {
  if (error instanceof ConnectError) {
    for (const one of error.details) {
      if ("type" in one && one.type === type) return fields(one.value);
    }
  }
  return new Map();
}

/** The reason of a call that a dispatcher refused, such as `SOURCE_EXISTS`; "" if the error has none of Waggle's. */
export function errorReason(error: unknown): string {
  const info = detail(error, "google.rpc.ErrorInfo");
  const text = (number: number) => new TextDecoder().decode(info.get(number));
  return text(2) === "waggle" ? text(1) : "";
}

/** How long the dispatcher asks to wait before the call is repeated, in milliseconds, at most a minute; 0: it does not ask. */
export function retryDelay(error: unknown): number {
  const delay = detail(error, "google.rpc.RetryInfo").get(1);
  return delay ? Math.min(Math.max(durationMs(fromBinary(DurationSchema, delay)), 0), 60_000) : 0;
}

/** The error of a request on a stream, as a plain call has it. */
export function errorOf({ code, message, reason, retryAfter }: WorkError): ConnectError {
  const error = new ConnectError(message, code);
  const add = (type: string, fields: BinaryWriter) => error.details.push({ type, value: fields.finish() });
  const name = ErrorReason[reason];
  if (reason !== ErrorReason.UNSPECIFIED && name !== undefined) {
    add("google.rpc.ErrorInfo", new BinaryWriter().tag(1, 2).string(name).tag(2, 2).string("waggle"));
  }
  if (retryAfter) add("google.rpc.RetryInfo", new BinaryWriter().tag(1, 2).bytes(toBinary(DurationSchema, retryAfter)));
  return error;
}

export const codeOf = (error: unknown): Code => (error instanceof ConnectError ? error.code : Code.Unknown);

/** Whether the dispatcher does not serve. A killed one is Canceled over HTTP/2, and Aborted over HTTP/1.1. */
export function isAway(error: unknown): boolean {
  const reason = errorReason(error);
  switch (codeOf(error)) {
    case Code.Unavailable:
    case Code.DeadlineExceeded:
      return true;
    case Code.Canceled:
    case Code.Aborted:
    case Code.Internal:
    case Code.Unknown:
      return reason === "";
    default:
      return false;
  }
}

/** Whether the collector is over: what it holds is gone, or no call of it is served. */
export function endsAll(error: unknown): boolean {
  const reason = errorReason(error);
  return reason === "COLLECTOR_REPLACED" || reason === "CLIENT_TOO_OLD";
}

/** Whether a repeated call would be refused again. A proxy that denies is none: its error has no reason. */
export function isRefused(error: unknown): boolean {
  const code = codeOf(error);
  return code === Code.InvalidArgument || (code === Code.PermissionDenied && errorReason(error) !== "");
}
