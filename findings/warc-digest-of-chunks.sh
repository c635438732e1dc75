#!/bin/sh
# warcio 1.8.1 and FastWARC 2.0.1 (Python): the payload digest that WARC's standard asks for is called wrong for a chunked answer.
#
# WARC/1.1 of an HTTP response: "The payload of the record is defined as its 'entity-body' (per RFC2616), with any
# transfer-encoding removed." Both checkers take the digest of what follows the head of the answer, with the sizes of chunks. So
# a record whose answer was kept as it came fails in both if its digest is of the body, and passes if its digest is of the chunks.
# Equal bodies that came in other chunks then have other digests, and are not found as duplicates. A writer that wants to
# be right for both has to store the answer without its chunks and without "Transfer-Encoding".
#
# Seen for a response record of "hello world" in one chunk, its block digest right:
#   WARC-Payload-Digest of    warcio check    FastWARC verify_payload_digest
#   the body                  failed          False
#   the chunks                passed          True
#
# Needs python3 with venv, and PyPI. Fails when the behavior changes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check warcio==1.8.1 FastWARC==2.0.1
cat > try.py <<'PY'
import base64
import gzip
import hashlib
import subprocess
import sys

from fastwarc.warc import ArchiveIterator

BODY = b"hello world"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
BLOCK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS


def sha1(data):
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def check(payload):
    head = ("WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000001>\r\n"
            "WARC-Date: 2026-03-01T12:00:00Z\r\nWARC-Target-URI: http://a.example/\r\nWARC-Payload-Digest: %s\r\nWARC-Block-Digest: %s\r\n"
            "Content-Type: application/http; msgtype=response\r\nContent-Length: %d\r\n\r\n" % (sha1(payload), sha1(BLOCK), len(BLOCK)))
    with open("one.warc.gz", "wb") as file:
        file.write(gzip.compress(head.encode() + BLOCK + b"\r\n\r\n"))
    run = subprocess.run([sys.executable, "-m", "warcio.cli", "check", "-v", "one.warc.gz"], capture_output=True, text=True)
    assert ("payload digest failed" in run.stdout) == (run.returncode != 0) and "block digest failed" not in run.stdout, run
    with open("one.warc.gz", "rb") as file:
        assert all(record.verify_block_digest() for record in ArchiveIterator(file, parse_http=False))
    with open("one.warc.gz", "rb") as file:
        other = [record.verify_payload_digest() for record in ArchiveIterator(file, parse_http=True)]
    return "failed" if run.returncode else "passed", other


results = {"the body": check(BODY), "the chunks": check(CHUNKS)}
for what, (warcio, fastwarc) in results.items():
    print("%-12s warcio %s   FastWARC %s" % (what, warcio, fastwarc[0]))
sys.exit("the behavior has changed" if results != {"the body": ("failed", [False]), "the chunks": ("passed", [True])} else 0)
PY
venv/bin/python try.py
