import { randomUUID } from "node:crypto";

import { create } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";

import { codeOf, endsAll, isRefused, retryDelay } from "./errors.js";
import {
  EmptyReason, FetchTaskRequestSchema, type FetchTaskRequest, type FetchTaskResponse, type ReportResult,
} from "./gen/waggle/v1/dispatch_service_pb.js";
import type { Dispatcher } from "./connection.js";
import { durationFromMs } from "./outcome.js";
import { refuses, type Report } from "./reports.js";
import type { Run } from "./run.js";
import { Backoff, jitter, now, sleep, Wake } from "./wait.js";

const slack = 5000; // how much longer than its wait a fetch may take
const settleTimeout = 2000; // of the last call of a fetch that was interrupted
const emptyWait = 1000; // after an answer of nothing that came at once

interface Answer {
  readonly dispatcher: Dispatcher;
  readonly response: FetchTaskResponse;
  readonly sent: number;
  /** The dispatcher was to wait for tasks. */
  readonly waits: boolean;
}

type Settle = (results: ReportResult[]) => void;

/** Fetches what can be started at once, one call at a time. A fetch carries the reports that wait. */
export class Fetcher {
  /** There may be more to fetch. */
  readonly wake = new Wake();
  #carries = false;

  readonly #request: FetchTaskRequest;

  constructor(private readonly run: Run) {
    const { id: collectorId, labels, pools, sources, queues, leaseMs } = run.config;
    this.#request = create(FetchTaskRequestSchema, { collectorId, session: run.session, labels, pools, sources, queues });
    if (leaseMs > 0) this.#request.leaseDuration = durationFromMs(leaseMs);
  }

  /** Whether a fetch goes out soon, or once a slot is free, and takes the reports along. */
  get carries(): boolean {
    return this.#carries;
  }

  set carries(carries: boolean) {
    if (this.#carries === carries) return;
    this.#carries = carries;
    if (!carries) this.run.reports.changed();
  }

  /** Fetches until that has ended. */
  async loop(): Promise<void> {
    const { run } = this;
    let drains = false; // by the last answer
    for (let free = await this.#free(); free > 0; free = await this.#free()) {
      const answer = await this.#fetch(free, run.reports.take(true));
      if (!answer) break;
      run.start(answer.response, answer.sent);
      const { leasedTasks, emptyReason, retryAfter } = answer.response;
      if (leasedTasks.length > 0) continue;
      const asked = retryAfter ? Math.min(Math.max(durationMs(retryAfter), 0), 60_000) : 0;
      if (emptyReason === EmptyReason.COLLECTOR_HELD) {
        run.setHeld(true); // until a heartbeat says otherwise. The hold may be over before the next one hears of it, so one asks
        setTimeout(() => run.heartbeat.beatNow(), asked || emptyWait).unref();
        continue;
      }
      const drained = drains;
      drains = emptyReason === EmptyReason.DISPATCHER_DRAINING;
      if (drains) {
        answer.dispatcher.leave();
        if (run.heartbeat.stream?.dispatcher === answer.dispatcher) run.heartbeat.stream.replace();
      }
      if ((drains && !drained) || !answer.waits || emptyReason === EmptyReason.TOKEN_USED) continue;
      this.carries = false;
      const pause = asked || (now() - answer.sent < emptyWait / 2 ? emptyWait : 0);
      await sleep(pause && pause + Math.random() * (pause / 10), run.fetching.signal);
    }
    this.carries = false;
  }

  /** Waits until tasks can be started, and returns how many; 0 when fetching has ended. */
  async #free(): Promise<number> {
    const { run } = this;
    const { slots } = run.config;
    while (!run.fetching.signal.aborted) {
      // A lease is held until its report is answered, so that fetching stops when no report is taken.
      const free = Math.min(slots - run.working, 2 * slots - run.leases.size);
      if (free > 0 && !run.held) return free;
      this.carries = run.working >= slots && !run.held;
      await this.wake.wait();
    }
    return 0;
  }

  /**
   * Makes one fetch: repeats the call with the same client token until it is answered. Undefined when fetching has ended; then what
   * the call may have been granted is given back.
   */
  async #fetch(free: number, reports: Report[]): Promise<Answer | undefined> {
    const { run } = this;
    const { signal } = run.fetching;
    const request = this.#request;
    request.clientToken = randomUUID();
    request.maxTasks = free;
    this.carries = !run.heartbeat.stream && !this.#waits(reports);
    const settle = (results: ReportResult[]) => {
      if (reports.length > 0) run.reports.settle(reports, results);
      reports = request.reports = [];
    };
    const backoff = new Backoff();
    for (let repeated = false; ; repeated = true) {
      try {
        request.reports = reports.map((one) => one.message);
        const answer = (await this.#overStream(request, repeated, settle)) ?? (await this.#plain(request, this.#waits(reports), settle));
        run.answered("FetchTask");
        return answer;
      } catch (error) {
        if (!signal.aborted) {
          if (endsAll(error)) run.end(error);
          // A carried report may be what is refused. Also, failing fetches must not delay reports.
          else if (reports.length > 0 && (refuses(error, reports) || run.config.slots > 1)) {
            run.reports.sendDirectly(reports);
            reports = [];
          } else if (isRefused(error) || (codeOf(error) === Code.Unimplemented && !run.hasAnswer)) run.end(error);
        }
        if (!signal.aborted) {
          this.carries = false;
          run.failed("FetchTask", error);
          await sleep(backoff.next(retryDelay(error)), signal);
        }
        if (signal.aborted) {
          run.reports.putBack(reports);
          await this.#giveBack(request);
          return undefined;
        }
      }
    }
  }

  /** Whether a plain fetch may wait for tasks: what is to be answered soon does not. With nothing to do, the next fetch does. */
  #waits(reports: Report[]): boolean {
    return this.run.config.slots === 1 || reports.length === 0;
  }

  /**
   * A fetch over the stream, which knows the collector. It waits for as long as the stream lasts; a repeated one shows soon that the
   * trouble is over. Undefined: there is no stream, or it ended first.
   */
  async #overStream(request: FetchTaskRequest, repeated: boolean, settle: Settle): Promise<Answer | undefined> {
    const { run } = this;
    const { stream } = run.heartbeat;
    if (!stream) return undefined;
    const { waitMs } = run.config;
    const credit = { ...request, collectorId: "", session: "", labels: {} };
    if (repeated) credit.wait = durationFromMs(waitMs);
    const sent = now();
    const response = await stream.call("fetch", credit, {
      signal: run.fetching.signal, timeoutMs: repeated ? waitMs + slack : undefined, settle,
    });
    return response && { dispatcher: stream.dispatcher, response, sent, waits: true };
  }

  async #plain(request: FetchTaskRequest, waits: boolean, settle: Settle): Promise<Answer> {
    const { run } = this;
    const { signal } = run.fetching;
    const { waitMs } = run.config;
    // A little less than the wait that was asked for: collectors that started together do not poll together for ever.
    const wait = waits ? Math.round(waitMs - jitter(waitMs / 5)) : 0;
    const sent = now();
    const answer = await run.dispatchers.call(signal, async (dispatcher) => ({
      dispatcher, sent, waits,
      response: await dispatcher.client.fetchTask({ ...request, wait: durationFromMs(wait) }, { signal, timeoutMs: wait + slack }),
    }));
    settle(answer.response.reportResults);
    return answer;
  }

  /**
   * Asks once, without waiting, what an interrupted fetch was granted, and gives that back: over the stream it takes the place of the
   * fetch that waits. Without an answer it expires.
   */
  async #giveBack(request: FetchTaskRequest): Promise<void> {
    const { run } = this;
    if (run.error !== undefined) return;
    const options = { signal: run.calling.signal, timeoutMs: settleTimeout };
    const last = { ...request, wait: durationFromMs(0), maxTasks: 1, reports: [] };
    try {
      const sent = now();
      run.start(await run.call("fetch", last, options, ({ client }) => client.fetchTask(last, options)), sent);
    } catch {
      // they expire
    }
  }
}
