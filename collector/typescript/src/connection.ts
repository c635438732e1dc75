import { readFileSync, statSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { isIP } from "node:net";

import { Code, createClient, type Client, type Interceptor, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import { codeOf, isAway } from "./errors.js";
import { DispatchService } from "./gen/waggle/v1/dispatch_service_pb.js";
import { readMaxBytes, unaryGrpc, workGrpc, type OpenWork } from "./grpc.js";
import { version } from "./version.js";
import { Backoff, now } from "./wait.js";

/** How to reach the dispatchers. */
export interface ConnectionConfig {
  /** The dispatchers, each as HOST:PORT. Each call goes to the next one that is not away. */
  servers: readonly string[];
  /**
   * `grpc` (default): gRPC over HTTP/2, at the dispatchers' gRPC port. `connect-json`: JSON over HTTP/1.1, at their HTTP port, for
   * networks without HTTP/2.
   */
  transport?: "grpc" | "connect-json" | undefined;
  /**
   * Connect by TLS; `{}` trusts the authorities that Node knows. The certificate of each dispatcher must be for the host of its
   * own address. Files hold PEM; new connections use what they hold by then.
   */
  tls?: { caFile?: string | undefined; certFile?: string | undefined; keyFile?: string | undefined } | undefined;
  /** A file with the token to send, read again when it changes. Without TLS, only loopback addresses are sent one. */
  tokenFile?: string | undefined;
}

/** A frozen dispatcher is left once a ping has no answer. Dispatchers refuse pings more often than every 5 s. */
const ping = { pingIntervalMs: 10_000, pingTimeoutMs: 5_000 };

/** A transport for clients of all six services: `createClient(TaskService, connect({ servers: ["127.0.0.1:7070"] }))`. */
export function connect(config: ConnectionConfig): Transport {
  return new Dispatchers(config).transport();
}

/** One dispatcher, on a connection of its own. */
export class Dispatcher {
  readonly client: Client<typeof DispatchService>;
  /** Calls go to others, if there are any. */
  away = false;
  #backoff = new Backoff();
  #comeback: NodeJS.Timeout | undefined;
  #closed = false;

  /**
   * `answers` resolves to whether the dispatcher answers at all; a frozen one takes connections. `openWork` opens a Work stream, where
   * the transport has streams in both directions.
   */
  constructor(
    readonly address: string,
    readonly transport: Transport,
    private readonly session: Http2SessionManager | undefined,
    private readonly answers: () => Promise<boolean>,
    readonly openWork?: OpenWork,
  ) {
    this.client = createClient(DispatchService, transport);
  }

  /** Takes no calls until it answers again. */
  leave(): void {
    if (this.away) return;
    this.away = true;
    const comeBack = async () => {
      if (await this.answers()) {
        this.away = false;
        return;
      }
      if (this.#closed) return;
      this.reset(); // a call on it would wait for long
      wait();
    };
    const wait = () => {
      this.#comeback = setTimeout(() => void comeBack(), 1000 + this.#backoff.next()).unref();
    };
    wait();
  }

  answered(): void {
    this.#backoff.reset();
  }

  /** Ends the connection and the calls on it. The next call makes a new one. */
  reset(): void {
    this.session?.abort();
  }

  /** Gives up a connection that could not be made in the time of a call. */
  giveUpConnecting(): void {
    if (this.session?.state() === "connecting") this.session.abort();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#comeback);
    this.reset();
  }
}

/** All dispatchers. Each call goes to the next one that is not away. */
export class Dispatchers {
  readonly #all: Dispatcher[];
  readonly #showsCertificate: boolean;
  #next: number;

  constructor(config: ConnectionConfig) {
    checkConnection(config);
    const headers = identity(config.tokenFile);
    const files = secure(config.tls);
    this.#showsCertificate = config.tls?.certFile !== undefined;
    this.#all = config.servers.map((address) => {
      const baseUrl = `${config.tls ? "https" : "http"}://${address}`;
      return config.transport === "connect-json" ? overHttp(address, baseUrl, headers, files) : overGrpc(address, baseUrl, headers, files);
    });
    this.#next = Math.floor(Math.random() * this.#all.length);
  }

  /** The dispatcher for a call. If all are away, they are tried in turn. */
  pick(): Dispatcher {
    const { length } = this.#all;
    for (let i = 0; i < length; i++) {
      const dispatcher = this.#all[this.#next++ % length]!;
      if (!dispatcher.away) return dispatcher;
    }
    return this.#all[this.#next++ % length]!;
  }

  /** Makes a call to one dispatcher, and leaves it when it is away. */
  async call<T>(signal: AbortSignal | undefined, make: (dispatcher: Dispatcher) => Promise<T>): Promise<T> {
    const dispatcher = this.pick();
    try {
      const answer = await make(dispatcher);
      dispatcher.answered();
      return answer;
    } catch (error) {
      if (!signal?.aborted) this.failed(dispatcher, error);
      throw error;
    }
  }

  /** Notes that a call failed, and not because it was canceled. */
  failed(dispatcher: Dispatcher, error: unknown): void {
    if (isAway(error)) dispatcher.leave();
    if (codeOf(error) === Code.DeadlineExceeded) dispatcher.giveUpConnecting();
    // The certificate that was shown may have expired: another connection shows the one that the file holds now.
    if (codeOf(error) === Code.Unauthenticated && this.#showsCertificate) dispatcher.reset();
  }

  transport(): Transport {
    return {
      unary: (method, signal, ...rest) => this.call(signal, (dispatcher) => dispatcher.transport.unary(method, signal, ...rest)),
      stream: (method, signal, ...rest) => this.call(signal, (dispatcher) => dispatcher.transport.stream(method, signal, ...rest)),
    };
  }

  close(): void {
    for (const dispatcher of this.#all) dispatcher.close();
  }
}

type HeaderSource = () => Record<string, string>;

function interceptor(headers: HeaderSource): Interceptor {
  return (next) => (request) => {
    for (const [name, value] of Object.entries(headers())) request.header.set(name, value);
    return next(request);
  };
}

function overHttp(address: string, baseUrl: string, headers: HeaderSource, files: object): Dispatcher {
  const transport = createConnectTransport({
    baseUrl, httpVersion: "1.1", useBinaryFormat: false, interceptors: [interceptor(headers)], readMaxBytes, acceptCompression: [],
    nodeOptions: files,
  });
  const answers = () => new Promise<boolean>((resolve) => {
    const request = (baseUrl.startsWith("https:") ? https : http).get(`${baseUrl}/healthz`, { ...files, timeout: 3000 });
    request.on("response", (response) => {
      response.resume();
      resolve(true);
    }).on("timeout", () => request.destroy(new Error("no answer in time"))).on("error", () => resolve(false));
  });
  return new Dispatcher(address, transport, undefined, answers);
}

function overGrpc(address: string, baseUrl: string, headers: HeaderSource, files: object): Dispatcher {
  const options = Object.defineProperties(
    { settings: { enablePush: false, initialWindowSize: 4 << 20 } }, Object.getOwnPropertyDescriptors(files));
  const session = new Http2SessionManager(baseUrl, ping, options);
  const { stream } = createGrpcTransport({
    baseUrl, sessionManager: session, interceptors: [interceptor(headers)], readMaxBytes, acceptCompression: [],
  });
  const answers = () => new Promise<boolean>((resolve) => {
    const connection = http2.connect(baseUrl, options);
    const end = (answered: boolean) => {
      clearTimeout(timer);
      connection.destroy();
      resolve(answered);
    };
    const timer = setTimeout(() => end(false), 3000);
    connection.once("remoteSettings", () => end(true)).on("error", () => end(false)).unref();
  });
  return new Dispatcher(address, { unary: unaryGrpc(session, headers), stream }, session, answers, workGrpc(session, headers));
}

/** What each call says of its caller. A file that cannot be read any more leaves the token that it held. */
function identity(tokenFile: string | undefined): HeaderSource {
  const headers: Record<string, string> = { "waggle-client": `waggle-typescript/${version}`, "user-agent": `waggle-typescript/${version}` };
  if (tokenFile === undefined) return () => headers;
  const token = reloaded("tokenFile", tokenFile, (text) => {
    const found = text.trim();
    if (!/^[!-~]{1,16384}$/.test(found)) throw new Error("want a token of 1 to 16384 printable ASCII characters without spaces");
    return found;
  });
  return () => ({ ...headers, authorization: `Bearer ${token()}` });
}

/** The options of a TLS connection. Node copies them when it connects, so that each getter reads its file by then. */
function secure(tls: ConnectionConfig["tls"]): object {
  const options = {};
  for (const [name, file] of [["ca", "caFile"], ["cert", "certFile"], ["key", "keyFile"]] as const) {
    const path = tls?.[file];
    if (path === undefined) continue;
    const read = reloaded(`tls.${file}`, path, (text) => {
      if (!text.includes("-----BEGIN ")) throw new Error("want PEM");
      return text;
    });
    Object.defineProperty(options, name, { get: read, enumerable: true, configurable: true });
  }
  return options;
}

/**
 * Reads a file now, and returns what gives its content: read again at most twice a second, and the last good one while it cannot be
 * read. A pipe is read once.
 */
function reloaded(field: string, path: string, parse: (text: string) => string): () => string {
  const read = () => {
    try {
      return parse(readFileSync(path, "utf8"));
    } catch (error) {
      throw new Error(`${field}: ${path}: ${(error as Error).message}`);
    }
  };
  let good = read();
  let looked = now();
  return () => {
    if (now() - looked < 500) return good;
    looked = now();
    try {
      if (statSync(path).isFile()) good = read();
    } catch {
      // as it could be read before, it may be later
    }
    return good;
  };
}

/** Checks an address list and what proves who calls. Errors name the field. */
export function checkConnection(config: ConnectionConfig): void {
  if (config.servers.length === 0) throw new RangeError("servers: want at least one HOST:PORT");
  for (const address of config.servers) {
    const match = /^(\[[0-9a-fA-F:.]+\]|[^\s/:@[\]]+):(\d{1,5})$/.exec(address);
    if (!match || Number(match[2]) > 65535) throw new RangeError(`servers: ${JSON.stringify(address)}: want HOST:PORT`);
    if (config.tokenFile !== undefined && !config.tls && !isLoopback(match[1]!)) {
      throw new RangeError(`servers: ${JSON.stringify(address)}: a token is sent over TLS or to a loopback address only: set tls`);
    }
  }
  if (config.transport !== undefined && config.transport !== "grpc" && config.transport !== "connect-json") {
    throw new RangeError(`transport: ${JSON.stringify(config.transport)}: want "grpc" or "connect-json"`);
  }
  if ((config.tls?.certFile === undefined) !== (config.tls?.keyFile === undefined)) {
    throw new RangeError("tls.certFile and tls.keyFile: want both or neither");
  }
}

const isLoopback = (host: string): boolean => host === "localhost" || host === "[::1]" || (isIP(host) === 4 && host.startsWith("127."));
