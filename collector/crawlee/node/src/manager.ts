import {
  log as crawleeLog, Request, type AddRequestsBatchedOptions, type AddRequestsBatchedResult, type Dictionary, type IRequestManager,
  type RequestQueueOperationInfo, type RequestQueueOperationOptions, type RequestsLike, type Source,
} from "@crawlee/core";
import {
  collect, connect, errorReason, failed, FailureReason, released, SubmitCode, TaskState,
  type Context, type Outcome, type SubmitResult, type Task,
} from "@waggle/collector";

import { collectorId, type WaggleConfig } from "./config.js";
import { Counts } from "./counts.js";
import { buildCrawler, type CrawlerClass } from "./crawler.js";
import { ineffective } from "./options.js";
import { LeasedRequest, type Answer } from "./leased.js";
import { askedPause, isLast, judge, report, text, usualAttempts, type Accepted } from "./outcome.js";
import { pack, unpack } from "./payload.js";
import { WatchedSource } from "./source.js";
import { Submitter } from "./submitter.js";

const batchSize = 1000;

type Added = AddRequestsBatchedResult["addedRequests"][number];

/** A run of a crawler, as far as its manager must know it. */
export interface CrawlerRun {
  slots: number;
  /** Statuses that are errors, and that the handler takes as pages. */
  accepted: Accepted;
  /** A task has come, or the crawl is over: look again, now. */
  wake(): void;
  /** The pause between requests that robots.txt of a URL's host asks for, in ms; undefined: none that is known. */
  crawlDelay(url: string): number | undefined;
}

/**
 * The requests of a crawler, as leases of Waggle. A task is fetched when the crawler has room for it, and its lease ends with the
 * one report of how the attempt went. Pacing, retries and the memory of known pages are Waggle's.
 */
export class WaggleRequestManager implements IRequestManager {
  readonly log = crawleeLog.child({ prefix: "Waggle" });

  readonly #config: WaggleConfig & { id: string };
  readonly #source: WatchedSource;
  readonly #transport: ReturnType<typeof connect>;
  #submitter: Submitter; // of this run: what it repeats ends with the run
  readonly #counts: Counts;

  readonly #waiting: LeasedRequest[] = []; // granted, and not yet asked for by the crawler
  readonly #working = new Set<LeasedRequest>();
  #run: CrawlerRun | undefined;
  #stop = new AbortController();
  #collecting: Promise<unknown> | undefined;
  #error: Error | undefined;
  #begun = 0;
  #polled = false; // the crawler asks for requests: woken before that, it would begin with half of its parts

  /** Connects to the dispatchers, and waits until one answers. It rejects if the source does not exist. */
  static async open(config: WaggleConfig): Promise<WaggleRequestManager> {
    const manager = new WaggleRequestManager(config);
    await manager.#source.open((message) => manager.log.warning(message), manager.#stop.signal);
    return manager;
  }

  private constructor(config: WaggleConfig) {
    this.#config = { ...config, id: config.id ?? collectorId(config.source) };
    this.#transport = connect(config);
    this.#source = new WatchedSource(this.#transport, config.source, config.servers);
    this.#submitter = this.#newSubmitter();
    this.#counts = new Counts(config.source, (message) => this.log.warning(message), (message) => this.log.info(message));
  }

  #newSubmitter(): Submitter {
    return new Submitter(this.#transport, this.#config.source, (message) => this.log.warning(message), this.#stop.signal);
  }

  /** The name of this process at Waggle. */
  get id(): string {
    return this.#config.id;
  }

  /**
   * Makes a crawler of a class of Crawlee, with its usual options. Its `run` resolves when the source has nothing left to do, and
   * everything is reported.
   */
  crawler<Class extends CrawlerClass>(
    Class: Class, options: NonNullable<ConstructorParameters<Class>[0]>, config?: ConstructorParameters<Class>[1],
  ): InstanceType<Class> {
    return buildCrawler(this, Class, options, config) as InstanceType<Class>;
  }

  /**
   * Notes what a site answered. Crawlers with navigation do so by themselves. Call it in the handler of a BasicCrawler, which makes
   * its requests itself: then a status that is an error fails the page for its reason, and a Retry-After reaches all processes.
   */
  answered(request: Request, response: { statusCode?: number; status?: number; headers?: unknown }): void {
    if (!(request instanceof LeasedRequest) || request.settled) return;
    const status = response.statusCode ?? response.status ?? 0;
    const headers = response.headers instanceof Headers ? Object.fromEntries(response.headers) : response.headers;
    const answer: Answer = { status, headers: headers as Answer["headers"] };
    request.work.answer = answer;
    const pause = askedPause(answer);
    if (status < 400 || (status !== 429 && pause === 0)) return;
    this.log.info(`${new URL(request.url).host} answers ${status}${pause > 0 ? ` and asks for a pause of ${Math.ceil(pause / 1000)} s` : ""}; ` +
      "no process of the crawl asks it for pages meanwhile", { url: request.url });
  }

  /** Logs options of a crawler that have no effect, and what to do instead. @internal */
  ignore(options: Readonly<Record<string, unknown>>): void {
    const maxAttempts = this.#source.spec?.retry?.maxAttempts ?? usualAttempts;
    for (const line of ineffective(options, this.#config.source, maxAttempts)) this.log.info(line);
  }

  /** Whether a page that answered so goes to the handler. @internal */
  isForHandler(request: LeasedRequest): boolean {
    const status = request.work.answer?.status ?? 0;
    return this.#run!.accepted.has(status) || !(status === 429 || status >= 500);
  }

  /** Begins to fetch tasks. The crawler calls it by its `run`. @internal */
  begin(run: CrawlerRun): void {
    if (this.#collecting) throw new Error("a manager is for one crawler: open another one, with a source of its own");
    this.#run = run;
    this.#error = undefined;
    this.#polled = false;
    this.#source.finished = false;
    const { servers, transport, tls, tokenFile, id, labels, leaseMs, version, source } = this.#config;
    const pool = this.#source.spec?.pool || "default";
    const config = {
      servers, transport, tls, tokenFile, id, labels, leaseMs, version, slots: run.slots, sources: [source], pools: [pool],
      log: (message: string) => this.log.warning(message),
    };
    const collecting = collect(config, (task, context) => this.#take(task, context), this.#stop.signal)
      .catch((error: unknown) => this.#fail(new Error(`the crawl cannot go on: ${errorReason(error)} ${text(error)}`)));
    const watching = this.#source.watch({
      idle: () => this.#working.size + this.#waiting.length === 0,
      begun: () => this.#begun,
      info: (message) => this.log.info(message),
      fail: (error) => this.#fail(error),
    }, this.#stop.signal);
    this.#collecting = Promise.all([collecting, watching]);
  }

  /** Fetches and submits no more, reports everything, and gives back what was not worked on. @internal */
  async end(): Promise<void> {
    this.#stop.abort();
    for (const request of this.#waiting.splice(0)) request.settle(released());
    for (const request of this.#working) {
      if (request.work.failure) this.settle(request); // what ended the crawl: given back, it would end the next process as well
      else request.settle(released());
    }
    this.#working.clear();
    await this.#collecting;
    this.#collecting = undefined;
    this.#run = undefined;
    this.#stop = new AbortController(); // requests may be added for another run
    this.#submitter = this.#newSubmitter();
    this.#counts.summarize(this.#source.finished);
  }

  /** Reports how the attempt on a request went. @internal */
  settle(request: LeasedRequest): void {
    if (request.settled) return;
    this.#working.delete(request);
    const verdict = judge(request, this.#run!.accepted);
    this.#counts.ended(verdict);
    request.settle(report(request, verdict, this.#run!.crawlDelay(request.url)));
  }

  #fail(error: Error): void {
    this.#error ??= error;
    this.#stop.abort();
    this.#wake();
  }

  #wake(): void {
    if (this.#polled) this.#run?.wake();
  }

  #take(task: Task, { signal }: Context): Promise<Outcome> | Outcome {
    let options;
    try {
      options = unpack(task);
    } catch (error) {
      this.log.error(`a task is no request: ${text(error)}`, { url: task.url, task: task.id });
      this.#counts.ended({ reason: FailureReason.BAD_REQUEST });
      return failed({ reason: FailureReason.BAD_REQUEST, message: text(error), permanent: true });
    }
    return new Promise((resolve) => {
      const request: LeasedRequest = new LeasedRequest(options, task, (one) => {
        const verdict = judge(one, this.#run!.accepted);
        return [verdict, isLast(one, verdict, this.#source.spec?.retry)];
      }, resolve);
      signal.addEventListener("abort", () => {
        const at = this.#waiting.indexOf(request);
        if (at >= 0) this.#waiting.splice(at, 1);
        // What is worked on cannot be stopped. Its report counts if it comes in time.
        if (at >= 0) request.settle(released());
        else if (!request.settled) this.log.warning(`the lease of a page is over while it is worked on: ${text(signal.reason)}`, { url: request.url });
      });
      this.#waiting.push(request);
      this.#begun++;
      this.#source.finished = false;
      this.#wake();
    });
  }

  #check(): void {
    if (this.#error) throw this.#error;
    if (!this.#collecting) throw new Error("make the crawler by manager.crawler(CheerioCrawler, { ... }), and call its run()");
  }

  async isEmpty(): Promise<boolean> {
    this.#check();
    this.#polled = true;
    return this.#waiting.length === 0;
  }

  async isFinished(): Promise<boolean> {
    this.#check();
    return this.#source.finished && this.#working.size + this.#waiting.length === 0;
  }

  async fetchNextRequest<T extends Dictionary = Dictionary>(): Promise<Request<T> | null> {
    this.#check();
    const request = this.#waiting.shift();
    if (!request) return null;
    this.#working.add(request);
    request.work.began = performance.now();
    return request as Request as Request<T>;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Request> {
    for (let request = await this.fetchNextRequest(); request; request = await this.fetchNextRequest()) yield request;
  }

  /** Crawlee calls it for pages that succeeded, failed, or were skipped: for a failed one after the handler of failed requests. */
  async markRequestHandled(request: Request): Promise<RequestQueueOperationInfo | null> {
    if (!(request instanceof LeasedRequest)) return null;
    if (!request.work.failure) this.settle(request);
    return operationInfo(request);
  }

  /** Crawlee calls it to repeat a failed attempt. Waggle repeats it, maybe in another process. */
  async reclaimRequest(request: Request): Promise<RequestQueueOperationInfo | null> {
    if (!(request instanceof LeasedRequest)) return null;
    this.settle(request);
    return operationInfo(request);
  }

  /** Pages that ended in this process. */
  async handledCount(): Promise<number> {
    return this.#counts.total;
  }

  getTotalCount(): number {
    const { outstanding, tasks } = this.#source.status ?? {};
    return Number((outstanding ?? 0n) + (tasks?.done ?? 0n) + (tasks?.dead ?? 0n));
  }

  /** Leases of this process. Of the others' pages nothing is known here, and the limits of a crawler are those of its process. */
  getPendingCount(): number {
    return this.#working.size + this.#waiting.length;
  }

  async addRequest(source: Source, options: RequestQueueOperationOptions = {}): Promise<RequestQueueOperationInfo> {
    const { addedRequests: [added] } = await this.addRequestsBatched([source], options);
    if (!added) throw new Error(`${String(source.url)} was refused; the log has the reason`);
    return { ...added, forefront: options.forefront ?? false };
  }

  /** Resolves when all requests are stored. What is refused is counted and logged, and not among the results. */
  async addRequestsBatched(requests: RequestsLike, options: AddRequestsBatchedOptions = {}): Promise<AddRequestsBatchedResult> {
    const { forefront = false, maxNewRequests = Infinity } = options;
    const addedRequests: Added[] = [];
    const requestsOverLimit: Source[] = [];
    let left = maxNewRequests;
    let batch: Source[] = [];
    const send = async () => {
      const added = await this.#submit(batch, forefront);
      batch = [];
      left -= added.filter((one) => !one.wasAlreadyPresent).length;
      addedRequests.push(...added);
    };
    for await (const one of requests) {
      const source = typeof one === "string" ? { url: one } : one;
      if (left <= 0) {
        requestsOverLimit.push(source);
        continue;
      }
      batch.push(source);
      if (batch.length >= Math.min(batchSize, left)) await send();
    }
    if (batch.length > 0) await send();
    return {
      addedRequests, waitForAllRequestsToBeAdded: Promise.resolve([]),
      ...(maxNewRequests === Infinity ? {} : { requestsOverLimit }),
    };
  }

  async #submit(sources: Source[], forefront: boolean): Promise<Added[]> {
    const requests = sources.map((source) => {
      if ("requestsFromUrl" in source) throw new TypeError("requestsFromUrl: fetch the list, and add its URLs");
      return source instanceof Request ? source : new Request(source as ConstructorParameters<typeof Request>[0]);
    });
    let links;
    try {
      links = requests.map(pack);
    } catch (error) {
      this.log.error(text(error)); // the page that has the link fails with the same words
      throw error;
    }
    const results = await Promise.all(links.map((link) => this.#submitter.submit(link, forefront)));
    const added: Added[] = [];
    for (const [i, result] of results.entries()) {
      const request = requests[i]!;
      this.#counts.submitted(request.url, result, this.#begun === 0);
      if (isStored(result)) added.push(operationInfo(request, result));
    }
    return added;
  }
}

const isStored = ({ code }: SubmitResult): boolean => code !== SubmitCode.LIMITED && code !== SubmitCode.INVALID;

const ended = new Set([TaskState.DONE, TaskState.DEAD, TaskState.CANCELED]);

/** What Crawlee wants to know of a request that was added, or that ended. */
function operationInfo(request: Request, result?: SubmitResult): RequestQueueOperationInfo {
  return {
    requestId: result?.taskId ?? request.id ?? "", uniqueKey: request.uniqueKey, forefront: false,
    wasAlreadyPresent: result ? result.code === SubmitCode.EXISTS : true,
    wasAlreadyHandled: result ? result.code === SubmitCode.EXISTS && ended.has(result.state) : true,
  };
}
