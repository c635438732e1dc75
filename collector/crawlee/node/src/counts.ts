import { FailureReason, SubmitCode, TaskState, type SubmitResult } from "@waggle/collector";

/** Counts what happened to links and pages of this process, so that nothing is lost in silence. */
export class Counts {
  /** Pages that ended in this process. */
  total = 0;
  readonly #failed = new Map<FailureReason, number>();
  readonly #refused = new Map<string, { links: number; message: string }>(); // by host and reason
  readonly #starts = new Map<TaskState, number>(); // known start requests, by state
  #newStarts = 0;

  constructor(
    private readonly source: string,
    private readonly warn: (message: string) => void,
    private readonly info: (message: string) => void,
  ) {}

  /** Counts a page that ended. */
  ended({ reason }: { reason?: FailureReason }): void {
    this.total++;
    if (reason !== undefined) this.#failed.set(reason, (this.#failed.get(reason) ?? 0) + 1);
  }

  /** Counts a link that was submitted; `isStart`: before this process had its first page. A refusal is logged once for each host and reason. */
  submitted(url: string, result: SubmitResult, isStart: boolean): void {
    if (result.code === SubmitCode.LIMITED || result.code === SubmitCode.INVALID) {
      this.#refuse(url, result);
      return;
    }
    if (!isStart) return;
    if (result.code === SubmitCode.EXISTS && (result.state === TaskState.DONE || result.state === TaskState.DEAD || result.state === TaskState.CANCELED)) {
      this.#starts.set(result.state, (this.#starts.get(result.state) ?? 0) + 1);
    } else {
      this.#newStarts++;
    }
  }

  #refuse(url: string, { message, code }: SubmitResult): void {
    const host = URL.canParse(url) ? new URL(url).host : url;
    const name = `${host} ${SubmitCode[code]}`;
    const known = this.#refused.get(name);
    if (known) {
      known.links++;
      return;
    }
    this.#refused.set(name, { links: 1, message });
    this.warn(`a link to ${host} is refused: ${message} (${url.slice(0, 200)}). ${this.#advice(code)}Further ones are counted`);
  }

  #advice(code: SubmitCode): string {
    return code === SubmitCode.LIMITED ? `The limit: waggle source update ${this.source} --max-outstanding NUMBER. ` : "";
  }

  /** Logs, at the end of a run, what became of the pages of this process. `finished`: the source had nothing left to do. */
  summarize(finished: boolean): void {
    for (const [name, { links, message }] of this.#refused) this.warn(`${links} links refused: ${name}: ${message}`);
    const known = [...this.#starts.values()].reduce((sum, n) => sum + n, 0);
    if (finished && this.total === 0 && known > 0 && this.#newStarts === 0) {
      const states = [...this.#starts].map(([state, n]) => `${TaskState[state]} ${n}`).join(", ");
      this.info(`${this.source}: nothing to do: all start requests are known already (${states}). To crawl pages again when they are older than a day: ` +
        `waggle source update ${this.source} --revisit-after 24h. To try the dead ones again: waggle task retry --source ${this.source} --state dead --yes`);
    } else {
      const failed = [...this.#failed].map(([reason, n]) => `${FailureReason[reason] ?? reason} ${n}`).join(", ");
      const failures = [...this.#failed.values()].reduce((sum, n) => sum + n, 0);
      this.info(`${this.source}: ${this.total - failures} attempts of this process succeeded, ${failures} failed${failed ? ` (${failed})` : ""}`);
    }
    this.total = 0;
    this.#newStarts = 0;
    for (const map of [this.#failed, this.#refused, this.#starts]) map.clear();
  }
}
