import { randomUUID } from "node:crypto";
import { hostname } from "node:os";

import { create, isMessage } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";

import type { Settings } from "./config.js";
import { Dispatchers, type Dispatcher } from "./connection.js";
import { codeOf, endsAll, retryDelay } from "./errors.js";
import { Fetcher } from "./fetcher.js";
import { CollectorInfoSchema, type CollectorInfo } from "./gen/waggle/v1/collector_pb.js";
import { LostReason, type FetchTaskResponse } from "./gen/waggle/v1/dispatch_service_pb.js";
import { FailureReason, OutcomeSchema, type DiscoveredItem, type Outcome, type Task } from "./gen/waggle/v1/task_pb.js";
import { Heartbeat } from "./heartbeat.js";
import { Lease, stuckAfter } from "./lease.js";
import { failed, released, shorten, takeBatches, text, thrown } from "./outcome.js";
import { callTimeout, Reports } from "./reports.js";
import type { Answers, CallOptions, Request } from "./stream.js";
import { Backoff, sleep } from "./wait.js";

const flushTimeout = 10_000; // for the last reports
const goodbyeTimeout = 1000;

/** What a handler knows of its lease. */
export interface Context {
  /** Aborts when the work must end. Its `reason` is an `Interrupted`. Give it to everything that waits. */
  readonly signal: AbortSignal;
  /** Store each result under task id and cycle, with this number, and reject a write with a lower one than the stored one. */
  readonly fence: bigint;
  /** Milliseconds until the work must have ended, unless the lease is renewed; 0: stop now. Ask before each step with an effect. */
  left(): number;
  /** Saves how far the work is, at most 64 KiB: the next attempt gets it as `task.cursor` if this one does not succeed. */
  setCursor(cursor: Uint8Array): void;
  /** How far the work is, 0 to 1, for operators. */
  setProgress(progress: number): void;
}

/** Works on one task. What it throws fails the task with reason HANDLER. It must not block the event loop. */
export type Handler = (task: Task, context: Context) => Outcome | Promise<Outcome>;

/**
 * One collector from its start to its end. Three loops fetch, beat and report; each handler runs beside them. `fetching` ends first,
 * then the handlers, then `calling`, when everything is reported.
 */
export class Run {
  readonly session = randomUUID();
  readonly dispatchers: Dispatchers;
  readonly reports = new Reports(this);
  readonly heartbeat: Heartbeat;
  readonly fetcher: Fetcher;
  readonly fetching = new AbortController();
  readonly calling = new AbortController();

  /** By lease token, until the report is answered. */
  readonly leases = new Map<string, Lease>();
  /** Handlers that have not returned. */
  working = 0;
  /** A hold stops this collector. */
  held = false;
  /** A dispatcher has answered a call. */
  hasAnswer = false;
  /** Why the collector ended, if that was not by plan. */
  error: unknown;

  readonly #troubled = new Set<string>(); // calls that fail
  #idle: (() => void) | undefined;

  constructor(
    readonly config: Settings,
    private readonly handler: Handler,
  ) {
    this.dispatchers = new Dispatchers(config);
    this.heartbeat = new Heartbeat(this);
    this.fetcher = new Fetcher(this);
  }

  /** Runs until the signal aborts and the work has ended, or the collector cannot go on. */
  async run(stop: AbortSignal | undefined): Promise<void> {
    const onStop = () => this.#stopFetching();
    stop?.addEventListener("abort", onStop);
    if (stop?.aborted) onStop();
    const beats = this.heartbeat.loop();
    const reports = this.reports.loop();
    try {
      await this.fetcher.loop();
      await this.#drain();
    } finally {
      stop?.removeEventListener("abort", onStop);
      this.calling.abort();
      this.reports.wake.set();
      this.heartbeat.beatNow();
      await Promise.all([beats, reports]);
      if (!endsAll(this.error)) await this.#goodbye();
      for (const lease of this.leases.values()) lease.finish();
      this.dispatchers.close();
    }
    if (this.error !== undefined) throw this.error;
  }

  /** Ends the collector by an error; the first one counts. */
  end(error: unknown): void {
    this.error ??= error;
    if (endsAll(error)) {
      for (const lease of this.leases.values()) lease.lose(LostReason.COLLECTOR_REPLACED);
    }
    this.#stopFetching();
  }

  #stopFetching(): void {
    if (this.fetching.signal.aborted) return;
    this.fetching.abort();
    this.fetcher.wake.set();
    this.heartbeat.beatNow(); // it says that the collector stops
  }

  /** Waits for handlers and their reports, each for its time. */
  async #drain(): Promise<void> {
    const over = new AbortController();
    const idle = new Promise<void>((resolve) => (this.#idle = resolve)).then(() => over.abort());
    if (this.working === 0) this.#idle?.();
    await sleep(this.config.drainMs, over.signal);
    for (const lease of this.leases.values()) lease.interrupt("STOPPING", "the collector stops");
    if (this.working > 0) await sleep(stuckAfter, over.signal);
    const stuck = this.working;
    if (stuck === 0) await idle;
    if (endsAll(this.error)) return;
    const flushed = new AbortController();
    void this.reports.empty().then(() => flushed.abort());
    await sleep(flushTimeout, flushed.signal);
    if (stuck > 0) this.error ??= new Error(`${stuck} handlers did not return ${stuckAfter} ms after their signals aborted; their leases run out`);
    else if (!flushed.signal.aborted) this.error ??= new Error(`reports were not answered in ${flushTimeout} ms; their leases run out`);
  }

  /** Makes a call over the stream. If there is none, or it ends first, `plain` makes it. */
  async call<K extends keyof Answers>(
    kind: K, request: Request<K>, options: CallOptions, plain: (dispatcher: Dispatcher) => Promise<Answers[K]>,
  ): Promise<Answers[K]> {
    return (await this.heartbeat.stream?.call(kind, request, options)) ?? this.dispatchers.call(options.signal, plain);
  }

  async #goodbye(): Promise<void> {
    const collector = { ...this.info(), stopping: true, ended: true };
    await this.dispatchers.pick().client.renewLease({ collector }, { timeoutMs: goodbyeTimeout }).catch(() => undefined);
  }

  /** Begins work on what was granted. Once fetching has ended it gives everything back instead. */
  start(answer: FetchTaskResponse, sent: number): void {
    const begin = sent + (answer.waited ? Math.max(durationMs(answer.waited), 0) : 0);
    for (const { task, lease: granted } of answer.leasedTasks) {
      if (!task || !granted || this.leases.has(granted.leaseToken)) continue; // a repeated call returned it again
      for (const other of this.leases.values()) {
        if (other.task.id === task.id) other.lose(LostReason.TAKEN); // who has it now is this one
      }
      const duration = granted.duration ? durationMs(granted.duration) : 0;
      const lease: Lease = new Lease(task, granted.leaseToken, granted.fence, begin, duration, () => {
        this.log(`the handler of ${task.id} goes on ${stuckAfter} ms after its signal aborted; its slot takes no other task`);
        this.heartbeat.beatNow();
      });
      this.leases.set(lease.token, lease);
      if (this.fetching.signal.aborted || lease.left() === 0) {
        this.#conclude(lease, released());
        continue;
      }
      this.working++;
      this.heartbeat.granted(duration);
      void this.#work(lease);
    }
  }

  async #work(lease: Lease): Promise<void> {
    const { signal } = lease.controller;
    let outcome: Outcome;
    try {
      outcome = await this.handler(lease.task, {
        signal,
        fence: lease.fence,
        left: () => lease.left(),
        setCursor: (cursor) => lease.setCursor(cursor),
        setProgress: (progress) => lease.setProgress(progress),
      });
      if (!isMessage(outcome, OutcomeSchema) || outcome.result.case === undefined) {
        throw new TypeError("the handler returned no outcome: want succeeded(), failed() or released()");
      }
    } catch (error) {
      if (!signal.aborted) this.log(`the handler of ${lease.task.id} threw: ${text(error, true)}`);
      outcome = thrown(error);
    }
    // A failure that comes after the signal does not describe the task.
    if (signal.aborted && outcome.result.case === "failed") outcome = released();
    const submitted = this.#conclude(lease, outcome);
    if (submitted) await submitted;
    this.working--;
    this.fetcher.wake.set(); // after the report is queued, so that the next fetch carries it
    if (this.working === 0) this.#idle?.();
  }

  /** Queues the report of a handler that has returned. It returns a promise if calls must come before. */
  #conclude(lease: Lease, outcome: Outcome): Promise<void> | undefined {
    if (lease.stuck) this.heartbeat.beatNow();
    if (!lease.finish()) {
      if (lease.lost) {
        this.forget(lease);
        return undefined;
      }
      this.log(`lease of ${lease.task.id} not renewed in time; the task is given back`);
      this.reports.giveBack(lease);
      return undefined;
    }
    const [sent, { batches, bytes }] = this.#sendable(lease, outcome);
    outcome = sent;
    if (batches.length === 0 && (outcome.result.case === "succeeded" || !lease.hasNews)) {
      this.reports.add(lease, outcome, bytes);
      return undefined;
    }
    return this.#concludeSlowly(lease, outcome, batches, bytes);
  }

  /** The outcome as it can be sent: a value of a wrong type, or one too large, fails the task. */
  #sendable(lease: Lease, outcome: Outcome): [Outcome, ReturnType<typeof takeBatches>] {
    try {
      shorten(outcome);
      return [outcome, takeBatches(outcome)];
    } catch (error) {
      const message = `the outcome cannot be sent: ${text(error)}`;
      this.log(`${lease.task.id}: ${message}`);
      const instead = failed({ reason: FailureReason.HANDLER, message });
      shorten(instead);
      return [instead, takeBatches(instead)];
    }
  }

  /** Submits items that the report cannot carry, and the last cursor of work that did not succeed. Beats go on meanwhile. */
  async #concludeSlowly(lease: Lease, outcome: Outcome, batches: DiscoveredItem[][], bytes: number): Promise<void> {
    const { signal } = this.calling;
    for (const items of batches) {
      const request = { taskId: lease.task.id, leaseToken: lease.token, items };
      const backoff = new Backoff();
      for (;;) {
        try {
          const options = { signal, timeoutMs: callTimeout };
          await this.call("discovered", request, options, ({ client }) => client.submitDiscovered(request, options));
          this.answered("SubmitDiscovered");
          break;
        } catch (error) {
          const code = codeOf(error);
          if (lease.lost || signal.aborted || code === Code.FailedPrecondition || code === Code.NotFound) {
            this.forget(lease); // it is lost
            return;
          }
          if (code === Code.InvalidArgument || code === Code.PermissionDenied || code === Code.Unimplemented) {
            this.log(`discovered items of ${lease.task.id} refused: ${(error as Error).message}`);
            outcome = failed({ reason: FailureReason.HANDLER, message: `discovered items refused: ${(error as Error).message}` });
            shorten(outcome);
            this.reports.add(lease, outcome, 0);
            return;
          }
          this.failed("SubmitDiscovered", error);
          await sleep(backoff.next(retryDelay(error)), signal);
        }
      }
    }
    if (outcome.result.case !== "succeeded" && lease.hasNews) {
      const [beat] = lease.beat();
      const request = { collector: this.info(), leases: [beat] };
      // Once: the next attempt can do without.
      await this.dispatchers.call(signal, ({ client }) => client.renewLease(request, { signal, timeoutMs: callTimeout })).catch(() => undefined);
    }
    this.reports.add(lease, outcome, bytes);
  }

  /** Drops a lease that is over. */
  forget(lease: Lease): void {
    this.leases.delete(lease.token);
    this.fetcher.wake.set();
  }

  setHeld(held: boolean): void {
    if (this.held === held) return;
    this.held = held;
    this.log(held ? "a hold stops this collector; it fetches no tasks" : "no hold stops this collector any more");
    this.fetcher.wake.set();
  }

  /** Notes that a call failed and is repeated. It is logged once until the call succeeds. */
  failed(call: string, error: unknown): void {
    if (this.#troubled.has(call)) return;
    this.#troubled.add(call);
    this.log(`${call} fails and is repeated: ${error instanceof Error ? error.message : String(error)}`);
  }

  answered(call: string): void {
    this.hasAnswer = true;
    if (this.#troubled.delete(call)) this.log(`${call} succeeds again`);
  }

  log(message: string): void {
    this.config.log(message);
  }

  /** What a beat says of this collector. */
  info(): CollectorInfo {
    const { id, version, labels, pools, sources, queues, slots } = this.config;
    let stuckSlots = 0;
    for (const lease of this.leases.values()) if (lease.stuck) stuckSlots++;
    return create(CollectorInfoSchema, {
      id, session: this.session, version, hostname: hostname(), labels, pools, sources, queues, slots, stuckSlots,
      stopping: this.fetching.signal.aborted,
    });
  }
}
