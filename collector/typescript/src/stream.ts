import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";

import type { Dispatcher } from "./connection.js";
import { errorOf } from "./errors.js";
import type { WorkCall } from "./grpc.js";
import {
  WorkRequestSchema, type FetchTaskResponse, type HeartbeatResponse, type ReportResult, type ReportTaskResponse,
  type SubmitDiscoveredResponse, type WorkResponse,
} from "./gen/waggle/v1/dispatch_service_pb.js";
import { callTimeout } from "./reports.js";
import { afterSilence, now } from "./wait.js";

type Call = NonNullable<MessageInitShape<typeof WorkRequestSchema>["call"]>;
export type Request<K extends keyof Answers> = Extract<Call, { case: K }>["value"];

export interface Answers {
  heartbeat: HeartbeatResponse;
  fetch: FetchTaskResponse;
  report: ReportTaskResponse;
  discovered: SubmitDiscoveredResponse;
}

export interface CallOptions {
  signal: AbortSignal;
  /** Undefined: the answer may take as long as the stream lasts. */
  timeoutMs?: number | undefined;
  /** Called with the results of the reports that a fetch carries: they come ahead of its answer. */
  settle?: ((results: ReportResult[]) => void) | undefined;
}

/** An open Work stream: all calls of a collector, to one dispatcher. */
export class WorkStream {
  readonly opened = now();
  /** Nothing begins on it any more: it has ended, or its dispatcher wants it replaced. */
  over = false;
  /** Why it ended; undefined: by plan. */
  error: ConnectError | undefined;

  readonly #work: WorkCall;
  readonly #waiting = new Map<bigint, (answer: WorkResponse["answer"] | undefined) => void>(); // by the id of the request
  #last = 0n; // id of a request
  #greeted = false;
  #left = false;

  /** `onBeat` is called with each answer to a beat, and with what is pushed between them; `onOver` when another stream is wanted. */
  constructor(
    readonly dispatcher: Dispatcher,
    private readonly onBeat: (message: HeartbeatResponse) => void,
    private readonly onOver: () => void,
  ) {
    this.#work = dispatcher.openWork!((response) => this.#receive(response), (error) => this.#end(error));
  }

  /** Calls use a stream once a beat was answered: whether the dispatcher, or a proxy before it, has streams is known by then. */
  get takesCalls(): boolean {
    return this.#greeted && !this.over;
  }

  /** Makes a call. Undefined: the stream ended first, and the call is to be repeated elsewhere. One beat waits at a time. */
  call<K extends keyof Answers>(kind: K, request: Request<K>, { signal, timeoutMs, settle }: CallOptions): Promise<Answers[K] | undefined> {
    return new Promise((resolve, reject) => {
      if (this.over) return resolve(undefined);
      const id = kind === "heartbeat" ? 0n : ++this.#last;
      const end = () => {
        stop();
        signal.removeEventListener("abort", canceled);
        this.#waiting.delete(id);
        if (this.#left && this.#waiting.size === 0) this.close();
      };
      const fail = (error: ConnectError) => {
        end();
        reject(error);
      };
      const canceled = () => fail(new ConnectError("the call was canceled", Code.Canceled));
      const silent = () => fail(new ConnectError(`no answer in ${timeoutMs} ms`, Code.DeadlineExceeded));
      const stop = timeoutMs === undefined ? () => {} : afterSilence(timeoutMs, silent);
      if (signal.aborted) return canceled();
      signal.addEventListener("abort", canceled);
      this.#waiting.set(id, (answer) => {
        if (answer?.case === "report" && kind === "fetch") return settle?.(answer.value.results);
        // A fetch that waited when the stream was left is canceled.
        if (answer?.case === "error" && answer.value.code !== Code.Canceled) return fail(errorOf(answer.value));
        end();
        resolve(answer?.case === kind ? (answer.value as Answers[K]) : undefined);
      });
      this.#work.send(create(WorkRequestSchema, { id, call: { case: kind, value: request } as Call }));
    });
  }

  /** Lets nothing begin on it: its dispatcher is about to stop. */
  replace(): void {
    this.over = true;
    this.onOver();
  }

  /** Ends it once its calls are answered, for which they have a while. A fetch that waits is given up. */
  leave(): void {
    this.over = this.#left = true;
    this.#work.finish();
    setTimeout(() => this.close(), callTimeout).unref();
    if (this.#waiting.size === 0) this.close();
  }

  close(error = new ConnectError("the stream was closed", Code.Canceled)): void {
    this.#work.giveUp(error);
  }

  #receive({ id, answer }: WorkResponse): void {
    if (answer.case === "heartbeat") {
      if (this.#left) return; // another stream knows better
      if (answer.value.reconnect) this.replace();
      this.onBeat(answer.value);
      if (!answer.value.status?.nextHeartbeat) return; // pushed
      this.#greeted = true;
    }
    this.#waiting.get(id)?.(answer);
  }

  #end(error: ConnectError | undefined): void {
    this.over = true;
    this.error ??= error;
    for (const answered of [...this.#waiting.values()]) answered(undefined);
    this.onOver();
  }
}
