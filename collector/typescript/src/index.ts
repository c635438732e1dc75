/** Collectors for Waggle, and clients of its six services. The README of the package has examples. */

import { checked, type CollectorConfig } from "./config.js";
import { Run, type Handler } from "./run.js";

/**
 * Fetches tasks and calls the handler with each, until `stop` aborts. Then it fetches no more, lets handlers finish for `drainMs`,
 * gives back what they leave, and resolves when everything is reported.
 *
 * It rejects with a RangeError for a bad configuration, and if it cannot go on: with the refusal of a dispatcher, whose
 * `errorReason` is `COLLECTOR_REPLACED`, `CLIENT_TOO_OLD`, `PERMISSION_DENIED` or another; or, after a stop, because a handler did
 * not return or a report was not answered in time.
 */
export async function collect(config: CollectorConfig, handler: Handler, stop?: AbortSignal): Promise<void> {
  await new Run(checked(config), handler).run(stop);
}

export type { CollectorConfig } from "./config.js";
export { connect, type ConnectionConfig } from "./connection.js";
export { errorReason, Interrupted } from "./errors.js";
export { durationFromMs, failed, released, succeeded } from "./outcome.js";
export type { Context, Handler } from "./run.js";

export * from "./gen/waggle/v1/admin_service_pb.js";
export * from "./gen/waggle/v1/collector_pb.js";
export * from "./gen/waggle/v1/dispatch_service_pb.js";
export * from "./gen/waggle/v1/error_reason_pb.js";
export * from "./gen/waggle/v1/filter_pb.js";
export * from "./gen/waggle/v1/gate_pb.js";
export * from "./gen/waggle/v1/hold_pb.js";
export * from "./gen/waggle/v1/hold_service_pb.js";
export * from "./gen/waggle/v1/queue_pb.js";
export * from "./gen/waggle/v1/queue_service_pb.js";
export * from "./gen/waggle/v1/source_pb.js";
export * from "./gen/waggle/v1/source_service_pb.js";
export * from "./gen/waggle/v1/task_pb.js";
export * from "./gen/waggle/v1/task_service_pb.js";

export { createClient } from "@connectrpc/connect";
export { durationMs } from "@bufbuild/protobuf/wkt";
