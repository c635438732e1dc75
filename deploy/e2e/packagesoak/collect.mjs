// Fetches pages with the TypeScript package: node collect.mjs SERVER

import { collect, succeeded } from "../../../collector/typescript/dist/index.js";

const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
await collect({ servers: [process.argv[2]], id: "typescript", slots: 8 }, async (task, { signal }) => {
  const page = await fetch(task.url, { signal });
  return succeeded({ httpStatus: page.status, bytes: BigInt((await page.text()).length) });
}, stop.signal);
