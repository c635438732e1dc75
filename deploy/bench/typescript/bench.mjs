// Fetches and reports tasks with one slot, and writes the rate, in tasks a second, as one line of JSON.
// Arguments: address tasks

import { collect, succeeded } from "../../../collector/typescript/dist/index.js";

const [server, count] = [process.argv[2], Number(process.argv[3])];
const stop = new AbortController();
const seen = new Set();
const began = performance.now();
await collect({ servers: [server], id: "bench-1", slots: 1 }, async (task) => {
  if (seen.has(task.id)) throw new Error(`${task.id} was handed out twice`);
  seen.add(task.id);
  if (seen.size === count) stop.abort();
  return succeeded();
}, stop.signal);
console.log(JSON.stringify({ work: count / ((performance.now() - began) / 1000) }));
