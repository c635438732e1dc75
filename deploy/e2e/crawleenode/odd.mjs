// Crawlers that meet trouble: the first argument is which one. SITE is where pages are.

import { once } from "node:events";

import { Code, ConnectError } from "@connectrpc/connect";
import { BasicCrawler, CheerioCrawler, Configuration, HttpCrawler, NonRetryableError, ProxyConfiguration } from "@crawlee/cheerio";
import { WaggleRequestManager } from "@waggle/crawlee";

const { SERVER, SOURCE, SITE, TOKEN_FILE } = process.env;
Configuration.getGlobalConfig().set("persistStorage", false);

const waggle = await WaggleRequestManager.open({ servers: [SERVER], source: SOURCE, tokenFile: TOKEN_FILE });
const site = (path) => SITE + path;

const cases = {
  /** One page, and a second start finds nothing to do. */
  async page() {
    await waggle.crawler(CheerioCrawler, { requestHandler() {} }).run([site("/page")]);
  },

  /** Statuses, errors, and what handlers do. */
  async failures() {
    const crawler = waggle.crawler(CheerioCrawler, {
      navigationTimeoutSecs: 2, ignoreHttpErrorStatusCodes: [418], additionalMimeTypes: ["text/plain"],
      requestHandler({ request }) {
        if (request.url.endsWith("/throws")) throw new Error(`\u001b[2mthe handler\u0007\ndoes not like it\u001b[22m ${"ü".repeat(2000)}`);
        if (request.url.endsWith("/hopeless")) throw new NonRetryableError("never again");
      },
      failedRequestHandler: ({ request }) => console.log(`given up: ${request.url}`),
      errorHandler: ({ request }) => console.log(`once more: ${request.url}`),
    });
    const refused = "http://127.0.0.1:1/";
    await crawler.run([
      ...["/status/404", "/status/410", "/status/403", "/status/500", "/status/503", "/status/418", "/status/400", "/busy", "/pdf",
        "/throws", "/hopeless", "/cut", "/slow", "/page"].map(site),
      site("/tls").replace("http:", "https:"),
      refused, "http://no-such-host.invalid/",
    ]);
  },

  /** Links that are refused, or cannot be sent to another process. */
  async links() {
    const crawler = waggle.crawler(HttpCrawler, {
      async requestHandler({ request, addRequests }) {
        if (request.url.endsWith("/function")) await addRequests([{ url: site("/never"), userData: { deep: { parse: () => 1 } } }]);
        if (request.url.endsWith("/map")) await addRequests([{ url: site("/never"), userData: { seen: new Map() } }]);
        if (request.url.endsWith("/large")) await addRequests([{ url: site("/never"), method: "POST", payload: "x".repeat(262_144) }]);
        if (request.url.endsWith("/enormous")) await addRequests([{ url: site("/never"), userData: { text: "x".repeat(5 << 20) } }]);
        if (request.url.endsWith("/just")) await addRequests([{ url: site("/ok/2"), uniqueKey: "k".repeat(3000), userData: { text: "x".repeat(250_000) } }]);
        if (request.url.endsWith("/refused")) {
          const long = `http://long.example/${"x".repeat(2035)}`;
          const { addedRequests } = await addRequests([long, "http://ada:secret@example.com/", "http://ada:secret@example.com/2", site("/ok")]);
          if (addedRequests.length !== 1) throw new Error(`${addedRequests.length} requests added`);
        }
      },
    });
    await crawler.run(["/function", "/map", "/large", "/enormous", "/just", "/refused"].map(site));
  },

  /** What of a request arrives in another process. */
  async request() {
    const sent = {
      url: site("/echo?b=1&a=2#part"), method: "PUT", payload: Buffer.from([0, 255, 10]), headers: { "x-mine": "yes" },
      userData: { list: [1, { two: "zwei" }], none: null }, label: "echo", uniqueKey: "mine", crawlDepth: 3,
    };
    const crawler = waggle.crawler(HttpCrawler, { additionalMimeTypes: ["text/plain"] });
    crawler.router.addHandler("echo", ({ request, body }) => {
      const { uniqueKey, label, crawlDepth, userData, url } = request;
      console.log(`received: ${JSON.stringify({ url, uniqueKey, label, crawlDepth, userData: { ...userData }, body: body.toString() })}`);
    });
    crawler.router.addHandler("bare", ({ sendRequest, request }) => console.log(`bare: ${request.skipNavigation}`));
    await crawler.run([sent, { url: site("/bare"), label: "bare", skipNavigation: true }]);
  },

  /** Crawlers without what this package uses of them, and errors of gRPC itself. */
  async missing() {
    class Hookless extends CheerioCrawler {
      static optionsShape = undefined;
    }
    try {
      waggle.crawler(Hookless, { requestHandler() {} });
    } catch (error) {
      console.log(error.message);
    }
    class Cacheless extends CheerioCrawler {
      robotsTxtFileCache = undefined;
    }
    waggle.crawler(Cacheless, { respectRobotsTxtFile: true, requestHandler() {} });
    const { isTooLarge } = await import(new URL("calls.js", import.meta.resolve("@waggle/crawlee")));
    const [large, away] = [Code.ResourceExhausted, Code.Unavailable].map((code) => isTooLarge(new ConnectError("no reason", code)));
    console.log(`too large: ${large}, away: ${away}`);
  },

  /** The handler throws at a page that is not there. */
  async thrown() {
    const requestHandler = ({ response }) => {
      throw new Error(`status ${response.statusCode}`);
    };
    const options = { maxRequestRetries: 2, additionalMimeTypes: ["text/plain"], requestHandler };
    await waggle.crawler(CheerioCrawler, options).run([site("/status/404"), site("/status/400")]);
  },

  /** It waits long for the next attempt. */
  async waiting() {
    const requestHandler = ({ request }) => {
      if (request.url.endsWith("/later")) throw new Error("not now");
    };
    const crawler = waggle.crawler(CheerioCrawler, { requestHandler });
    process.once("SIGTERM", () => crawler.stop());
    await crawler.run(process.argv[3] === "again" ? [site("/page")] : [site("/page"), site("/later")]);
  },

  /** A page submits links after SIGHUP, and may take 5 s. */
  async away() {
    const crawler = waggle.crawler(CheerioCrawler, {
      requestHandlerTimeoutSecs: 5,
      async requestHandler({ addRequests }) {
        const proceeds = once(process, "SIGHUP");
        console.log("the handler waits");
        await proceeds;
        await addRequests([site("/never")]).catch((error) => console.log(error.message));
      },
    });
    process.once("SIGTERM", () => crawler.stop());
    await crawler.run([site("/page")]);
  },

  /** A crawler that makes its requests itself. */
  async basic() {
    const crawler = waggle.crawler(BasicCrawler, {
      async requestHandler({ request, sendRequest }) {
        const response = await sendRequest({ throwHttpErrors: false });
        waggle.answered(request, response);
        if (response.statusCode !== 200) throw new Error(`HTTP status ${response.statusCode}`);
      },
    });
    await crawler.run([site("/page"), site("/busy"), site("/status/404")]);
  },

  /** Its proxy does not answer. */
  async proxy() {
    const proxyConfiguration = new ProxyConfiguration({ proxyUrls: ["http://127.0.0.1:1"] });
    await waggle.crawler(CheerioCrawler, { proxyConfiguration, requestHandler() {} }).run([site("/page")]);
  },

  /** It ends early, and gives back what it has. */
  async early() {
    await waggle.crawler(CheerioCrawler, { maxRequestsPerCrawl: 2, maxConcurrency: 1, requestHandler() {} })
      .run(["/1", "/2", "/3", "/4"].map((path) => site("/page" + path)));
  },

  /** It never ends by itself. */
  async forever() {
    await waggle.crawler(CheerioCrawler, { keepAlive: true, requestHandler() {} }).run();
  },

  /** It ends by SIGTERM, as in the README. */
  async stopped() {
    const crawler = waggle.crawler(CheerioCrawler, { keepAlive: true, requestHandler() {} });
    process.once("SIGTERM", () => crawler.stop());
    await crawler.run();
  },

  /** robots.txt is Crawlee's: what it forbids is not asked for, and its delay is kept by all. */
  async robots() {
    await waggle.crawler(CheerioCrawler, { respectRobotsTxtFile: true, requestHandler() {} }).run();
  },

  /** A label without a route ends the crawl, as it does without Waggle. */
  async route() {
    await waggle.crawler(CheerioCrawler, {}).run([{ url: site("/page"), label: "nobody" }]);
  },
};

await cases[process.argv[2]]();
