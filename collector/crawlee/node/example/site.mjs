// A site to try the crawlers on: 120 books in lists of ten, a search, and a
// page for members, who come by the proxy at the second port.
//
//     node site.mjs 7090 7091

import http from "node:http";

const [port, proxyPort] = process.argv.slice(2).map(Number);
const books = 120;

http.createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url, "http://site");
  const send = (text, status = 200, type = "text/html") => {
    response.writeHead(status, { "content-type": type }).end(text);
  };
  const [, kind, rest] = pathname.split("/");
  switch (kind) {
    case "robots.txt":
      return send("User-agent: *\nDisallow: /private/\n", 200, "text/plain");
    case "": {
      const page = Number(searchParams.get("page") ?? 0);
      let text = `<h1>Books, page ${page}</h1><form action="/search"></form>`;
      for (let n = page * 10; n < page * 10 + 10; n++) {
        text += `<a class="book" href="/book/${n}">book</a>\n`;
      }
      if (page < books / 10 - 1) {
        text += `<a class="next" href="/?page=${page + 1}">next</a>`;
      }
      return send(text);
    }
    case "book":
      return send(`<h1>Book ${rest}</h1>`, rest < books ? 200 : 404);
    case "search": {
      let form = "";
      request.on("data", (part) => (form += part)).on("end", () => {
        send(`<h1>Found ${new URLSearchParams(form).get("q")}</h1>`);
      });
      return undefined;
    }
    case "members": {
      const member = request.headers.via === "1.1 members";
      return send(member ? "<h1>Welcome</h1>" : "<h1>No</h1>", member ? 200 : 403);
    }
    default:
      return send("<h1>Not here</h1>", 404);
  }
}).listen(port, "127.0.0.1");

http.createServer((request, response) => {
  const headers = { ...request.headers, via: "1.1 members" };
  const onward = http.request(request.url, { method: request.method, headers });
  onward.on("response", (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  }).on("error", () => response.writeHead(502).end());
  request.pipe(onward);
}).listen(proxyPort, "127.0.0.1");
