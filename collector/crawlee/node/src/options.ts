/** Options of crawlers for what Waggle does: those that are refused, and those that have no effect. */

/** Options without which a manager cannot do its work. */
export const refused: Readonly<Record<string, string>> = {
  requestQueue: "the requests come from Waggle",
  requestList: "the requests come from Waggle: add the URLs by run() or addRequests()",
  requestManager: "the requests come from Waggle",
  handleRequestFunction: "its name is requestHandler",
  handlePageFunction: "its name is requestHandler",
  handleFailedRequestFunction: "its name is failedRequestHandler",
};

/** A line for each given option that has no effect, with the command that has the effect of its value. */
export function ineffective(options: Readonly<Record<string, unknown>>, source: string, maxAttempts: number): string[] {
  const attempts = (retries: unknown) => `Waggle makes ${maxAttempts} attempts of a page of ${source}. ` +
    `To change that: waggle source update ${source} --max-attempts ${typeof retries === "number" ? Math.max(1, retries + 1) : "NUMBER"}`;
  const delay = (seconds: number) => "Waggle keeps the delay of a host. " +
    `To set it: waggle queue rule set HOST --min-delay ${isFinite(seconds) ? `${Math.ceil(seconds * 1000)}ms` : "TIME"}`;
  const instead: Readonly<Record<string, (value: unknown) => string>> = {
    maxRequestRetries: attempts,
    maxSessionRotations: () => attempts(undefined),
    maxRequestsPerMinute: (perMinute) => delay(60 / Number(perMinute)),
    sameDomainDelaySecs: (seconds) => delay(Number(seconds)),
    minConcurrency: () => "the number of requests at a time is always maxConcurrency",
  };
  return Object.entries(instead).filter(([name]) => options[name] !== undefined)
    .map(([name, line]) => `${name} ${String(options[name])} has no effect: ${line(options[name])}`);
}
