// The client program of the collector kit for the TypeScript package: it reads one line of JSON that says how to connect, runs a
// collector whose handler does what the payload of each task says, and writes what happened to stdout.

import { createInterface } from "node:readline";

import {
  collect, durationFromMs, failed, FailureReason, released, succeeded,
} from "../../../../collector/typescript/dist/index.js";

const write = (event) => process.stdout.write(JSON.stringify(event) + "\n");

/** Waits, or throws when the signal aborts. */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

const links = (task, from, to) => Array.from({ length: to - from }, (_, i) => ({ url: `http://found.test/${task.id}/${from + i}` }));

async function handle(task, context) {
  const what = task.payload.length > 0 ? JSON.parse(new TextDecoder().decode(task.payload)) : {};
  write({ event: "started", task: task.id });
  context.signal.addEventListener("abort", () => write({ event: "canceled", task: task.id, reason: context.signal.reason.code }));
  try {
    if (what.progress) context.setProgress(what.progress);
    if (what.cursor) context.setCursor(Buffer.from(what.cursor));
    if (what.block) {
      for (const end = performance.now() + (what.work_ms ?? 0); performance.now() < end; );
    } else {
      await pause(what.work_ms ?? 0, what.stubborn ? undefined : context.signal);
    }
    if (what.raise) throw new Error(what.raise);
    switch (what.outcome ?? "succeeded") {
      case "released":
        return released({ delay: durationFromMs(what.delay_ms ?? 0) });
      case "failed":
        return failed({
          reason: FailureReason[what.reason] ?? FailureReason.OTHER, httpStatus: what.http_status ?? 0, permanent: what.permanent ?? false,
          ...(what.retry_after_ms ? { retryAfter: durationFromMs(what.retry_after_ms) } : {}),
        });
      default:
        return succeeded({
          httpStatus: what.http_status ?? 0, bytes: BigInt(what.bytes ?? 0), ...(what.memo ? { memo: Buffer.from(what.memo) } : {}),
          ...(what.memo_bytes ? { memo: Buffer.alloc(what.memo_bytes) } : {}),
          discovered: links(task, 0, (what.discover_first ?? 0) + (what.discovered ?? 0)),
        });
    }
  } finally {
    write({ event: "finished", task: task.id });
  }
}

const stop = new AbortController();
const input = createInterface({ input: process.stdin });
input.on("line", async (line) => {
  const config = JSON.parse(line);
  try {
    await collect({
      servers: config.servers, transport: config.transport, id: config.collector_id, labels: config.labels, pools: config.pools,
      slots: config.slots, waitMs: config.wait_ms, leaseMs: config.lease_ms || undefined, drainMs: config.drain_ms,
      tokenFile: config.token_file || undefined, tls: config.tls_ca ? { caFile: config.tls_ca } : undefined,
    }, handle, stop.signal);
  } catch (error) {
    write({ event: "error", message: error.message });
    process.exitCode = 1;
  }
  input.close();
});
input.on("close", () => stop.abort());
