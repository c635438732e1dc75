import { createHash } from "node:crypto";

import { Request, type RequestOptions } from "@crawlee/core";
import type { Task } from "@waggle/collector";

export const maxUrl = 2048; // bytes, of a URL or a key
const maxPayload = 262_144; // bytes

/** The payload of a task: a request without its URL. Fields with their default are left out. */
interface Payload {
  /** The tag: the package that wrote the payload, and the version of the format. */
  "crawlee-js": 1;
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
export interface Link {
  url: string;
  /** Empty: the canonical URL. */
  key: string;
  /** Empty for a plain GET, as most are: then the task is the same as one that was made without Crawlee. */
  payload: Uint8Array;
}

/**
 * Packs a request for another process. It throws a TypeError that names a field with anything but JSON, and a RangeError if the
 * payload is too large: the page that has the link fails, because the handler on another machine would miss the value.
 */
export function pack(request: Request): Link {
  const fields: Payload = { "crawlee-js": 1 };
  if (request.method !== "GET") fields.method = request.method;
  if (Object.keys(request.headers ?? {}).length > 0) fields.headers = plain(request.headers, "headers", request.url) as Record<string, string>;
  if (request.payload !== undefined && request.payload !== null) fields.body = body(request.payload, request.url);
  if (Object.keys(request.userData).length > 0) fields.userData = plain({ ...request.userData }, "userData", request.url) as Record<string, unknown>;
  if (request.crawlDepth > 0) fields.depth = request.crawlDepth;
  const strategy = request["enqueueStrategy"] as string | undefined; // private in its type
  if (strategy !== undefined && strategy !== "all") fields.strategy = strategy;
  if (request.skipNavigation) fields.skipNavigation = true;
  if (request.noRetry) fields.noRetry = true;
  if (request.uniqueKey !== Request.computeUniqueKey({ url: request.url, method: "GET" })) fields.uniqueKey = request.uniqueKey;
  const payload = Object.keys(fields).length > 1 ? new TextEncoder().encode(JSON.stringify(fields)) : new Uint8Array();
  if (payload.length > maxPayload) {
    throw new RangeError(`${unsendable(request.url)}: payload, headers and userData have ${payload.length} bytes, most of them ` +
      `${largestOf(fields)}, and the limit is ${maxPayload}`);
  }
  return { url: request.url, key: shortened(fields.uniqueKey ?? ""), payload };
}

/** A key that a dispatcher takes: the digest of one that is too long. */
function shortened(key: string): string {
  return Buffer.byteLength(key) > maxUrl ? `sha256:${createHash("sha256").update(key).digest("hex")}` : key;
}

function largestOf({ body, headers, userData }: Payload): string {
  const sizes = Object.entries({ payload: body, headers, userData }).map(([name, value]) => [JSON.stringify(value ?? null).length, name] as const);
  return sizes.reduce((a, b) => (b[0] > a[0] ? b : a))[1];
}

/** The options of the request of a task. A task without a payload is a GET; its kind is the label. */
export function unpack(task: Task): RequestOptions {
  if (task.url === "") throw new TypeError("the task has no URL");
  const fields: Payload = task.payload.length > 0 ? parsed(task.payload) : { "crawlee-js": 1 };
  const options: RequestOptions & { enqueueStrategy?: string } = { id: task.id, url: task.url };
  if (fields.uniqueKey) options.uniqueKey = fields.uniqueKey;
  if (fields.method) options.method = fields.method as NonNullable<RequestOptions["method"]>;
  if (fields.headers) options.headers = fields.headers;
  if (fields.body !== undefined) {
    // The type of Crawlee is a string; its clients take bytes as well.
    options.payload = typeof fields.body === "string" ? fields.body : Buffer.from(fields.body.base64, "base64") as unknown as string;
  }
  options.userData = fields.userData ?? {};
  if (task.kind && options.userData["label"] === undefined) options.userData["label"] = task.kind;
  if (fields.depth) options.crawlDepth = fields.depth;
  if (fields.strategy) options.enqueueStrategy = fields.strategy as never;
  if (fields.skipNavigation) options.skipNavigation = true;
  if (fields.noRetry) options.noRetry = true;
  return options;
}

function parsed(payload: Uint8Array): Payload {
  let found: unknown;
  try {
    found = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload));
  } catch {
    found = undefined;
  }
  if (typeof found !== "object" || found === null || Array.isArray(found)) {
    throw new TypeError("the payload of the task is no JSON object of @waggle/crawlee: submit the page without a payload");
  }
  const { "crawlee-js": version } = found as Partial<Payload>;
  if (version === undefined) {
    const [tag = ""] = Object.keys(found);
    throw new TypeError(`the payload of the task has the tag "${tag.slice(0, 100)}", and @waggle/crawlee reads only "crawlee-js": ` +
      "submit the page without a payload");
  }
  if (version !== 1) throw new TypeError(`the payload of the task has version ${String(version).slice(0, 100)} of "crawlee-js", and this package reads 1`);
  return found as Payload;
}

function body(payload: unknown, url: string): NonNullable<Payload["body"]> {
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
  return new TypeError(`${unsendable(url)}: ${field} is ${type.slice(0, 200)}, and only JSON can be sent`);
}

const unsendable = (url: string): string => `the request for ${url.slice(0, 200)} cannot be sent to another process`;
