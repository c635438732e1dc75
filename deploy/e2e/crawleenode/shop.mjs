// Crawls the shop of shop_test.go: with SERVER by Waggle, without it as Crawlee does alone.

import { appendFile } from "node:fs/promises";

import { CheerioCrawler, Configuration, EnqueueStrategy } from "@crawlee/cheerio";
import { WaggleRequestManager } from "@waggle/crawlee";

const { SERVER, SOURCE, START_URL, OUT } = process.env;

const options = {
  maxConcurrency: 8,
  respectRobotsTxtFile: true,
  async requestHandler({ request, response, $, addRequests, enqueueLinks }) {
    if (response.statusCode !== 200) return;
    await appendFile(OUT, `${JSON.stringify({ url: request.loadedUrl, title: $("h1.title").text() })}\n`);
    if (request.label === "search") return;
    await enqueueLinks({ selector: "a", strategy: EnqueueStrategy.SameHostname });
    if ($("form").length === 0) return;
    await addRequests(Array.from({ length: 10 }, (_, q) => ({
      url: new URL("/search", request.loadedUrl).href, method: "POST", payload: `q=${q}`, useExtendedUniqueKey: true, label: "search",
      headers: { "content-type": "application/x-www-form-urlencoded" },
    })));
  },
};

Configuration.getGlobalConfig().set("persistStorage", false);
let crawler;
if (SERVER) {
  const waggle = await WaggleRequestManager.open({ servers: [SERVER], source: SOURCE });
  crawler = waggle.crawler(CheerioCrawler, options);
} else {
  crawler = new CheerioCrawler(options);
}
await crawler.run([START_URL]);
