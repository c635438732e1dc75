import { constants, type ClientHttp2Stream, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";

import { create, fromBinary, isMessage, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import { findTrailerError, validateResponse } from "@connectrpc/connect/protocol-grpc";

import {
  DispatchService, WorkRequestSchema, WorkResponseSchema, type WorkRequest, type WorkResponse,
} from "./gen/waggle/v1/dispatch_service_pb.js";

/** A reply holds at most 3 MiB of tasks, and the results of carried reports. */
export const readMaxBytes = 16 << 20;

/**
 * Plain gRPC calls on an HTTP/2 connection. Those of connect-node cost five times the processor time, since each goes through
 * several asynchronous iterators; a collector with one slot makes a call for each task. `headers` gives what each call sends.
 */
export function unaryGrpc(session: Http2SessionManager, headers: () => Record<string, string>): Transport["unary"] {
  return async (method, signal, timeoutMs, header, input) => {
    const request = grpcHeaders(headers);
    if (header) for (const [name, value] of new Headers(header)) request[name] = value;
    if (timeoutMs !== undefined && timeoutMs > 0) request["grpc-timeout"] = `${Math.ceil(timeoutMs)}m`;
    const message = isMessage(input, method.input) ? input : create(method.input, input);
    const call = new Call(session, `/${method.parent.typeName}/${method.name}`, request);
    const reply = await exchange(call, toBinary(method.input, message), signal, timeoutMs);
    return {
      stream: false, service: method.parent, method, message: fromBinary(method.output, reply),
      get header() {
        return webHeaders(call.header);
      },
      get trailer() {
        return webHeaders(call.trailer);
      },
    };
  };
}

/** A Work stream, as gRPC sends it. */
export interface WorkCall {
  send(request: WorkRequest): void;
  /** Ends this side. The dispatcher answers what was sent. */
  finish(): void;
  /** Ends both sides by an error. */
  giveUp(error: ConnectError): void;
}

/** Opens a Work stream. `ended` is called once, without an error if the dispatcher ended the stream by plan. */
export type OpenWork = (received: (response: WorkResponse) => void, ended: (error?: ConnectError) => void) => WorkCall;

/** Work streams on an HTTP/2 connection, like unaryGrpc without asynchronous iterators. */
export function workGrpc(session: Http2SessionManager, headers: () => Record<string, string>): OpenWork {
  return (received, ended) => {
    const { parent, name } = DispatchService.method.work;
    const call = new Call(session, `/${parent.typeName}/${name}`, grpcHeaders(headers));
    call.onMessage = (message) => received(fromBinary(WorkResponseSchema, message));
    call.onEnd = ended;
    return {
      send: (request) => call.send(toBinary(WorkRequestSchema, request)),
      finish: () => call.finish(),
      giveUp: (error) => call.giveUp(error),
    };
  };
}

const grpcHeaders = (headers: () => Record<string, string>): OutgoingHttpHeaders => (
  { ...headers(), "content-type": "application/grpc+proto", te: "trailers" });

/** Sends the one message of a call, and returns the one of its reply. */
function exchange(call: Call, request: Uint8Array, signal: AbortSignal | undefined, timeoutMs: number | undefined): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const replies: Uint8Array[] = [];
    const canceled = () => call.giveUp(new ConnectError("the call was canceled", Code.Canceled));
    const timer = timeoutMs !== undefined && timeoutMs > 0
      ? setTimeout(() => call.giveUp(new ConnectError(`no answer in ${timeoutMs} ms`, Code.DeadlineExceeded)), Math.min(timeoutMs, 2 ** 31 - 1))
      : undefined;
    call.onMessage = (message) => replies.push(message);
    call.onEnd = (error) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", canceled);
      if (error) reject(error);
      else if (replies.length === 1) resolve(replies[0]!);
      else reject(new ConnectError(`the reply has ${replies.length} messages, want 1`, Code.Internal));
    };
    if (signal?.aborted) return canceled();
    signal?.addEventListener("abort", canceled);
    call.finish(request);
  });
}

/** A message as gRPC sends it: a byte that says it is not packed, and its length. */
function envelope(message: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(5 + message.length);
  bytes[0] = 0;
  bytes.writeUInt32BE(message.length, 1);
  bytes.set(message, 5);
  return bytes;
}

function webHeaders(headers: IncomingHttpHeaders): Headers {
  const found = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (name.startsWith(":") || value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) found.append(name, one);
  }
  return found;
}

/** One request and its response, with any number of messages. It ends once, with what came first: its status, an error, or giveUp. */
class Call {
  header: IncomingHttpHeaders = {};
  trailer: IncomingHttpHeaders = {};
  onMessage: (message: Uint8Array) => void = () => {};
  onEnd: (error?: ConnectError) => void = () => {};

  #stream: ClientHttp2Stream | undefined;
  #writes: ((stream: ClientHttp2Stream) => void)[] = []; // for the stream that opens
  #done = false;
  #chunks: Buffer[] = []; // of messages that have not arrived as a whole
  #size = 0;
  #wanted = 5; // bytes until there is more to know

  constructor(
    private readonly session: Http2SessionManager,
    path: string,
    headers: OutgoingHttpHeaders,
  ) {
    session.request("POST", path, headers, {}).then(
      (stream) => this.#open(stream), (error: unknown) => this.#end(ConnectError.from(error, Code.Unavailable)));
  }

  send(message: Uint8Array): void {
    this.#write((stream) => stream.write(envelope(message)));
  }

  /** Ends this side, after a last message if there is one. */
  finish(message?: Uint8Array): void {
    this.#write((stream) => (message ? stream.end(envelope(message)) : stream.end()));
  }

  giveUp(error: ConnectError): void {
    this.#stream?.close(constants.NGHTTP2_CANCEL);
    this.#end(error);
  }

  #write(write: (stream: ClientHttp2Stream) => void): void {
    if (this.#done) return;
    if (this.#stream) write(this.#stream);
    else this.#writes.push(write);
  }

  #open(stream: ClientHttp2Stream): void {
    this.#stream = stream;
    stream.on("error", (error) => this.#end(new ConnectError(error.message, Code.Unavailable, undefined, undefined, error)));
    if (this.#done) return stream.close(constants.NGHTTP2_CANCEL);
    stream.on("response", (received) => {
      this.header = received;
    });
    stream.on("trailers", (received) => {
      this.trailer = received;
    });
    stream.on("data", (chunk: Buffer) => {
      this.session.notifyResponseByteRead(stream);
      this.#receive(chunk);
    });
    stream.on("end", () => {
      if (!stream.writableEnded) stream.close(); // the dispatcher reads no more
    });
    stream.on("close", () => this.#end(this.#error()));
    for (const write of this.#writes) write(stream);
  }

  #end(error: ConnectError | undefined): void {
    if (this.#done) return;
    this.#done = true;
    this.onEnd(error);
  }

  /** Passes on the messages that have arrived as a whole. */
  #receive(chunk: Buffer): void {
    if (!this.header["content-type"]?.startsWith("application/grpc")) return; // a page of a proxy; its HTTP status is the error
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    if (this.#size < this.#wanted || this.#done) return;
    let bytes = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    try {
      for (this.#wanted = 5; bytes.length >= this.#wanted; ) {
        const end = 5 + lengthOf(bytes);
        if (bytes.length >= end) {
          this.onMessage(bytes.subarray(5, end));
          bytes = bytes.subarray(end);
        } else {
          this.#wanted = end;
        }
      }
    } catch (error) {
      return this.giveUp(ConnectError.from(error, Code.Internal));
    }
    this.#chunks = bytes.length > 0 ? [bytes] : [];
    this.#size = bytes.length;
  }

  /** The error of a response that is over; undefined: it has none. */
  #error(): ConnectError | undefined {
    const lost = () => new ConnectError("the connection was lost", Code.Unavailable);
    if ((this.trailer["grpc-status"] ?? this.header["grpc-status"]) === "0") {
      return this.#size === 0 ? undefined : new ConnectError("the reply ends within a message", Code.Internal);
    }
    if (this.header[":status"] === undefined) return lost();
    try {
      validateResponse(Number(this.header[":status"]), webHeaders(this.header));
      return findTrailerError(webHeaders(this.trailer)) ?? findTrailerError(webHeaders(this.header)) ?? lost();
    } catch (error) {
      return ConnectError.from(error);
    }
  }
}

/** The length of the message that begins here. */
function lengthOf(bytes: Buffer): number {
  if (bytes[0] !== 0) throw new ConnectError("the reply is packed", Code.Internal);
  const length = bytes.readUInt32BE(1);
  if (length > readMaxBytes) throw new ConnectError(`the reply is larger than ${readMaxBytes} bytes`, Code.ResourceExhausted);
  return length;
}
