// Lists and details: follows the pages of a list, and stores each book.
//
//     node books.mjs http://127.0.0.1:7090/

import { CheerioCrawler, Dataset } from "@crawlee/cheerio";
import { WaggleRequestManager } from "@waggle/crawlee";

const [, , start] = process.argv;
const waggle = await WaggleRequestManager.open({
  servers: [process.env.WAGGLE_SERVER ?? "127.0.0.1:7070"],
  source: "books",
});
const crawler = waggle.crawler(CheerioCrawler, {
  maxConcurrency: 8,
  respectRobotsTxtFile: true,
});

crawler.router.addDefaultHandler(async ({ enqueueLinks }) => {
  await enqueueLinks({ selector: "a.book", label: "book" });
  await enqueueLinks({ selector: "a.next" });
});

// A named dataset: the next start empties the one without a name.
const books = await Dataset.open("books");
crawler.router.addHandler("book", async ({ request, $ }) => {
  await books.pushData({ url: request.url, title: $("h1").text() });
});

await crawler.run([start]);
