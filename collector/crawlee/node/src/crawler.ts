import { LeasedRequest } from "./leased.js";
import type { WaggleRequestManager } from "./manager.js";
import { refused } from "./options.js";

const usualSlots = 10;
const longestPoll = 0.25; // s: a task that comes wakes the crawler, so that this is for the rest

/** A class of Crawlee's crawlers. Each has options of its own. */
export type CrawlerClass = new (...args: any[]) => { run(...args: never[]): Promise<unknown> };

/** The crawler as this file knows it. Optional members are private in Crawlee: without them a task starts later, or there is no Crawl-delay. */
interface Insides {
  run(...args: unknown[]): Promise<unknown>;
  router?: (context: unknown) => unknown;
  autoscaledPool?: { notify?: () => unknown };
  robotsTxtFileCache?: { get?: (origin: string) => { robots?: { getCrawlDelay?: (agent: string) => number | undefined } } | null };
}

interface CrawlingContext {
  request: unknown;
  response?: { statusCode?: number; status?: number | (() => number); headers?: unknown };
  proxyInfo?: { hostname?: string; port?: number | string };
}

type Options = Record<string, unknown>;
type Hook = (context: CrawlingContext, ...rest: unknown[]) => unknown;

/** Makes a crawler whose requests are those of a manager. */
export function buildCrawler(manager: WaggleRequestManager, Class: CrawlerClass, options: Options, config: unknown): object {
  for (const [name, why] of Object.entries(refused)) if (options[name] !== undefined) throw new TypeError(`${name}: ${why}`);
  manager.ignore(options);

  const pool = (options["autoscaledPoolOptions"] ?? {}) as { maxConcurrency?: number; maybeRunIntervalSecs?: number };
  const slots = (options["maxConcurrency"] as number | undefined) ?? pool.maxConcurrency ?? usualSlots;
  const accepted = new Set((options["ignoreHttpErrorStatusCodes"] ?? []) as number[]);
  let crawler: Insides | undefined;
  const built = new Class({
    ...options,
    ...navigation(manager, Class, options),
    requestQueue: manager,
    requestHandler: handler(manager, options["requestHandler"] as Hook | undefined, () => crawler!.router!),
    failedRequestHandler: afterFailure(manager, options["failedRequestHandler"] as Hook | undefined),
    // Each attempt that Waggle repeats is one that Crawlee would.
    maxRequestRetries: Number.MAX_SAFE_INTEGER, maxSessionRotations: Number.MAX_SAFE_INTEGER,
    sameDomainDelaySecs: 0, maxRequestsPerMinute: undefined,
    // A lease that waits for a slot would delay its host: as many tasks are fetched as the crawler begins at once.
    minConcurrency: slots, maxConcurrency: slots,
    autoscaledPoolOptions: {
      maybeRunIntervalSecs: longestPoll, ...pool, desiredConcurrency: slots, minConcurrency: slots, maxConcurrency: slots,
    },
  }, ...(config === undefined ? [] : [config]));
  crawler = built as unknown as Insides;
  if (options["respectRobotsTxtFile"] && typeof crawler.robotsTxtFileCache?.get !== "function") {
    manager.log.warning(`Crawl-delay of robots.txt is not kept: ${Class.name} has no robotsTxtFileCache, as Crawlee 3.18 has`);
  }
  const agent = (options["respectRobotsTxtFile"] as { userAgent?: string } | undefined)?.userAgent ?? "*";
  const run = crawler.run.bind(crawler);
  crawler.run = async (...args) => {
    manager.begin({
      slots, accepted,
      wake: () => void crawler?.autoscaledPool?.notify?.(),
      crawlDelay: (url) => {
        const seconds = crawler?.robotsTxtFileCache?.get?.(new URL(url).origin)?.robots?.getCrawlDelay?.(agent);
        return typeof seconds === "number" && seconds >= 0 ? seconds * 1000 : undefined;
      },
    });
    try {
      return await run(...args);
    } finally {
      await manager.end();
    }
  };
  return built;
}

/** Hooks of crawlers that navigate by themselves: when a request begins, and what was answered. */
function navigation(manager: WaggleRequestManager, Class: CrawlerClass, options: Options): Options {
  const { optionsShape, name } = Class as { optionsShape?: object; name: string };
  if (!optionsShape && name !== "BasicCrawler") {
    throw new TypeError(`${name} has no optionsShape, as crawlers of Crawlee 3.18 have: its hooks are unknown, and a status 404 would be a success`);
  }
  if (!optionsShape || !("postNavigationHooks" in optionsShape)) return {}; // a BasicCrawler
  const begin: Hook = (context) => {
    const { request, proxyInfo } = context;
    if (!(request instanceof LeasedRequest)) return;
    request.work.began = performance.now();
    request.work.proxy = proxyInfo;
    request.work.answer = undefined;
    request.work.note = () => answer(context);
  };
  const answer: Hook = ({ request, response }) => {
    if (!response || !(request instanceof LeasedRequest) || request.work.answer) return;
    const ofBrowser = typeof response.status === "function"; // its status and headers are methods
    const { headers } = response;
    manager.answered(request, {
      statusCode: ofBrowser ? (response.status as () => number)() : response.statusCode ?? 0,
      headers: typeof headers === "function" ? headers.call(response) : headers,
    });
  };
  return {
    preNavigationHooks: [...(options["preNavigationHooks"] as Hook[] | undefined ?? []), begin],
    postNavigationHooks: [answer, ...(options["postNavigationHooks"] as Hook[] | undefined ?? [])],
  };
}

/** The user's handler, with notes of how far it came. A page that is no page, such as one with status 500, does not get there. */
function handler(manager: WaggleRequestManager, given: Hook | undefined, router: () => Hook): Hook {
  const wrapped: Hook = async (context, ...rest) => {
    const { request } = context;
    const leased = request instanceof LeasedRequest ? request : undefined;
    if (leased && !manager.isForHandler(leased)) throw new Error(`HTTP status ${leased.work.answer?.status}`);
    if (leased) leased.work.handling = true;
    const result = await (given ?? router())(context, ...rest);
    if (leased) {
      leased.work.handled = true;
      leased.work.failure = undefined; // it may have noted errors that it could deal with
    }
    return result;
  };
  // Crawlee looks for the schemas of a router at the handler.
  return given && "getSchema" in given ? Object.assign(wrapped, { getSchema: (given as { getSchema: unknown }).getSchema }) : wrapped;
}

/** The user's handler of failed requests, and then the report: a lease ends when the work on it has. */
function afterFailure(manager: WaggleRequestManager, given: Hook | undefined): Hook {
  return async (context, ...rest) => {
    try {
      return await given?.(context, ...rest);
    } finally {
      if (context.request instanceof LeasedRequest) manager.settle(context.request);
    }
  };
}
