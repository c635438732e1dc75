// A crawler: it fetches pages, stores their bodies under out/, and reports their links. Add robots.txt and a contact in USER_AGENT
// before you crawl sites that are not yours.
//
//     node crawler.mjs --server 127.0.0.1:7070 --id ts-1 --out pages

import { mkdir, rename, writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";

import { collect, durationFromMs, failed, FailureReason, Relation, succeeded } from "@waggle/collector";
import { Parser } from "htmlparser2";

const USER_AGENT = "waggle-typescript-example/1";
const MAX_BODY = 8 << 20;

const { values: flags } = parseArgs({
  options: {
    server: { type: "string", multiple: true, default: ["127.0.0.1:7070"] },
    id: { type: "string", default: "ts-1" },
    out: { type: "string", default: "pages" },
  },
});
await mkdir(flags.out, { recursive: true });
const stop = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => stop.abort());

await collect({ servers: flags.server, id: flags.id, slots: 8 }, crawl, stop.signal);

async function crawl(task, { signal, fence, left }) {
  const began = performance.now();
  const fetchDuration = () => durationFromMs(performance.now() - began);
  const headers = { "user-agent": USER_AGENT };
  if (task.memo?.length) headers["if-none-match"] = new TextDecoder().decode(task.memo); // the ETag of the last crawl
  let page;
  const chunks = [];
  try {
    page = await fetch(task.url, { headers, redirect: "manual", signal: AbortSignal.any([signal, AbortSignal.timeout(20_000)]) });
    let size = 0;
    for await (const chunk of page.body ?? []) {
      chunks.push(chunk);
      if ((size += chunk.length) > MAX_BODY) return failed({ reason: FailureReason.TOO_LARGE, permanent: true });
    }
  } catch (error) {
    return failed({ reason: reasonOf(error), message: String(error.cause ?? error), fetchDuration: fetchDuration() });
  }
  const answer = { httpStatus: page.status, fetchDuration: fetchDuration() };
  const location = page.headers.get("location");
  if (page.status === 304) return succeeded({ ...answer, changed: false });
  if (page.status >= 300 && page.status < 400 && location) {
    return succeeded({ ...answer, discovered: [{ url: new URL(location, task.url).href, relation: Relation.REDIRECT }] });
  }
  if (!page.ok) return refused(page, answer);

  const body = Buffer.concat(chunks);
  if (left() === 0) throw signal.reason; // the lease has ended: write nothing
  // Of one task and cycle the highest fence counts.
  const path = `${flags.out}/${task.id}.${task.cycle}.${fence}`;
  await writeFile(`${path}.tmp`, body);
  await rename(`${path}.tmp`, `${path}.body`);
  return succeeded({
    ...answer, bytes: BigInt(body.length), memo: Buffer.from(page.headers.get("etag") ?? "").subarray(0, 4096),
    discovered: page.headers.get("content-type")?.startsWith("text/html") ? links(body.toString(), task.url) : [],
  });
}

/** The links of a page, each once, without fragments. */
function links(html, base) {
  const found = new Set();
  const parser = new Parser({
    onopentag(name, { href }) {
      if (!href || !["a", "area", "base"].includes(name) || !URL.canParse(href, base)) return;
      const url = new URL(href, base);
      if (name === "base") base = url.href;
      url.hash = "";
      if (name !== "base" && /^https?:$/.test(url.protocol) && url.href.length <= 2048) found.add(url.href);
    },
  });
  parser.end(html);
  return [...found].map((url) => ({ url }));
}

function reasonOf(error) {
  if (error.name === "TimeoutError") return FailureReason.TIMEOUT;
  const code = error.cause?.code ?? "";
  if (/^(ENOTFOUND|EAI_AGAIN)$/.test(code)) return FailureReason.DNS;
  if (/^(ECONNRESET|UND_ERR_SOCKET)$/.test(code)) return FailureReason.CONNECTION_LOST;
  if (/CERT|TLS|SSL/.test(code)) return FailureReason.TLS;
  return FailureReason.CONNECT;
}

/** The outcome of a page that answered with an error. Its Retry-After is reported, never slept through: the lease would run out. */
function refused(page, answer) {
  const after = page.headers.get("retry-after") ?? "";
  const seconds = /^\d+$/.test(after) ? Number(after) : Math.ceil((Date.parse(after) - Date.now()) / 1000);
  const reasons = {
    401: "FORBIDDEN", 403: "FORBIDDEN", 404: "NOT_FOUND", 410: "GONE", 429: "THROTTLED", 451: "FORBIDDEN",
  };
  const otherwise = page.status >= 500 ? (page.status === 503 && after ? "THROTTLED" : "SERVER_ERROR") : "CLIENT_ERROR";
  return failed({
    ...answer, reason: FailureReason[reasons[page.status] ?? otherwise],
    ...(seconds > 0 ? { retryAfter: durationFromMs(Math.min(seconds, 366 * 86400) * 1000) } : {}),
  });
}
