import { create } from "@bufbuild/protobuf";

import { Interrupted } from "./errors.js";
import { LeaseBeatSchema, LostReason, type LeaseBeat } from "./gen/waggle/v1/dispatch_service_pb.js";
import type { Task } from "./gen/waggle/v1/task_pb.js";
import { now } from "./wait.js";

/** How long before its deadline the work on a lease stops: room for clocks that differ, and for the handler to notice. */
const margin = (ms: number): number => Math.min(ms / 10, 2000);

/** Bytes of a cursor. A heartbeat with a larger one would be refused, and with it all leases. */
const maxCursor = 64 << 10;

/** How long a handler may go on after its signal aborted, until its slot counts as stuck. */
export const stuckAfter = 5000;

/** One task held. It is beaten while its handler works, and while its report is not answered. Times are of the monotonic clock, in ms. */
export class Lease {
  readonly controller = new AbortController();
  /** The handler has not returned. */
  working = true;
  /** Nor had it 5 s after its signal aborted. */
  stuck = false;
  /** A dispatcher said that the lease is gone. */
  lost = false;
  /** It was not renewed in time while the handler worked. */
  lapsed = false;

  #deadline: number;
  #stopAt: number;
  #timer: NodeJS.Timeout;
  #cursor: Uint8Array | undefined;
  #progress: number | undefined;
  #noted = 0; // counts changes of cursor and progress
  #grace: NodeJS.Timeout | undefined;
  #taken = 0; // the count that a dispatcher has

  /** A lease that was granted at `begin` or later. `onStuck` is called when its handler is stuck. */
  constructor(
    readonly task: Task,
    readonly token: string,
    readonly fence: bigint,
    begin: number,
    readonly duration: number,
    private readonly onStuck: () => void,
  ) {
    this.#deadline = begin + duration;
    this.#stopAt = this.#deadline - margin(duration);
    this.#timer = setTimeout(() => this.#lapse(), this.#stopAt - now());
  }

  /** Milliseconds until the work must have stopped; 0 if it must have now. */
  left(): number {
    return this.controller.signal.aborted ? 0 : Math.max(0, this.#stopAt - now());
  }

  /** Whether heartbeats name it. */
  get beaten(): boolean {
    return !this.lost && !this.lapsed;
  }

  #lapse(): void {
    if (!this.working || !this.beaten) return;
    const left = this.#stopAt - now();
    if (left > 0) {
      this.#timer = setTimeout(() => this.#lapse(), left);
      return;
    }
    this.lapsed = true;
    this.interrupt("NOT_RENEWED", "no dispatcher renewed the lease in time");
  }

  /** Moves the deadline, never to an earlier time. A lease that has lapsed stays so: its work was stopped. The timer finds the new one. */
  renew(sent: number, duration: number): void {
    if (!this.beaten || sent + duration <= this.#deadline) return;
    this.#deadline = sent + duration;
    this.#stopAt = this.#deadline - margin(duration);
  }

  /** Notes that a dispatcher says that it is gone. */
  lose(reason: LostReason): void {
    if (this.lost) return;
    this.lost = true;
    clearTimeout(this.#timer);
    this.interrupt("LEASE_LOST", `the lease is lost: ${LostReason[reason] ?? reason}`);
  }

  /** Asks the handler to stop. The first reason counts. */
  interrupt(code: string, message: string): void {
    if (!this.working || this.controller.signal.aborted) return;
    this.#grace = setTimeout(() => {
      this.stuck = true;
      this.onStuck();
    }, stuckAfter);
    this.controller.abort(new Interrupted(code, message));
  }

  /** Notes that the handler has returned. False: its result does not count. */
  finish(): boolean {
    this.working = false;
    this.stuck = false;
    clearTimeout(this.#timer);
    clearTimeout(this.#grace);
    if (now() >= this.#stopAt) this.lapsed = true; // the event loop was blocked, and the timer with it
    return this.beaten;
  }

  setCursor(cursor: Uint8Array): void {
    if (!(cursor instanceof Uint8Array)) throw new TypeError("cursor: want a Uint8Array");
    if (cursor.length > maxCursor) throw new RangeError(`cursor: ${cursor.length} bytes: want at most ${maxCursor}`);
    this.#cursor = cursor;
    this.#noted++;
  }

  setProgress(progress: number): void {
    this.#progress = Math.min(1, Math.max(0, progress)) || 0; // also of NaN
    this.#noted++;
  }

  /** Whether it has a cursor that no dispatcher has. */
  get hasNews(): boolean {
    return this.#cursor !== undefined && this.#noted > this.#taken;
  }

  /** Its part of a heartbeat, and what to call once a dispatcher has answered it. */
  beat(): [beat: LeaseBeat, taken: () => void] {
    const beat = create(LeaseBeatSchema, { taskId: this.task.id, leaseToken: this.token });
    const noted = this.#noted;
    if (noted > this.#taken) {
      if (this.#cursor !== undefined) beat.cursor = this.#cursor;
      if (this.#progress !== undefined) beat.progress = this.#progress;
    }
    return [beat, () => { this.#taken = Math.max(this.#taken, noted); }];
  }
}
