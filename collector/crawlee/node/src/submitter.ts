import { createClient, errorReason, SubmitCode, TaskService, type SubmitResult } from "@waggle/collector";
import type { connect } from "@waggle/collector";

import { Backoff, isRefusal, isTooLarge, sleep } from "./calls.js";
import { text } from "./outcome.js";
import { maxUrl, type Link } from "./payload.js";

const maxItems = 1000; // of a call
const maxBytes = 2 << 20; // leaves room within the 4 MiB that a dispatcher takes
const itemBytes = 200; // beside URL, key and payload
const keepFor = 30_000; // ms that a link counts as known: pages of a site have the same links
const keepMost = 50_000;

/** The highest priority of a task within its source. */
const first = 9;

/** A link that is to be submitted. */
interface Waiting {
  link: Link;
  forefront: boolean;
  done: (result: SubmitResult) => void;
  failed: (error: unknown) => void;
}

/**
 * Submits requests as tasks: those of all pages that are worked on go in one call, so that a page with few links costs no call. It
 * repeats a failed call until the signal aborts.
 */
export class Submitter {
  readonly #client;
  readonly #known = new Map<string, { result: SubmitResult; until: number }>();
  #waiting: Waiting[] = [];
  #sending = false;
  #troubled = false;

  constructor(
    transport: ReturnType<typeof connect>,
    private readonly source: string,
    private readonly warn: (message: string) => void,
    private readonly signal: AbortSignal,
  ) {
    this.#client = createClient(TaskService, transport);
  }

  /**
   * Resolves to the dispatcher's result once the link is stored. It rejects if no repetition can help. A URL that is too long is
   * INVALID, as at the dispatcher: it is the site's, and the page that has the link must not fail for it.
   */
  submit(link: Link, forefront: boolean): Promise<SubmitResult> {
    const length = Buffer.byteLength(link.url);
    if (length > maxUrl) {
      return Promise.resolve({ code: SubmitCode.INVALID, message: `url has ${length} bytes, and the limit is ${maxUrl}` } as SubmitResult);
    }
    const known = this.#known.get(identity(link));
    if (known && known.until > performance.now()) return Promise.resolve(known.result);
    return new Promise((done, failed) => {
      this.#waiting.push({ link, forefront, done, failed });
      if (this.#sending) return;
      this.#sending = true;
      setImmediate(() => void this.#send());
    });
  }

  async #send(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#take();
      try {
        const results = await this.#call(batch);
        for (const [i, one] of batch.entries()) {
          this.#remember(one.link, results[i]!);
          one.done(results[i]!);
        }
      } catch (error) {
        for (const one of batch) one.failed(error);
      }
    }
    this.#sending = false;
  }

  #take(): Waiting[] {
    let bytes = 0;
    let n = 0;
    for (const { link } of this.#waiting) {
      bytes += link.url.length * 3 + link.key.length * 3 + link.payload.length + itemBytes;
      if (n > 0 && (n >= maxItems || bytes > maxBytes)) break;
      n++;
    }
    return this.#waiting.splice(0, n);
  }

  /** Repeats the call until it is answered: a link that was stored before answers EXISTS. */
  async #call(batch: Waiting[]): Promise<SubmitResult[]> {
    const items = batch.map(({ link, forefront }) => ({
      sourceId: this.source, url: link.url, key: link.key, payload: link.payload,
      ...(forefront ? { priority: first } : {}),
    }));
    for (const backoff = new Backoff(); ; ) {
      try {
        const { results } = await this.#client.submitTasks({ items }, { signal: this.signal, timeoutMs: 30_000 });
        if (results.length !== items.length) throw new Error(`${results.length} results for ${items.length} links`);
        if (this.#troubled) this.warn("SubmitTasks succeeds again");
        this.#troubled = false;
        return results;
      } catch (error) {
        if (this.signal.aborted) throw new Error(`the crawl has ended, and ${items.length} links were not stored`);
        if (isRefusal(error) || isTooLarge(error)) throw new Error(`the dispatcher refuses the links: ${errorReason(error)} ${text(error)}`);
        if (!this.#troubled) this.warn(`SubmitTasks fails and is repeated: ${text(error)}`);
        this.#troubled = true;
        await sleep(backoff.next(), this.signal);
      }
    }
  }

  /** Keeps the result of a link that is stored, for a while. The oldest is forgotten first. */
  #remember(link: Link, result: SubmitResult): void {
    if (result.code === SubmitCode.LIMITED || result.code === SubmitCode.INVALID) return;
    if (this.#known.size >= keepMost) this.#known.delete(this.#known.keys().next().value!);
    const known = { ...result, code: SubmitCode.EXISTS };
    this.#known.set(identity(link), { result: known, until: performance.now() + keepFor });
  }
}

const identity = ({ url, key }: Link): string => `${key}\n${url}`;
