import { constants, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";

import { create, fromBinary, isMessage, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import type { Http2SessionManager } from "@connectrpc/connect-node";
import { findTrailerError, validateResponse } from "@connectrpc/connect/protocol-grpc";

/** A reply holds at most 3 MiB of tasks, and the results of carried reports. */
export const readMaxBytes = 16 << 20;

/**
 * Plain gRPC calls on an HTTP/2 connection. Those of connect-node cost five times the processor time, since each goes through
 * several asynchronous iterators; a collector with one slot makes a call for each task. `headers` gives what each call sends.
 */
export function unaryGrpc(session: Http2SessionManager, headers: () => Record<string, string>): Transport["unary"] {
  return async (method, signal, timeoutMs, header, input) => {
    const request: OutgoingHttpHeaders = { ...headers(), "content-type": "application/grpc+proto", te: "trailers" };
    if (header) for (const [name, value] of new Headers(header)) request[name] = value;
    if (timeoutMs !== undefined && timeoutMs > 0) request["grpc-timeout"] = `${Math.ceil(timeoutMs)}m`;
    const message = isMessage(input, method.input) ? input : create(method.input, input);
    const call = new Call(session, signal, timeoutMs);
    const reply = await call.send(`/${method.parent.typeName}/${method.name}`, request, envelope(toBinary(method.input, message)));
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

/** One request and its response. It ends once, with what came first: the response, an error, the signal or the deadline. */
class Call {
  header: IncomingHttpHeaders = {};
  trailer: IncomingHttpHeaders = {};

  constructor(
    private readonly session: Http2SessionManager,
    private readonly signal: AbortSignal | undefined,
    private readonly timeoutMs: number | undefined,
  ) {}

  send(path: string, headers: OutgoingHttpHeaders, body: Buffer): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      const { session, signal } = this;
      let done = false;
      let close = () => {}; // resets the stream, once there is one
      const end = () => {
        done = true;
        clearTimeout(timer);
        signal?.removeEventListener("abort", canceled);
      };
      const fail = (error: ConnectError) => {
        if (done) return;
        end();
        close();
        reject(error);
      };
      const canceled = () => fail(new ConnectError("the call was canceled", Code.Canceled));
      const timer = this.timeoutMs !== undefined && this.timeoutMs > 0
        ? setTimeout(() => fail(new ConnectError(`no answer in ${this.timeoutMs} ms`, Code.DeadlineExceeded)), Math.min(this.timeoutMs, 2 ** 31 - 1))
        : undefined;
      if (signal?.aborted) return canceled();
      signal?.addEventListener("abort", canceled);

      session.request("POST", path, headers, {}).then((stream) => {
        close = () => stream.close(constants.NGHTTP2_CANCEL);
        if (done) return close();
        const chunks: Buffer[] = [];
        let size = 0;
        stream.on("response", (received) => {
          this.header = received;
        });
        stream.on("trailers", (received) => {
          this.trailer = received;
        });
        stream.on("data", (chunk: Buffer) => {
          session.notifyResponseByteRead(stream);
          chunks.push(chunk);
          size += chunk.length;
          if (size > readMaxBytes + 5) fail(new ConnectError(`the reply is larger than ${readMaxBytes} bytes`, Code.ResourceExhausted));
        });
        stream.on("error", (error) => fail(new ConnectError(error.message, Code.Unavailable, undefined, undefined, error)));
        stream.on("close", () => {
          if (done) return;
          try {
            const reply = this.reply(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks));
            end();
            resolve(reply);
          } catch (error) {
            fail(ConnectError.from(error));
          }
        });
        stream.end(body);
      }, (error: unknown) => fail(ConnectError.from(error, Code.Unavailable)));
    });
  }

  /** The message of the response. */
  private reply(body: Buffer): Uint8Array {
    const status = this.trailer["grpc-status"] ?? this.header["grpc-status"];
    if (status !== "0") {
      if (this.header[":status"] === undefined) throw new ConnectError("the connection was lost", Code.Unavailable);
      validateResponse(Number(this.header[":status"]), webHeaders(this.header));
      throw findTrailerError(webHeaders(this.trailer)) ?? findTrailerError(webHeaders(this.header)) ??
        new ConnectError("the connection was lost", Code.Unavailable);
    }
    if (body.length < 5 || body[0] !== 0 || body.readUInt32BE(1) !== body.length - 5) {
      throw new ConnectError("the reply is not one unpacked message", Code.Internal);
    }
    return body.subarray(5);
  }
}
