// A form, sent by POST, and a page that only a proxy may see.
//
//     node search.mjs http://127.0.0.1:7090/ http://127.0.0.1:7091

import { CheerioCrawler, Dataset, ProxyConfiguration } from "@crawlee/cheerio";
import { WaggleRequestManager } from "@waggle/crawlee";

const [, , start, proxy] = process.argv;
const waggle = await WaggleRequestManager.open({
  servers: [process.env.WAGGLE_SERVER ?? "127.0.0.1:7070"],
  source: "search",
});
const crawler = waggle.crawler(CheerioCrawler, {
  maxConcurrency: 4,
  // The proxy is chosen in the process that makes the request.
  proxyConfiguration: new ProxyConfiguration({
    newUrlFunction: (_session, { request } = {}) =>
      request?.label === "members" ? proxy : null,
  }),
});

const results = await Dataset.open("results");
const store = async ({ request, $ }) => {
  await results.pushData({ url: request.url, title: $("h1").text() });
};
crawler.router.addHandler("results", store);
crawler.router.addHandler("members", store);

// The form's first page: its fields go with the requests, to whatever process
// makes them. With useExtendedUniqueKey, method and body are part of a key.
crawler.router.addDefaultHandler(async ({ $, addRequests, request }) => {
  const action = new URL($("form").attr("action"), request.loadedUrl).href;
  await addRequests(["ant", "bee", "cicada"].map((word) => ({
    url: action, label: "results", method: "POST", useExtendedUniqueKey: true,
    headers: { "content-type": "application/x-www-form-urlencoded" },
    payload: new URLSearchParams({ q: word }).toString(),
    userData: { word },
  })));
  const members = new URL("/members", request.loadedUrl).href;
  await addRequests([{ url: members, label: "members" }]);
});

await crawler.run([start]);
