// Crawls a site with Crawlee's CheerioCrawler, and writes its rate, in pages a second, as one line of JSON: as Crawlee does alone, or by
// Waggle when there is a server. Arguments: start URL, pages, concurrency, and perhaps server and source

import { createRequire } from "node:module";

import { connect, createClient, QueueService } from "../../../../collector/typescript/dist/index.js";
import { WaggleRequestManager } from "../../../../collector/crawlee/node/dist/index.js";

// The copy of Crawlee that the package has.
const { CheerioCrawler, log, LogLevel } = createRequire(new URL("../../../../collector/crawlee/node/package.json", import.meta.url))("@crawlee/cheerio");
log.setLevel(LogLevel.WARNING);

const [, , start, count, concurrency, server, source] = process.argv;
const pages = Number(count);
const seen = new Set();
let last;
const options = {
  minConcurrency: server ? undefined : Number(concurrency), maxConcurrency: Number(concurrency),
  async requestHandler({ request, $, enqueueLinks }) {
    if (seen.has(request.url)) throw new Error(`${request.url} was crawled twice`);
    seen.add(request.url);
    $("h1").text();
    await enqueueLinks({ strategy: "all" });
    last = performance.now();
  },
};
let crawler;
if (server) {
  const rule = { pattern: new URL(start).host, minDelay: { seconds: 0n, nanos: 0 }, maxInFlight: 1000 };
  await createClient(QueueService, connect({ servers: [server] })).setQueueRule({ rule, by: "bench", reason: "bench" });
  crawler = (await WaggleRequestManager.open({ servers: [server], source })).crawler(CheerioCrawler, options);
} else {
  crawler = new CheerioCrawler(options);
}
const began = performance.now();
await crawler.run([start]);
if (seen.size !== pages) throw new Error(`${seen.size} of ${pages} pages were crawled`);
console.log(JSON.stringify({ rate: pages / ((last - began) / 1000) }));
process.exit(); // the connections of Crawlee's client stay for some seconds
