import { checkConnection, type ConnectionConfig } from "./connection.js";

/** A collector: who it is, and what it fetches. */
export interface CollectorConfig extends ConnectionConfig {
  /** Its name, the same after a restart: 1 to 128 of [a-z0-9._-]. Two processes need two. */
  id: string;
  /** How many tasks it works on at once, 1 to 1000. Default 4. */
  slots?: number | undefined;
  /** The pools to take from, at most 16. Default: `default`. */
  pools?: readonly string[] | undefined;
  /** Only tasks of these sources, at most 16. Default: all. */
  sources?: readonly string[] | undefined;
  /** Only tasks of these queues, at most 16. Default: all. */
  queues?: readonly string[] | undefined;
  /** For operators, to choose collectors to hold. At most 64. */
  labels?: Readonly<Record<string, string>> | undefined;
  /** How long a fetch waits for a task while there is no stream, 0 to 30,000 ms; on a stream it waits until there is one. Default 10,000. */
  waitMs?: number | undefined;
  /** How long each lease lasts between renewals, 1,000 to 3,600,000 ms. Default: the source's, else 30,000. */
  leaseMs?: number | undefined;
  /** How long handlers may go on after the stop; then their signals abort. Default 20,000 ms. */
  drainMs?: number | undefined;
  /** The version of your program, for operators. At most 128 bytes. */
  version?: string | undefined;
  /** Takes what people may want to know: a dispatcher away, a lease lost. Default: a line on stderr. */
  log?: ((message: string) => void) | undefined;
}

/** A checked configuration, with its defaults. */
export interface Settings extends ConnectionConfig {
  id: string;
  slots: number;
  pools: string[];
  sources: string[];
  queues: string[];
  labels: Record<string, string>;
  waitMs: number;
  leaseMs: number;
  drainMs: number;
  version: string;
  log: (message: string) => void;
}

/** Checks what dispatchers would refuse in each call. Errors name field, value and limit. */
export function checked(config: CollectorConfig): Settings {
  checkConnection(config);
  if (!/^[a-z0-9._-]{1,128}$/.test(config.id)) throw new RangeError(`id: ${JSON.stringify(config.id)}: want 1 to 128 of [a-z0-9._-]`);
  const within = (name: "slots" | "waitMs" | "leaseMs" | "drainMs", least: number, most: number, otherwise: number) => {
    const value = config[name];
    if (value === undefined) return otherwise;
    if (!Number.isInteger(value) || value < least || value > most) throw new RangeError(`${name}: ${value}: want ${least} to ${most}`);
    return value;
  };
  const list = (name: "pools" | "sources" | "queues") => {
    const values = config[name] ?? [];
    if (values.length > 16) throw new RangeError(`${name}: ${values.length} values: want at most 16`);
    return [...values];
  };
  const labels = Object.entries(config.labels ?? {}).length;
  if (labels > 64) throw new RangeError(`labels: ${labels} pairs: want at most 64`);
  return {
    ...config,
    slots: within("slots", 1, 1000, 4),
    waitMs: within("waitMs", 0, 30_000, 10_000),
    leaseMs: within("leaseMs", 1000, 3_600_000, 0),
    drainMs: within("drainMs", 0, 3_600_000, 20_000),
    pools: list("pools"), sources: list("sources"), queues: list("queues"),
    labels: { ...config.labels },
    version: config.version ?? "",
    log: config.log ?? ((message) => console.error(`waggle: ${message}`)),
  };
}
