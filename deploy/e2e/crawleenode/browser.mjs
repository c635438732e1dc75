// Crawls the shop of shop_test.go by a browser: with SERVER by Waggle, without it as Crawlee does alone.

import { appendFile } from "node:fs/promises";

import { Configuration, EnqueueStrategy, PlaywrightCrawler } from "@crawlee/playwright";
import { WaggleRequestManager } from "@waggle/crawlee";

const { SERVER, SOURCE, START_URL, OUT, CHROMIUM } = process.env;

const options = {
  maxConcurrency: 2,
  respectRobotsTxtFile: true,
  launchContext: { launchOptions: { executablePath: CHROMIUM, args: ["--no-sandbox"] } },
  async requestHandler({ request, response, page, addRequests, enqueueLinks }) {
    if (response.status() !== 200) return;
    await appendFile(OUT, `${JSON.stringify({ url: request.loadedUrl, title: await page.textContent("h1.title") })}\n`);
    if (request.label === "search") return;
    await enqueueLinks({ selector: "a", strategy: EnqueueStrategy.SameHostname });
    if (await page.locator("form").count() === 0) return;
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
  crawler = waggle.crawler(PlaywrightCrawler, options);
} else {
  crawler = new PlaywrightCrawler(options);
}
await crawler.run([START_URL]);
