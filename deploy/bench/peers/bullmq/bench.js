'use strict';
// Submits tasks, then fetches and reports them, then does both at once beside as
// many that wait, and writes the rates, in tasks a second, as one line of JSON.
// Arguments: socket tasks batch workers concurrency

const { Queue, Worker } = require('bullmq');
const IORedis = require('ioredis');

const [socket] = process.argv.slice(2);
const [tasks, batch, workers, concurrency] = process.argv.slice(3).map(Number);
const adding = 16; // calls at once
const connect = () => new IORedis(socket, { maxRetriesPerRequest: null });
const rate = (began) => tasks / (Number(process.hrtime.bigint() - began) / 1e9);
const payload = { payload: 'x'.repeat(200) };
const opts = { removeOnComplete: true };

async function submit(queue) {
  const began = process.hrtime.bigint();
  let next = 0;
  const add = async () => {
    while (next < tasks) {
      const n = Math.min(batch, tasks - next);
      next += n;
      if (batch === 1) await queue.add('crawl', payload, opts);
      else await queue.addBulk(Array.from({ length: n }, () => ({ name: 'crawl', data: payload, opts })));
    }
  };
  await Promise.all(Array.from({ length: adding }, add));
  return rate(began);
}

async function work(name, beside) {
  const began = process.hrtime.bigint();
  let handled = 0;
  let finish;
  const done = new Promise((resolve) => { finish = resolve; });
  const running = Array.from({ length: workers }, () => {
    const worker = new Worker(name, async () => {}, { connection: connect(), concurrency });
    worker.on('completed', () => { if (++handled === tasks) finish(rate(began)); });
    worker.on('error', (err) => { console.error(err); process.exit(1); });
    return worker;
  });
  await beside();
  const result = await done;
  await Promise.all(running.map((worker) => worker.close()));
  return result;
}

async function main() {
  const queue = new Queue('bench', { connection: connect() });
  await queue.waitUntilReady();
  const result = {};
  result.submit = await submit(queue);
  result.work = await work('bench', async () => {});
  await submit(queue); // what waits
  result.life = await work('bench', () => submit(queue));
  console.log(JSON.stringify(result));
  process.exit(0);
}

main().catch((err) => { console.error(err); process.exit(1); });
