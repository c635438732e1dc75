#!/bin/sh
# grpcio 1.85.3 (gRPC for Python): a target with several addresses, "ipv4:A:PORT,B:PORT", cannot be used with TLS.
#
# The naming document of gRPC lists ipv4:address[:port][,address[:port],...] as a target of several equal addresses. In
# plain text it works. With TLS the name that is verified is made of the whole list, so no certificate matches it: not one
# for the address that is connected to, and not one that names all addresses of the list. A list of one address works.
# The failure is told as "Hostname Verification Check failed", which looks like a wrong certificate.
#
# Seen, each with a server at 127.0.0.1 and one at 127.0.0.2:
#   one address, its own certificate          OK
#   list, certificates of one address each    UNAVAILABLE ... Hostname Verification Check failed.
#   list, certificates that name both         UNAVAILABLE ... Hostname Verification Check failed.
#   list, plain text                          OK
#   list, ssl_target_name_override            OK, and all addresses are verified under that one name
#
# Needs python3 with venv, openssl, and PyPI. Fails when the behavior changes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check grpcio==1.85.3
cat > try.py <<'PY'
import subprocess
import sys
from concurrent import futures

import grpc


def openssl(*args):
    subprocess.run(("openssl",) + args, check=True, capture_output=True)


def read(path):
    with open(path, "rb") as file:
        return file.read()


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
openssl("req", "-x509", *NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2")


def certificate(name, alternatives):
    openssl("req", "-new", *NEW_KEY, "-keyout", name + ".key", "-out", name + ".csr", "-subj", "/CN=" + name)
    with open("extensions", "w") as file:
        file.write("subjectAltName=" + alternatives)
    openssl("x509", "-req", "-in", name + ".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", name + ".pem", "-days", "2", "-extfile", "extensions")
    return grpc.ssl_server_credentials([(read(name + ".key"), read(name + ".pem"))])


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


servers = []


def serve(host, credentials):
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_secure_port(host + ":0", credentials) if credentials else server.add_insecure_port(host + ":0")
    server.start()
    servers.append(server)
    return "%s:%d" % (host, port)


def call(target, secure=True, options=()):
    channel = (grpc.secure_channel(target, grpc.ssl_channel_credentials(read("ca.pem")), options) if secure
               else grpc.insecure_channel(target, options))
    try:
        channel.unary_unary("/echo/Echo")(b"x", timeout=10)
        return "OK"
    except grpc.RpcError as error:
        return "%s %s" % (error.code().name, error.details())


BOTH = "IP:127.0.0.1,IP:127.0.0.2,DNS:any.example"
own = [serve("127.0.0.1", certificate("one", "IP:127.0.0.1")), serve("127.0.0.2", certificate("two", "IP:127.0.0.2"))]
both = [serve(host, certificate("both", BOTH)) for host in ("127.0.0.1", "127.0.0.2")]
plain = [serve(host, None) for host in ("127.0.0.1", "127.0.0.2")]

results = [
    ("one address", call("ipv4:" + own[0]), True),
    ("list, own certificates", call("ipv4:" + ",".join(own)), False),
    ("list, certificates of both", call("ipv4:" + ",".join(both)), False),
    ("list, plain text", call("ipv4:" + ",".join(plain), secure=False), True),
    ("list, override", call("ipv4:" + ",".join(both), options=[("grpc.ssl_target_name_override", "any.example")]), True),
]
changed = False
for what, got, works in results:
    print("%-28s%s" % (what, got))
    changed |= (got == "OK") != works or not works and "Hostname Verification" not in got
print("grpcio", grpc.__version__)
sys.exit("the behavior has changed" if changed else 0)
PY
venv/bin/python try.py
