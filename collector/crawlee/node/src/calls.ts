import { errorReason } from "@waggle/collector";

/** Reasons of refusals that a repetition does not change. The manual of the protocol has all reasons. */
const refusals = new Set([
  "INVALID_FIELD", "SOURCE_NOT_FOUND", "UNAUTHENTICATED", "PERMISSION_DENIED", "COLLECTOR_BOUND", "COLLECTOR_REPLACED", "CLIENT_TOO_OLD",
]);

/** Whether a repeated call would be refused again. */
export const isRefusal = (error: unknown): boolean => refusals.has(errorReason(error));

const resourceExhausted = 8; // of gRPC's codes

/** Whether a message is too large for a dispatcher. gRPC refuses it, without a reason of Waggle's. */
export function isTooLarge(error: unknown): boolean {
  return errorReason(error) === "" && (error as { code?: unknown } | null)?.code === resourceExhausted;
}

/** Waits for some milliseconds, or until the signal aborts. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}

/** How long to wait after each of several failures in a row: from 100 ms, twice as long each time, to 5 s. */
export class Backoff {
  #failures = 0;

  next(): number {
    return Math.min(100 * 2 ** Math.min(this.#failures++, 6), 5000) * (0.5 + Math.random() / 2);
  }
}
