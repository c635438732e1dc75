import { create, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { DurationSchema, type Duration } from "@bufbuild/protobuf/wkt";

import {
  DiscoveredItemSchema, FailedSchema, FailureReason, OutcomeSchema, ReleasedSchema, SucceededSchema,
  type DiscoveredItem, type Outcome,
} from "./gen/waggle/v1/task_pb.js";

const maxItems = 1000; // of a report, and of a call of SubmitDiscovered
const maxItemBytes = 2 << 20; // leaves room within the 4 MiB that a dispatcher takes
const maxMessage = 1024; // bytes of a message for people

/** The work is done. `discovered` may have any number of items: the package submits what a report cannot carry. */
export function succeeded(init: MessageInitShape<typeof SucceededSchema> = {}): Outcome {
  return create(OutcomeSchema, { result: { case: "succeeded", value: create(SucceededSchema, init) } });
}

/** The work failed. The scope of `reason` decides what that costs. Report a site's Retry-After as `retryAfter`. */
export function failed(init: MessageInitShape<typeof FailedSchema>): Outcome {
  return create(OutcomeSchema, { result: { case: "failed", value: create(FailedSchema, init) } });
}

/** Gives the task back, at no cost: the work was not begun, or not finished. */
export function released(init: MessageInitShape<typeof ReleasedSchema> = {}): Outcome {
  return create(OutcomeSchema, { result: { case: "released", value: create(ReleasedSchema, init) } });
}

/** A duration of some milliseconds, to the nanosecond: that of protobuf-es takes no fractions, as clocks give them. */
export function durationFromMs(ms: number): Duration {
  const nanos = Math.round(ms * 1e6);
  return create(DurationSchema, { seconds: BigInt(Math.trunc(nanos / 1e9)), nanos: nanos % 1e9 });
}

/** The outcome of a handler that threw. What it threw may be anything. */
export function thrown(error: unknown): Outcome {
  return failed({ reason: FailureReason.HANDLER, message: text(error) });
}

/** What anything that was thrown says of itself. */
export function text(error: unknown, stack = false): string {
  try {
    if (!(error instanceof Error)) return String(error);
    return String((stack && error.stack) || error.message || error.name);
  } catch {
    return "what was thrown cannot be shown";
  }
}

/** Shortens the message of an outcome to what a report may carry. It is for people. */
export function shorten(outcome: Outcome): void {
  const { result } = outcome;
  if (result.case !== "succeeded" && result.case !== "failed") return;
  if (result.value.message.length * 3 <= maxMessage) return;
  const bytes = new TextEncoder().encode(result.value.message);
  result.value.message = new TextDecoder().decode(bytes.subarray(0, maxMessage), { stream: true });
}

/** The bytes of a part of an outcome. */
function checked(what: string, { length }: Uint8Array): number {
  if (length > maxItemBytes) throw new RangeError(`${what} has ${length} bytes: want at most ${maxItemBytes}`);
  return length;
}

/**
 * Takes from an outcome the items that its report cannot carry, as batches that each fit a call. `bytes` are those of what stays. It
 * throws if the outcome cannot be sent.
 */
export function takeBatches(outcome: Outcome): { batches: DiscoveredItem[][]; bytes: number } {
  if (outcome.result.case !== "succeeded" || outcome.result.value.discovered.length === 0) {
    return { batches: [], bytes: checked("the outcome", toBinary(OutcomeSchema, outcome)) };
  }
  const all = outcome.result.value.discovered;
  outcome.result.value.discovered = [];
  const rest = checked("the outcome", toBinary(OutcomeSchema, outcome));
  const batches: DiscoveredItem[][] = [];
  let batch: DiscoveredItem[] = [];
  let bytes = rest;
  for (const item of all) {
    const size = checked("a discovered item", toBinary(DiscoveredItemSchema, item));
    if (batch.length > 0 && (batch.length >= maxItems || bytes + size > maxItemBytes)) {
      batches.push(batch);
      [batch, bytes] = [[], rest];
    }
    batch.push(item);
    bytes += size;
  }
  outcome.result.value.discovered = batch;
  return { batches, bytes };
}
