import { create } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";

import { codeOf, endsAll, isRefused, retryDelay } from "./errors.js";
import {
  CancelReason, HeartbeatRequestSchema, LostReason, type HeartbeatRequest, type LeaseBeat, type LeaseStatus,
} from "./gen/waggle/v1/dispatch_service_pb.js";
import type { Lease } from "./lease.js";
import type { Run } from "./run.js";
import { WorkStream } from "./stream.js";
import { Backoff, now, Wake } from "./wait.js";

const idleInterval = 15_000;
const leastInterval = 100;
const longestSilence = 5000; // of a beat without an answer
const shortestSilence = 500; // a busy machine answers no sooner
const longestBreak = 1000; // from one stream to the next
const maxLeases = 1000; // of a message
const maxCursorBytes = 2 << 20; // of a message

/** Some of the leases, as one message names them. */
interface Part {
  leases: Lease[];
  beats: LeaseBeat[];
  taken: (() => void)[];
  bytes: number;
}

/**
 * Keeps leases alive, and acts on what dispatchers push. Beats go over the stream that all calls share; while there is none, or it does
 * not answer, by RenewLease.
 */
export class Heartbeat {
  readonly #wake = new Wake();
  #stream: WorkStream | undefined;
  #last = 0; // when the last beat was sent
  #due = 0;
  #asked = 0; // the interval that the dispatcher wants; 0: none
  #reopen = 0; // when to open a stream
  readonly #breaks = new Backoff();

  constructor(private readonly run: Run) {
    if (run.config.transport === "connect-json") this.#reopen = Infinity; // it has no streams in both directions
  }

  /** The stream for calls, if there is one. */
  get stream(): WorkStream | undefined {
    return this.#stream?.takesCalls ? this.#stream : undefined;
  }

  beatNow(): void {
    this.#due = 0;
    this.#wake.set();
  }

  /** Notes that a lease was granted: beats may have to come sooner. */
  granted(duration: number): void {
    const due = this.#last + duration / 3;
    if (due >= this.#due) return;
    this.#due = due;
    this.#wake.set();
  }

  /** Beats until nothing needs a lease any more. */
  async loop(): Promise<void> {
    const { run } = this;
    const backoff = new Backoff();
    while (!run.calling.signal.aborted) {
      await this.#wake.wait(this.#due - now());
      if (run.calling.signal.aborted) break;
      if (this.#stream?.over) {
        this.#dropStream();
        continue;
      }
      if (now() < this.#due) continue;
      this.#last = now();
      this.#due = Infinity; // what is granted from here on makes it sooner
      try {
        await this.#beat();
        backoff.reset();
        this.#due = Math.min(this.#due, this.#last + this.#interval(), this.#stream ? Infinity : this.#reopen);
      } catch (error) {
        if (run.calling.signal.aborted) break;
        if (endsAll(error)) {
          run.end(error);
          break;
        }
        if (isRefused(error)) run.end(error); // without beats every lease ends
        run.failed("heartbeat", error);
        this.#due = now() + Math.max(backoff.next(0, Math.min(longestBreak, this.#interval())), Math.min(retryDelay(error), this.#interval()));
      }
    }
    this.#stream?.close();
  }

  /** From one beat to the next: a third of the shortest lease, or sooner when the dispatcher wants that. */
  #interval(): number {
    let interval = this.#asked > 0 ? Math.min(this.#asked, idleInterval) : idleInterval;
    for (const lease of this.run.leases.values()) if (lease.beaten) interval = Math.min(interval, lease.duration / 3);
    return Math.max(interval * (1 - Math.random() / 20), leastInterval);
  }

  /** Names all leases, and returns once all parts are answered. */
  async #beat(): Promise<void> {
    const { run } = this;
    for (const part of this.#parts()) {
      const request = create(HeartbeatRequestSchema, { collector: run.info(), leases: part.beats });
      const patience = Math.round(Math.max(Math.min(this.#interval() / 2, longestSilence), shortestSilence)); // Connect takes whole numbers only
      const sent = now();
      const status = (await this.#exchange(request, patience)) ?? (await this.#renew(request, patience));
      run.answered("heartbeat");
      this.#asked = status.nextHeartbeat ? durationMs(status.nextHeartbeat) : 0;
      renewed(status, part, sent);
    }
  }

  /** There is one part even when nothing is held. */
  #parts(): Part[] {
    let part: Part = { leases: [], beats: [], taken: [], bytes: 0 };
    const parts = [part];
    for (const lease of this.run.leases.values()) {
      if (!lease.beaten) continue;
      const [beat, taken] = lease.beat();
      const bytes = beat.cursor?.length ?? 0;
      if (part.leases.length >= maxLeases || (part.leases.length > 0 && part.bytes + bytes > maxCursorBytes)) {
        parts.push((part = { leases: [], beats: [], taken: [], bytes: 0 }));
      }
      part.leases.push(lease);
      part.beats.push(beat);
      part.taken.push(taken);
      part.bytes += bytes;
    }
    return parts;
  }

  async #renew(request: HeartbeatRequest, timeoutMs: number): Promise<LeaseStatus> {
    const { run } = this;
    const { signal } = run.calling;
    const renewal = { collector: request.collector!, leases: request.leases };
    const dispatcher = run.dispatchers.pick();
    try {
      const { status } = await dispatcher.client.renewLease(renewal, { signal, timeoutMs });
      this.#act(status);
      return status!;
    } catch (error) {
      if (!signal.aborted) run.dispatchers.failed(dispatcher, error);
      // With the stream, the second in a row: the connection is dead.
      if (codeOf(error) === Code.DeadlineExceeded && timeoutMs >= 1000) dispatcher.reset();
      throw error;
    }
  }

  /** One beat over the stream, which is opened first if it is time for one. Undefined: there is none. */
  async #exchange(request: HeartbeatRequest, patience: number): Promise<LeaseStatus | undefined> {
    const { run } = this;
    const { signal } = run.calling;
    if (this.#stream?.over) this.#dropStream();
    if (!this.#stream && now() < this.#reopen) return undefined;
    const stream = (this.#stream ??= new WorkStream(run.dispatchers.pick(), ({ status }) => this.#act(status), () => this.#wake.set()));
    try {
      const answer = await stream.call("heartbeat", request, { signal, timeoutMs: patience });
      if (answer) {
        stream.dispatcher.answered();
        return answer.status;
      }
    } catch (error) {
      if (signal.aborted) throw error;
      stream.close(ConnectError.from(error)); // it does not answer
    }
    this.#dropStream();
    if (endsAll(stream.error)) throw stream.error;
    return undefined;
  }

  /**
   * Ends a stream that is over; beats and calls are plain meanwhile. Cancels and holds are pushed on streams only, so the next one comes
   * soon, unless this one was short.
   */
  #dropStream(): void {
    const { run } = this;
    const stream = this.#stream!;
    this.#stream = undefined;
    const { dispatcher, error } = stream;
    if (error) {
      run.dispatchers.failed(dispatcher, error);
    } else {
      dispatcher.leave(); // it stops
      stream.leave();
    }
    if (now() - stream.opened > this.#interval()) this.#breaks.reset();
    // A dispatcher, or a proxy before it, may have no streams: that changes only when it is replaced.
    const asked = codeOf(error) === Code.Unimplemented ? idleInterval : retryDelay(error);
    this.#reopen = now() + this.#breaks.next(asked);
    this.#due = Math.min(this.#due, this.#reopen);
    if (endsAll(error)) run.end(error);
  }

  /** Acts on the answer to a beat, or on a message that was pushed. */
  #act(status: LeaseStatus | undefined): void {
    const { run } = this;
    if (!status) return;
    for (const { leaseToken, taskId, reason } of status.lost) {
      const lease = run.leases.get(leaseToken);
      if (!lease || lease.lost) continue;
      // SETTLED: the beat crossed the lease's own report.
      if (reason !== LostReason.SETTLED) run.log(`lease of ${taskId} lost: ${LostReason[reason] ?? reason}`);
      lease.lose(reason);
    }
    for (const { taskId, reason } of status.cancel) {
      const code = CancelReason[reason];
      for (const lease of run.leases.values()) {
        if (lease.task.id === taskId && lease.beaten) {
          lease.interrupt(code === undefined || reason === CancelReason.UNSPECIFIED ? "CANCELED" : code, "the task is to end");
        }
      }
    }
    run.setHeld(status.held);
  }
}

/** Moves the deadlines of the leases that a beat named. Those that are lost ignore it. */
function renewed(status: LeaseStatus, part: Part, sent: number): void {
  const limited = new Map(status.limited.map((one) => [one.taskId, one.duration ? durationMs(one.duration) : 0]));
  const all = status.leaseDuration ? durationMs(status.leaseDuration) : 0;
  for (const [i, lease] of part.leases.entries()) {
    const duration = limited.get(lease.task.id) ?? all;
    if (duration <= 0) continue; // the store did not answer: its deadline stands, its cursor goes again
    lease.renew(sent, duration);
    part.taken[i]!();
  }
}
