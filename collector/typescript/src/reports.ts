import { create } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";

import { codeOf, endsAll, errorReason, retryDelay } from "./errors.js";
import {
  LostReason, ReportCode, TaskReportSchema, type ReportResult, type TaskReport,
} from "./gen/waggle/v1/dispatch_service_pb.js";
import { FailureReason, type Outcome } from "./gen/waggle/v1/task_pb.js";
import type { Lease } from "./lease.js";
import { failed, released, text } from "./outcome.js";
import type { Run } from "./run.js";
import { Backoff, now, sleep, Wake } from "./wait.js";

const maxReports = 1000; // of a call
const maxBytes = 2 << 20; // of a call
const sizeBesideItems = 6 << 10; // at most, of a report: memo, message, ids
const smallReports = 64 << 10; // bytes that nobody refuses as too many

/** How long a store may keep a lease past its deadline, after an outage, so that collectors can renew it. */
const storeGrace = 30_000;

export const callTimeout = 10_000;

/** The outcome of one lease, kept until a dispatcher has answered it. */
export interface Report {
  readonly lease: Lease;
  readonly message: TaskReport;
  bytes: number;
  /** When it is dropped; Infinity: it is repeated until it is answered. */
  readonly until: number;
  /** No fetch carries it. */
  direct: boolean;
  /** It may have counted: if its lease is lost, that may be why. */
  sent: boolean;
  /** It was refused, and is sent as a failure since. */
  refused: boolean;
  notBefore: number;
  readonly backoff: Backoff;
}

/** The reports that no dispatcher has answered. A fetch that goes out soon carries them; else a loop sends them, many in one call. */
export class Reports {
  readonly wake = new Wake();
  #waiting: Report[] = [];
  #taken = 0;
  #emptied: (() => void) | undefined;

  constructor(private readonly run: Run) {}

  add(lease: Lease, outcome: Outcome, itemBytes: number): void {
    this.#add(lease, outcome, sizeBesideItems + itemBytes, Infinity);
  }

  /**
   * Gives a lease back that lapsed, once its handler has returned: after an outage the store would keep it until the grace is over,
   * and count an expiration. If somebody else has the task, the report is refused.
   */
  giveBack(lease: Lease): void {
    this.#add(lease, released(), sizeBesideItems, now() + storeGrace);
  }

  #add(lease: Lease, outcome: Outcome, bytes: number, until: number): void {
    const message = create(TaskReportSchema, { taskId: lease.task.id, leaseToken: lease.token, outcome });
    this.#waiting.push({
      lease, message, bytes, until, direct: until !== Infinity, sent: false, refused: false, notBefore: 0, backoff: new Backoff(),
    });
    this.changed();
  }

  /** Wakes the loop if it has something to send. */
  changed(): void {
    if (this.#waiting.length > 0 && (!this.run.fetcher.carries || this.#waiting.some((one) => one.direct))) this.wake.set();
  }

  /** Takes the reports that fit one call, the oldest first, for a fetch or for the loop. */
  take(byFetch: boolean): Report[] {
    if (this.#waiting.length === 0) return [];
    const at = now();
    const batch: Report[] = [];
    const rest: Report[] = [];
    let bytes = 0;
    for (const one of this.#waiting) {
      if (at > one.until || (one.lease.lost && !one.sent)) {
        this.run.forget(one.lease); // nobody wants it
        continue;
      }
      const mine = byFetch ? !one.direct : one.direct || !this.run.fetcher.carries;
      const fits = batch.length < maxReports && (batch.length === 0 || bytes + one.bytes <= maxBytes);
      if (mine && fits && one.notBefore <= at) {
        batch.push(one);
        bytes += one.bytes;
      } else {
        rest.push(one);
      }
    }
    this.#waiting = rest;
    this.#taken += batch.length;
    for (const one of batch) one.sent = true;
    this.#checkEmpty();
    return batch;
  }

  putBack(reports: Report[]): void {
    this.#taken -= reports.length;
    this.#waiting = reports.concat(this.#waiting);
    this.changed();
  }

  /** Puts reports back for the loop, after some milliseconds. */
  sendDirectly(reports: Report[], wait = 0): void {
    for (const one of reports) {
      one.direct = true;
      one.notBefore = now() + wait;
    }
    this.putBack(reports);
    this.wake.set();
  }

  /** Resolves when no report is left but those of leases that lapsed: no stop waits for those. */
  empty(): Promise<void> {
    return new Promise((resolve) => {
      this.#emptied = resolve;
      this.#checkEmpty();
    });
  }

  #checkEmpty(): void {
    if (this.#taken === 0 && this.#waiting.every((one) => one.until !== Infinity)) this.#emptied?.();
  }

  /** Sends what no fetch carries, one call at a time. */
  async loop(): Promise<void> {
    const { signal } = this.run.calling;
    const backoff = new Backoff();
    while (!signal.aborted) {
      const batch = this.take(false);
      if (batch.length === 0) {
        await this.wake.wait(Math.min(...this.#waiting.map((one) => one.notBefore > 0 ? Math.max(one.notBefore - now(), 10) : Infinity)));
        continue;
      }
      try {
        await this.#send(batch);
        backoff.reset();
      } catch (error) {
        if (endsAll(error)) {
          this.putBack(batch);
          this.run.end(error);
          return;
        }
        if (refuses(error, batch)) {
          await this.#findRefused(batch, error);
          continue;
        }
        this.putBack(batch);
        this.run.failed("ReportTask", error);
        await sleep(backoff.next(retryDelay(error), longestWait(batch)), signal);
      }
    }
  }

  async #send(batch: Report[]): Promise<void> {
    const { run } = this;
    const options = { signal: run.calling.signal, timeoutMs: callTimeout };
    const request = { collectorId: run.config.id, session: run.session, reports: batch.map((one) => one.message) };
    const response = await run.call("report", request, options, ({ client }) => client.reportTask(request, options));
    run.answered("ReportTask");
    this.settle(batch, response.results);
  }

  /**
   * Sends the reports of a refused call one by one, so that a bad one delays no other. One that is refused alone is sent as a
   * failure; if that is refused too, it is dropped.
   */
  async #findRefused(batch: Report[], error: unknown): Promise<void> {
    for (const [i, one] of batch.entries()) {
      let refused = error;
      if (batch.length > 1) {
        try {
          await this.#send([one]);
          continue;
        } catch (again) {
          refused = again;
        }
      }
      if (!refuses(refused, [one])) {
        this.sendDirectly(batch.slice(i), 100);
        return;
      }
      if (one.refused) {
        this.run.log(`report of ${one.lease.task.id} dropped, refused twice: ${text(refused)}`);
        this.#done(one);
        continue;
      }
      this.run.log(`report of ${one.lease.task.id} refused, will be sent as a failure: ${text(refused)}`);
      one.refused = true;
      one.bytes = sizeBesideItems;
      one.message.outcome = failed({ reason: FailureReason.HANDLER, message: `report refused: ${text(refused)}`.slice(0, 300) });
      this.sendDirectly([one]);
    }
  }

  /** Takes the results of reports that were sent. */
  settle(reports: Report[], results: ReportResult[]): void {
    if (results.length !== reports.length) {
      this.run.log(`${results.length} results for ${reports.length} reports`);
      this.sendDirectly(reports, 1000);
      return;
    }
    for (const [i, one] of reports.entries()) {
      const result = results[i]!;
      switch (result.code) {
        case ReportCode.STORE_FULL:
        case ReportCode.STORE_UNAVAILABLE: {
          one.sent = false; // as far as anybody knows
          const asked = result.retryAfter ? Math.min(durationMs(result.retryAfter), 60_000) : 0;
          this.sendDirectly([one], Math.max(one.backoff.next(0, longestWait([one])), asked));
          break;
        }
        case ReportCode.LEASE_LOST:
        case ReportCode.NOT_FOUND:
          this.run.log(`report of ${one.lease.task.id} came too late: ${ReportCode[result.code]} ${LostReason[result.lostReason] ?? ""}`);
          this.#done(one);
          break;
        default: // OK, ALREADY_REPORTED
          this.#done(one);
      }
    }
  }

  #done(one: Report): void {
    this.#taken--;
    this.run.forget(one.lease);
    this.#checkEmpty();
  }
}

/** Whether an error is about the content or the size of the reports, and so comes each time. */
export function refuses(error: unknown, reports: Report[]): boolean {
  if (codeOf(error) === Code.InvalidArgument) return true;
  const bytes = reports.reduce((sum, one) => sum + one.bytes, 0);
  return codeOf(error) === Code.ResourceExhausted && errorReason(error) === "" && retryDelay(error) === 0 && bytes > smallReports;
}

/** The longest wait before reports are sent again. That of a lease that lapsed is to arrive soon after the outage. */
function longestWait(reports: Report[]): number {
  return Math.min(5000, ...reports.filter((one) => one.until !== Infinity).map((one) => Math.max(one.lease.duration / 3, 100)));
}
