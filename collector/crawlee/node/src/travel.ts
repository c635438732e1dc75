import { Request, type RequestOptions } from "@crawlee/core";
import type { Task } from "@waggle/collector";

/** What a task carries of a request beside its URL and its key. Fields with their default are left out. */
interface Parcel {
  /** Names the format, and so who wrote the payload of a task. */
  crawlee: 1;
  /** Only if it is not that of the URL. */
  uniqueKey?: string;
  method?: string;
  headers?: Record<string, string>;
  /** The body: text as it is, bytes in base64. */
  body?: string | { base64: string };
  userData?: Record<string, unknown>;
  depth?: number;
  strategy?: string;
  skipNavigation?: true;
  noRetry?: true;
}

/** A request as a task. */
export interface Traveling {
  url: string;
  /** Empty: the canonical URL. */
  key: string;
  /** Empty for a plain GET, as most are: then the task is the same as one that was made without Crawlee. */
  payload: Uint8Array;
}

/**
 * Packs a request for another process. Only JSON travels: the error names the field that is none, because a value that gets lost on
 * the way would be missed by the handler of another machine.
 */
export function pack(request: Request): Traveling {
  const parcel: Parcel = { crawlee: 1 };
  if (request.method !== "GET") parcel.method = request.method;
  if (Object.keys(request.headers ?? {}).length > 0) parcel.headers = plain(request.headers, "headers", request.url) as Record<string, string>;
  if (request.payload !== undefined && request.payload !== null) parcel.body = body(request.payload, request.url);
  if (Object.keys(request.userData).length > 0) parcel.userData = plain({ ...request.userData }, "userData", request.url) as Record<string, unknown>;
  if (request.crawlDepth > 0) parcel.depth = request.crawlDepth;
  const strategy = request["enqueueStrategy"] as string | undefined; // private in its type
  if (strategy !== undefined && strategy !== "all") parcel.strategy = strategy;
  if (request.skipNavigation) parcel.skipNavigation = true;
  if (request.noRetry) parcel.noRetry = true;
  if (request.uniqueKey !== Request.computeUniqueKey({ url: request.url, method: "GET" })) parcel.uniqueKey = request.uniqueKey;
  return {
    url: request.url,
    key: parcel.uniqueKey ?? "",
    payload: Object.keys(parcel).length > 1 ? new TextEncoder().encode(JSON.stringify(parcel)) : new Uint8Array(),
  };
}

/** The options of the request that a task carries. A task that was made without Crawlee is a GET; its kind is the label. */
export function unpack(task: Task): RequestOptions {
  if (task.url === "") throw new TypeError("the task has no URL");
  const parcel: Parcel = task.payload.length > 0 ? opened(task.payload) : { crawlee: 1 };
  const options: RequestOptions & { enqueueStrategy?: string } = { id: task.id, url: task.url };
  if (parcel.uniqueKey) options.uniqueKey = parcel.uniqueKey;
  if (parcel.method) options.method = parcel.method as NonNullable<RequestOptions["method"]>;
  if (parcel.headers) options.headers = parcel.headers;
  if (parcel.body !== undefined) {
    // The type of Crawlee is a string; its clients take bytes as well.
    options.payload = typeof parcel.body === "string" ? parcel.body : Buffer.from(parcel.body.base64, "base64") as unknown as string;
  }
  options.userData = parcel.userData ?? {};
  if (task.kind && options.userData["label"] === undefined) options.userData["label"] = task.kind;
  if (parcel.depth) options.crawlDepth = parcel.depth;
  if (parcel.strategy) options.enqueueStrategy = parcel.strategy as never;
  if (parcel.skipNavigation) options.skipNavigation = true;
  if (parcel.noRetry) options.noRetry = true;
  return options;
}

function opened(payload: Uint8Array): Parcel {
  let found: unknown;
  try {
    found = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload));
  } catch {
    found = undefined;
  }
  if (typeof found !== "object" || found === null || (found as Parcel).crawlee !== 1) {
    throw new TypeError("the payload of the task was not made by @waggle/crawlee: submit the page without one");
  }
  return found as Parcel;
}

function body(payload: unknown, url: string): NonNullable<Parcel["body"]> {
  if (typeof payload === "string") return payload;
  if (payload instanceof Uint8Array) return { base64: Buffer.from(payload).toString("base64") };
  throw refusal(url, "payload", payload);
}

/** A copy of a value that is nothing but JSON. */
function plain(value: unknown, field: string, url: string, above: unknown[] = []): unknown {
  if (value === null || typeof value === "string" || typeof value === "boolean" || (typeof value === "number" && Number.isFinite(value))) return value;
  if (typeof value !== "object" || above.includes(value)) throw refusal(url, field, value, above.includes(value));
  const within = [...above, value];
  if (Array.isArray(value)) return value.map((one, i) => plain(one, `${field}[${i}]`, url, within));
  if (value instanceof Date || value instanceof URL) return value.toJSON(); // as every queue of Crawlee keeps them
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== null && prototype !== Object.prototype) throw refusal(url, field, value);
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined)
    .map(([name, one]) => [name, plain(one, `${field}.${name}`, url, within)]));
}

function refusal(url: string, field: string, value: unknown, circular = false): TypeError {
  const type = circular ? "a circular reference" : typeof value === "object" ? `a ${value?.constructor.name}` : `a ${typeof value} (${String(value)})`;
  return new TypeError(`the request for ${url} cannot travel to another process: ${field} is ${type.slice(0, 200)}, and only JSON travels`);
}
