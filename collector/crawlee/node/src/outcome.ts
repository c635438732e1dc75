import { NonRetryableError, RequestState } from "@crawlee/core";
import { durationFromMs, failed, FailureReason, succeeded, type Outcome, type RetryPolicy } from "@waggle/collector";

import type { Answer, LeasedRequest } from "./leased.js";

const longestRetryAfter = 366 * 86_400_000;
const longestQueueDelay = 3_600_000;

/** Attempts of a task, if its source has no number of them. */
export const usualAttempts = 4;

/** Statuses of a failed attempt that another attempt may not meet: other errors of a client are for good. */
const repeatable: ReadonlySet<number> = new Set([401, 403, 408, 429]);

/** How an attempt ended, in Waggle's words. */
export interface Verdict {
  /** Absent: it succeeded. */
  reason?: FailureReason;
  message: string;
  permanent: boolean;
  /** Milliseconds; 0: the site did not ask. */
  retryAfter: number;
}

/** What is a success although its status is an error: `ignoreHttpErrorStatusCodes` of the crawler. */
export type Accepted = ReadonlySet<number>;

/** Judges an attempt by what is known of it. That Crawlee calls a request handled proves nothing: failed and skipped ones are too. */
export function judge(request: LeasedRequest, accepted: Accepted): Verdict {
  const { answer, failure, handled } = request.work;
  if (failure?.verdict) return failure.verdict;
  const refused = answer && !accepted.has(answer.status) ? byStatus(answer) : undefined;
  const retryAfter = refused ? askedPause(answer) : 0;
  if (failure) {
    const reason = refused ?? byError(request, failure.error);
    const again = refused === undefined || repeatable.has(answer!.status);
    const permanent = isOfTask(reason) && retryAfter === 0 && (!again || isForGood(request, reason, failure.error));
    return { reason, message: text(failure.error), permanent, retryAfter };
  }
  if (request.state === RequestState.SKIPPED) {
    return answer
      ? { reason: FailureReason.REDIRECT, message: `redirected to ${request.loadedUrl}, which the enqueue strategy excludes`, permanent: true, retryAfter: 0 }
      : { reason: FailureReason.ROBOTS_DENIED, message: "robots.txt forbids it", permanent: true, retryAfter: 0 };
  }
  if (!handled) return { reason: FailureReason.OTHER, message: "the crawler ended the request without its handler", permanent: false, retryAfter: 0 };
  if (refused === undefined) return { message: "", permanent: false, retryAfter: 0 };
  // The handler has seen the page, and another attempt would only show it once more.
  return { reason: refused, message: `HTTP status ${answer!.status}; the handler ran`, permanent: isOfTask(refused) && retryAfter === 0, retryAfter };
}

/** The report of a verdict. */
export function report(request: LeasedRequest, verdict: Verdict, queueDelay: number | undefined): Outcome {
  const status = request.work.answer?.status ?? 0;
  const fields = {
    httpStatus: status >= 100 && status <= 599 ? status : 0,
    fetchDuration: durationFromMs(Math.min(Math.max(performance.now() - request.work.began, 0), 86_400_000)),
    ...(queueDelay === undefined ? {} : { queueDelay: durationFromMs(Math.min(queueDelay, longestQueueDelay)) }),
  };
  if (verdict.reason === undefined) return succeeded(fields);
  return failed({
    ...fields, reason: verdict.reason, message: verdict.message, permanent: verdict.permanent,
    ...(verdict.retryAfter > 0 ? { retryAfter: durationFromMs(verdict.retryAfter) } : {}),
  });
}

/** Whether a task has no attempt left after a verdict: by the budgets of its source, as the dispatcher counts them. */
export function isLast({ task }: LeasedRequest, { reason, permanent, retryAfter }: Verdict, retry: RetryPolicy | undefined): boolean {
  if (permanent) return true;
  if (reason === undefined || scopeOf(reason) === "COLLECTOR") return false;
  if (scopeOf(reason) !== "TASK" || retryAfter > 0) return task.throttled + 1 >= (retry?.maxThrottled ?? 20);
  const most = retry?.maxAttempts ?? usualAttempts;
  const fewer = { [FailureReason.NOT_FOUND]: 2, [FailureReason.GONE]: 2, [FailureReason.FORBIDDEN]: 3 } as Partial<Record<FailureReason, number>>;
  return task.failures + 1 >= Math.min(most, task.recurring ? most : fewer[reason] ?? most);
}

/** The reason that a status means; undefined if it is no error. */
function byStatus({ status, headers }: Answer): FailureReason | undefined {
  if (status < 400) return undefined;
  switch (status) {
    case 401: case 403: case 451: return FailureReason.FORBIDDEN;
    case 404: return FailureReason.NOT_FOUND;
    case 410: return FailureReason.GONE;
    case 429: return FailureReason.THROTTLED;
    case 503: return headers?.["retry-after"] ? FailureReason.THROTTLED : FailureReason.SERVER_ERROR;
    default: return status >= 500 ? FailureReason.SERVER_ERROR : FailureReason.CLIENT_ERROR;
  }
}

/** Milliseconds of a Retry-After, which is seconds or a date; 0: there is none. */
export function askedPause(answer: Answer | undefined): number {
  const header = String(answer?.headers?.["retry-after"] ?? "").trim();
  if (header === "") return 0;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? 0 : Math.min(Math.max(ms, 0), longestRetryAfter);
}

/** What the texts of errors mean. Crawlee wraps errors of its clients in ones of its own, and then only the text is left. */
const texts: readonly (readonly [RegExp, FailureReason])[] = [
  [/ENOTFOUND|EAI_AGAIN|ERR_NAME_NOT_RESOLVED|NS_ERROR_UNKNOWN_HOST/, FailureReason.DNS],
  [/ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ERR_CONNECTION_REFUSED|ERR_ADDRESS_UNREACHABLE|NS_ERROR_CONNECTION_REFUSED/, FailureReason.CONNECT],
  [/ERR_INTERNET_DISCONNECTED|ERR_NETWORK_CHANGED/, FailureReason.NETWORK],
  [/CERT_|ERR_CERT|ERR_TLS|ERR_SSL|EPROTO|SELF_SIGNED|self-signed certificate|UNABLE_TO_VERIFY|SEC_ERROR/, FailureReason.TLS],
  [/ECONNRESET|EPIPE|socket hang up|ERR_CONNECTION_(RESET|CLOSED|ABORTED)|ERR_EMPTY_RESPONSE|PREMATURE_CLOSE|NS_ERROR_NET_RESET/, FailureReason.CONNECTION_LOST],
  [/ETIMEDOUT|ERR_(CONNECTION_)?TIMED_OUT|[Nn]avigation timed out|request timed out after|Timeout \d+ ?ms exceeded|Timeout awaiting/, FailureReason.TIMEOUT],
  [/served Content-Type|unsupported charset/, FailureReason.UNSUPPORTED_CONTENT],
  [/Redirected \d+ times|ERR_TOO_MANY_REDIRECTS/, FailureReason.REDIRECT],
  [/Failed to launch browser|browser has been closed|Target (page|closed)|Browser.*disconnected/, FailureReason.BROWSER],
  [/Invalid URL|ERR_INVALID_URL/, FailureReason.BAD_REQUEST],
];

/** Whether an error is of the proxy: its message names a proxy, or the address of this one. The host of the page is not blocked for it. */
function isOfProxy({ hostname, port }: NonNullable<LeasedRequest["work"]["proxy"]>, message: string): boolean {
  return /proxy|ERR_TUNNEL|tunneling/i.test(message) || (!!hostname && message.includes(port ? `${hostname}:${port}` : hostname));
}

function byError({ work }: LeasedRequest, error: unknown): FailureReason {
  if (work.handling) return FailureReason.HANDLER;
  const { code } = (error ?? {}) as { code?: unknown };
  const message = `${typeof code === "string" ? code : ""} ${text(error)}`;
  if (work.proxy && isOfProxy(work.proxy, message)) return FailureReason.PROXY;
  return texts.find(([pattern]) => pattern.test(message))?.[1] ?? FailureReason.OTHER;
}

function isForGood(request: LeasedRequest, reason: FailureReason, error: unknown): boolean {
  return error instanceof NonRetryableError || request.noRetry || reason === FailureReason.UNSUPPORTED_CONTENT;
}

const isOfTask = (reason: FailureReason): boolean => scopeOf(reason) === "TASK";

function scopeOf(reason: FailureReason): "TASK" | "HOST" | "COLLECTOR" | "URL" {
  if (reason < 100) return "TASK";
  if (reason < 200) return "HOST";
  return reason < 300 ? "COLLECTOR" : "URL";
}

/**
 * What was thrown, for people, in one line: dispatchers refuse control characters, and browsers colour their messages. The limit of
 * a report is in bytes, and the package of collectors cuts there.
 */
export function text(error: unknown): string {
  try {
    const message = error instanceof Error ? error.message || error.name : String(error);
    return message.replace(/\u001b\[[0-9;]*m/g, "").replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ").trim();
  } catch {
    return "what was thrown cannot be shown";
  }
}
