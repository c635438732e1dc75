/** The monotonic clock, in milliseconds. Leases count by it. */
export const now = (): number => performance.now();

/** The longest that a timer of Node waits; a longer one fires at once. */
const longestTimer = 2 ** 31 - 1;

/** Wakes the one loop that waits for it. Set while nobody waits, it ends the next wait at once. */
export class Wake {
  #set = false;
  #end: (() => void) | undefined;

  set(): void {
    if (this.#end) this.#end();
    else this.#set = true;
  }

  /** Waits until it is set, or for some milliseconds. */
  wait(ms = Infinity): Promise<void> {
    if (this.#set || ms <= 0) {
      this.#set = false;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const timer = ms <= longestTimer ? setTimeout(() => this.#end?.(), ms) : undefined;
      this.#end = () => {
        clearTimeout(timer);
        this.#end = undefined;
        resolve();
      };
    });
  }
}

/** Waits for some milliseconds, or until the signal aborts. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  if (ms <= 0 || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, Math.min(ms, longestTimer));
    signal.addEventListener("abort", end);
  });
}

/**
 * Calls back after some milliseconds of silence. If the event loop was blocked meanwhile, what has arrived is read first. The
 * returned function stops it.
 */
export function afterSilence(ms: number, callback: () => void): () => void {
  let timer: NodeJS.Timeout;
  const arm = (wait: number) => {
    const due = now() + wait;
    timer = setTimeout(() => (now() - due > 100 ? arm(Math.min(ms, 1000)) : callback()), wait);
  };
  arm(ms);
  return () => clearTimeout(timer);
}

/** A time between half of ms and ms, so that collectors that failed together do not come back together. */
export const jitter = (ms: number): number => ms * (0.5 + Math.random() / 2);

/** How long to wait after each of several failures in a row: from 100 ms, twice as long each time, to 5 s. */
export class Backoff {
  #failures = 0;

  /** The wait after one more failure, no shorter than the dispatcher asked for. */
  next(asked = 0, most = 5000): number {
    const wait = Math.min(100 * 2 ** Math.min(this.#failures++, 6), most);
    return Math.max(jitter(wait), asked * (1 + Math.random() / 10));
  }

  reset(): void {
    this.#failures = 0;
  }
}
