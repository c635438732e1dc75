import { Request, type RequestOptions } from "@crawlee/core";
import type { Outcome, Task } from "@waggle/collector";

import type { Verdict } from "./outcome.js";

/** What a site answered to a request: status and headers, as HTTP clients and browsers name them. */
export interface Answer {
  status: number;
  /** Names in lower case. */
  headers?: Readonly<Record<string, unknown>> | undefined;
}

/** What is known of the work on a lease, to judge how it ended. Times are of the monotonic clock, in ms. */
export interface Work {
  /** When the request began: the delay of the host counts from then. */
  began: number;
  answer?: Answer | undefined;
  /** Notes the answer, if there is one that nobody has noted: some errors come before the hooks that do. */
  note?: (() => void) | undefined;
  /** The handler was called, and so what it throws is its own failure. */
  handling: boolean;
  /** The handler has returned without an error. */
  handled: boolean;
  /** The proxy that the request went through. */
  proxy?: { hostname?: string; port?: number | string } | undefined;
  /** What made the attempt fail, and how that was judged. */
  failure?: { error: unknown; verdict?: Verdict } | undefined;
}

/** A request with a lease. Crawlee decides over each attempt as over its own requests; the outcome goes to Waggle, once. */
export class LeasedRequest extends Request {
  readonly work: Work;
  readonly #task: Task;
  readonly #judge: (request: LeasedRequest) => [verdict: Verdict, isLast: boolean];
  #settle: ((outcome: Outcome) => void) | undefined;

  /** `judge` returns the verdict on a failed attempt, and whether the task has no attempt left after it. */
  constructor(
    options: RequestOptions, task: Task, judge: (request: LeasedRequest) => [verdict: Verdict, isLast: boolean],
    settle: (outcome: Outcome) => void,
  ) {
    super(options);
    this.#task = task;
    this.#judge = judge;
    this.#settle = settle;
    this.work = { began: performance.now(), handling: false, handled: false };
    Object.defineProperty(this, "work", { enumerable: false }); // it is no part of the request for who prints or copies it
    this.retryCount = Math.max(0, task.attempt - 1);
  }

  get task(): Task {
    return this.#task;
  }

  get settled(): boolean {
    return this.#settle === undefined;
  }

  /**
   * Crawlee calls this with the error of an attempt, and then decides by `noRetry` whether the error handler or the handler of
   * failed requests is called. How many attempts there are is Waggle's decision.
   */
  override pushErrorMessage(error: unknown, options?: { omitStack?: boolean }): void {
    super.pushErrorMessage(error, options);
    this.work.note?.();
    this.work.failure = { error };
    const [verdict, isLast] = this.#judge(this);
    this.work.failure.verdict = verdict;
    if (isLast) this.noRetry = true;
  }

  /** Reports how the attempt ended. The first report counts. */
  settle(outcome: Outcome): void {
    const settle = this.#settle;
    this.#settle = undefined;
    settle?.(outcome);
  }
}
