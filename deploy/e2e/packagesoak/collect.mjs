// Fetches pages with the TypeScript package: node collect.mjs grpc|connect-json SERVER

import { collect, succeeded } from "../../../collector/typescript/dist/index.js";

const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
const [, , transport, server] = process.argv;
await collect({ servers: [server], transport, id: `typescript-${transport}`, slots: 8 }, async (task, { signal }) => {
  const page = await fetch(task.url, { signal });
  return succeeded({ httpStatus: page.status, bytes: BigInt((await page.text()).length) });
}, stop.signal);
