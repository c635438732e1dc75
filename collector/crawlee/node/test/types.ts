// What a program in TypeScript writes: contexts of handlers are those of the class. It is compiled, not run.

import { CheerioCrawler, BasicCrawler, HttpCrawler } from "@crawlee/cheerio";
import { WaggleRequestManager } from "../src/index.js";
const waggle = await WaggleRequestManager.open({ servers: ["127.0.0.1:7070"], source: "x" });
const crawler = waggle.crawler(CheerioCrawler, {
  maxConcurrency: 3,
  async requestHandler({ $, request, enqueueLinks }) { const t: string = $("h1").text(); console.log(t, request.url); await enqueueLinks(); },
});
crawler.router.addDefaultHandler(({ $ }) => { $("a"); });
const stats = await crawler.run(["http://x/"]);
console.log(stats.requestsFinished);
waggle.crawler(BasicCrawler, { async requestHandler({ request, sendRequest }) { waggle.answered(request, await sendRequest()); } });
waggle.crawler(HttpCrawler, { requestHandler({ body }) { console.log(body.length); } });
