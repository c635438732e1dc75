import { hostname } from "node:os";

import type { ConnectionConfig } from "@waggle/collector";

/** A crawl: its source, and how to reach the dispatchers. */
export interface WaggleConfig extends ConnectionConfig {
  /** The source whose pages are crawled. It must exist: `waggle source create SOURCE`. */
  source: string;
  /**
   * The name of this process, 1 to 128 of [a-z0-9._-]. Two processes need two. Default: source, host name and process id, so each
   * start is another collector.
   */
  id?: string | undefined;
  /** For operators, to choose collectors to hold. At most 64. */
  labels?: Readonly<Record<string, string>> | undefined;
  /** How long each lease lasts between renewals, 1,000 to 3,600,000 ms. Default: the source's, else 30,000. */
  leaseMs?: number | undefined;
  /** The version of your program, for operators. At most 128 bytes. */
  version?: string | undefined;
}

const longestId = 128;
let made = 0; // names by this process: two managers in one process are two collectors

/** A name for a collector that no other process has. */
export function collectorId(source: string): string {
  made++;
  const tail = `-${hostname()}-${process.pid}${made > 1 ? `-${made}` : ""}`;
  return (source.slice(0, longestId - Math.min(tail.length, 100)) + tail).toLowerCase().replace(/[^a-z0-9._-]/g, "-").slice(-longestId);
}
