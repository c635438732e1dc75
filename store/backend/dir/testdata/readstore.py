"""Reads a store by FORMAT.md: python3 readstore.py DIR prints its tasks and items as JSON, or fails if it is damaged."""
import base64, json, os, struct, sys

TABLE = list(range(256))  # of CRC-32C, which zlib does not have
for _ in range(8):
    TABLE = [n >> 1 ^ (0x82F63B78 if n & 1 else 0) for n in TABLE]

def crc(data, start=0):
    c = start ^ 0xFFFFFFFF
    for b in data:
        c = TABLE[(c ^ b) & 255] ^ c >> 8
    return c ^ 0xFFFFFFFF

class Reader:
    def __init__(self, data): self.data, self.at = data, 0
    def take(self, n):
        self.at += n
        assert self.at <= len(self.data), "something is cut off"
        return self.data[self.at - n:self.at]
    def uvarint(self):
        n = shift = 0
        while True:
            b = self.take(1)[0]
            n, shift = n | (b & 127) << shift, shift + 7
            if b < 128: return n
    def fields(self):  # by their numbers; of a list the last one
        found = {}
        while self.at < len(self.data):
            tag = self.uvarint()
            found[tag >> 3] = self.uvarint() if tag & 7 == 0 else self.take(8 if tag & 7 == 1 else self.uvarint())
        return found

def header(data, magic, store):  # checks it, and returns its checksum and sequence
    check, sequence = struct.unpack("<I", data[60:64])[0], struct.unpack("<Q", data[32:40])[0]
    assert data[:8] == magic and crc(data[:60]) == check and data[16:32] == store, "a header is damaged"
    return check, sequence

def base32(key): return base64.b32encode(key).decode().lower().rstrip("=")

def take_items(content, tasks, items):
    r, kind = Reader(content), 0
    while r.at < len(content):
        kind, shard, fields = r.take(1)[0], r.uvarint(), Reader(r.take(r.uvarint())).fields()
        items[kind] = items.get(kind, 0) + 1
        if kind == 18:
            task = tasks.setdefault(base32(fields[1]), {})
            if 5 in fields and fields[5]: task["url"] = Reader(fields[5]).fields()[1].decode()
            if 3 in fields: task["state"] = Reader(fields[3]).fields()[1]
        elif kind == 18 + 128:
            del tasks[base32(fields[1])]
        elif kind == 21:
            runs.append(fields)
    return kind

def snapshot(data, store, tasks, items):
    _, sequence = header(data, b"WAGGSNP\n", store)
    frames, content = Reader(data[64:]), b""
    while frames.at < len(frames.data):
        size, check = struct.unpack("<II", frames.take(8))
        content += frames.take(size)
        assert crc(content[len(content) - size:]) == check, "a frame is damaged"
    assert take_items(content, tasks, items) in (19, 21), "the end is missing"
    for named in runs: run(named, store, tasks, items)
    return sequence

def run(named, store, tasks, items):
    data = files["run-%020d.waggle" % named[1]]
    check, number = header(data, b"WAGGRUN\n", store)
    index, count, blocks, _, _ = struct.unpack("<QQQQQ", data[-64:-24])
    assert number == named[1] and 2 * len(data) == named[2], "another run"  # an int: zigzag
    assert crc(data[-64:-4], check) == struct.unpack("<I", data[-4:])[0] == named[3], "a footer is damaged"
    entries, want, frames = [], b"", Reader(data[64:index])
    while frames.at < len(frames.data):
        size, check = struct.unpack("<II", frames.take(8))
        block, first = Reader(frames.take(size)), len(entries)
        assert crc(block.data) == check, "a block is damaged"
        while block.at < len(block.data):
            block.uvarint()
            begin, kind, shard = block.at, block.take(1)[0], block.uvarint()
            fields = Reader(block.take(block.uvarint())).fields()
            entries.append((fields[1], block.data[begin:block.at]))
        want += struct.pack("<QII", int.from_bytes(entries[first][0][:8], "big"), size, len(entries) - first)
        want += b"".join(key[14:] for key, _ in entries[first:])
        blocks -= 1
    frames, content = Reader(data[index:-64]), b""
    while frames.at < len(frames.data):
        size, check = struct.unpack("<II", frames.take(8))
        content += frames.take(size)
        assert crc(content[len(content) - size:]) == check, "an index is damaged"
    keys = [key for key, _ in entries]
    assert content == want and count == len(keys) and blocks == 0, "an index is not that of its blocks"
    assert keys == sorted(set(keys)), "a run is not sorted"
    for key, item in entries:
        tasks.pop(base32(key), None)
        if item[0] == 18: take_items(item, tasks, items)

def segment(data, store, after, tasks, items):
    start, at, last = header(data, b"WAGGLOG\n", store)[0], 64, after
    assert len(data) >= struct.unpack("<Q", data[40:48])[0], "a segment is cut off"
    while data[at:at + 4] == b"WBAT":
        size, first, _, count, body, head = struct.unpack("<IQQIII", data[at + 4:at + 36])
        assert crc(data[at:at + 32], start) == head and crc(data[at + 36:at + 36 + size], start) == body, "a batch is damaged"
        entries, at = Reader(data[at + 36:at + 36 + size]), at + 36 + size
        for sequence in range(first, first + count):
            entry = entries.take(struct.unpack("<I", entries.take(4))[0])
            if sequence > after: take_items(entry[8:], tasks, items)
            last = max(last, sequence)
    return last

files = {name: open(os.path.join(sys.argv[1], name), "rb").read() for name in sorted(os.listdir(sys.argv[1])) if os.path.isfile(os.path.join(sys.argv[1], name))}
store, after, tasks, items, later, runs = bytes.fromhex(json.loads(files["store.json"])["id"]), 0, {}, {}, {}, []
for name in [n for n in files if n.startswith("snapshot-")][-1:]: after = snapshot(files[name], store, tasks, items)
last = after
for name in [n for n in files if n.startswith("log-0")]: last = segment(files[name], store, after, tasks, later)
mark = files.get("mark.waggle", b"")
if len(mark) == 44 and crc(mark[:40], crc(store)) == struct.unpack("<I", mark[40:])[0]:
    assert last >= struct.unpack("<Q", mark[32:40])[0], "the end of the log is missing"
print(json.dumps({"sequence": after, "tasks": tasks, "items": items, "later": later}))
