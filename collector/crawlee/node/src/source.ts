import {
  AdminService, createClient, errorReason, GateKind, type Gate, SourceService, type connect, type Source, type SourceStatus,
} from "@waggle/collector";

import { Backoff, isRefusal, sleep } from "./calls.js";
import { text } from "./outcome.js";

const usualServer = "127.0.0.1:7070"; // the one that commands ask
const lookEvery = 1000;
const warnEvery = 30_000;
const explainAfter = 3; // looks that find the process idle
const explainEvery = 10;
const longWait = 60_000; // a due time after it is logged

/** What the watch of a source needs to know of the process, and what it reports. */
export interface Watched {
  /** This process works on nothing. */
  idle(): boolean;
  /** Leases that began: a crawl that gets one is not finished. */
  begun(): number;
  info(message: string): void;
  /** The crawl cannot go on. */
  fail(error: Error): void;
}

/** The source of a crawl: its spec, and whether anything of it is left to do. */
export class WatchedSource {
  /** Nothing was outstanding at two looks in a row. */
  finished = false;
  readonly #sources;
  readonly #admin;
  #last: Source | undefined;
  #gate = ""; // what the crawl waits for, as it was logged last
  #heldAt: number | undefined; // leases that had begun when a hold was logged; undefined: none stands

  constructor(
    transport: ReturnType<typeof connect>,
    private readonly id: string,
    private readonly servers: readonly string[],
  ) {
    this.#sources = createClient(SourceService, transport);
    this.#admin = createClient(AdminService, transport);
  }

  /** As it was at the last look. */
  get spec(): Source["spec"] {
    return this.#last?.spec;
  }

  get status(): SourceStatus | undefined {
    return this.#last?.status;
  }

  /** Looks for the first time, and waits for a dispatcher meanwhile. It rejects if the source does not exist, or may not be read. */
  async open(warn: (message: string) => void, signal: AbortSignal): Promise<void> {
    let warned = -Infinity;
    for (const backoff = new Backoff(); !signal.aborted; ) {
      try {
        await this.#look(signal);
        return;
      } catch (error) {
        if (isRefusal(error)) throw this.#refused(error);
        if (performance.now() - warned >= warnEvery) {
          warn(`no dispatcher answers at ${this.servers.join(", ")}; the crawl waits for one: ${text(error)}`);
          warned = performance.now();
        }
        await sleep(backoff.next(), signal);
      }
    }
  }

  /** Looks once a second while the process is idle, until the signal aborts. */
  async watch(process: Watched, signal: AbortSignal): Promise<void> {
    let idle = 0;
    let nothing = 0; // looks in a row that found nothing outstanding
    for (;;) {
      await sleep(lookEvery, signal);
      if (signal.aborted) return;
      if (process.begun() > (this.#heldAt ?? Infinity)) this.#resume(process);
      if (!process.idle()) {
        [idle, nothing, this.finished] = [0, 0, false];
        continue;
      }
      const before = process.begun();
      try {
        await this.#look(signal);
      } catch (error) {
        if (signal.aborted) return;
        if (isRefusal(error)) {
          process.fail(this.#refused(error));
          return;
        }
        nothing = 0;
        continue; // the collector logs that no dispatcher answers
      }
      idle++;
      const over = this.status?.outstanding === 0n && hasBegun(this.status) && process.idle() && process.begun() === before;
      // The shards are counted one after the other, and a task may pass from one to another; it does not do so twice.
      nothing = over ? nothing + 1 : 0;
      this.finished = nothing >= 2;
      if (over) this.#gate = "";
      else if (idle % explainEvery === explainAfter) await this.#explain(process, signal);
    }
  }

  async #look(signal: AbortSignal): Promise<void> {
    const { source } = await this.#sources.getSource({ id: this.id }, { signal, timeoutMs: 10_000 });
    this.#last = source;
  }

  #resume(process: Watched): void {
    process.info(`${this.id}: resumed`);
    this.#heldAt = undefined;
    this.#gate = "";
  }

  /** Reports what the crawl waits for, once for each thing. */
  async #explain(process: Watched, signal: AbortSignal): Promise<void> {
    const answer = await this.#admin.explain({ sourceId: this.id }, { signal, timeoutMs: 10_000 }).catch(() => undefined);
    const gate = answer?.gates.find((one) => one.gate?.kind !== GateKind.NO_SEEDS)?.gate; // links need no seeds
    const { outstanding, tasks } = this.status ?? {};
    const what = gate ? gateText(gate) : "other collectors or for the time of the next attempts";
    if (what === this.#gate) return;
    if (this.#heldAt !== undefined && !gate?.hold) this.#resume(process);
    this.#gate = what;
    if (gate?.hold) this.#heldAt = process.begun();
    const end = gate?.kind === GateKind.NOT_DUE ? ` To end sooner: waggle task cancel --source ${this.id} --state scheduled --yes.` : "";
    process.info(`${this.id}: ${outstanding} outstanding, ${tasks?.leased} of them leased; waiting for ${what}.${end} ` +
      `Details: waggle explain source ${this.id}`);
  }

  #refused(error: unknown): Error {
    const reason = errorReason(error);
    if (reason === "SOURCE_NOT_FOUND" && this.#last) return new Error(`the source ${this.id} was deleted; the crawl ends`);
    if (reason === "SOURCE_NOT_FOUND") {
      const server = this.servers[0] === usualServer ? "" : ` --server ${this.servers[0]}`;
      return new Error(`the source ${this.id} does not exist. Create it: waggle source create ${this.id}${server}`);
    }
    return new Error(`${reason}: ${text(error)}. A crawl needs the roles collector and producer`);
  }
}

function gateText({ kind, by, reason, until }: Gate): string {
  const due = kind === GateKind.NOT_DUE && until ? Number(until.seconds) * 1000 : 0;
  const next = due > Date.now() + longWait ? `; the next is due at ${new Date(due).toISOString().replace(".000", "")}` : "";
  return `${GateKind[kind]}${by ? `, by ${by}` : ""}${reason ? `: ${reason.replace(/\.+$/, "")}` : ""}${next}`;
}

/** Whether anything of a source was ever crawled or is outstanding, or no seed of it will be. */
function hasBegun(status: SourceStatus): boolean {
  const { outstanding, nextDueTime, lastSuccessTime, lastFailureTime, tasks } = status;
  return outstanding > 0n || !nextDueTime || lastSuccessTime !== undefined || lastFailureTime !== undefined ||
    (tasks?.done ?? 0n) > 0n || (tasks?.dead ?? 0n) > 0n;
}
