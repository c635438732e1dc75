#!/bin/sh
# Crawlee 3.18.1 (JavaScript): the documented option requestManager is refused by every crawler, so no request manager can be passed by it.
#
# BasicCrawlerOptions has requestManager in its types and documentation ("explicitly configuring a request manager"), and the constructor
# of BasicCrawler has code that takes it. Before that, the constructor checks its options against a list with exact shape, in
# which requestManager is missing, and so does HttpCrawler with a list of its own. A manager, the RequestManagerTandem that the
# documentation names too, can be passed only as requestQueue, against its type: the option's code does the same inside.
#
# Seen:
#   BasicCrawler    { requestManager: tandem }   ArgumentError: Did not expect property `requestManager` to exist ...
#   HttpCrawler     { requestManager: tandem }   the same
#   CheerioCrawler  { requestManager: tandem }   the same
#   CheerioCrawler  { requestQueue: tandem }     made
#
# Needs Node 20, npm and its registry. Fails when the behavior changes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund @crawlee/basic@3.18.1 @crawlee/http@3.18.1 @crawlee/cheerio@3.18.1 @crawlee/core@3.18.1
cat > make.mjs <<'JS'
import { BasicCrawler } from "@crawlee/basic";
import { CheerioCrawler } from "@crawlee/cheerio";
import { RequestList, RequestManagerTandem, RequestQueue } from "@crawlee/core";
import { HttpCrawler } from "@crawlee/http";

const queue = await RequestQueue.open();
const manager = new RequestManagerTandem(await RequestList.open(null, ["http://example.test/"]), queue);
const seen = [];
for (const [Crawler, option] of [
  [BasicCrawler, "requestManager"], [HttpCrawler, "requestManager"], [CheerioCrawler, "requestManager"], [CheerioCrawler, "requestQueue"],
]) {
  let answer = "made";
  try {
    new Crawler({ [option]: manager, requestHandler() {} });
  } catch (error) {
    answer = `${error.name}: ${error.message.split("\n")[0]}`;
  }
  console.log(Crawler.name, option, answer);
  seen.push(answer.split(":")[0]);
}
if (seen.join() !== "ArgumentError,ArgumentError,ArgumentError,made") {
  console.error("the behavior has changed");
  process.exitCode = 1;
}
JS
node make.mjs
