#!/bin/sh
# beanstalkd 1.12 (Debian 1.12-2): jobs that come within the interval of -f after a sync are synced with the next write, however
# long that takes, and not after the interval.
#
# The manual page says of "-f ms": at most one fsync in so many milliseconds, and that a power failure can lose "up to ms milliseconds
# of history"; the default is 50. The server looks at the interval only when it writes. So the last jobs of a burst are answered
# INSERTED and stay unsynced for as long as the queue is idle: the night after the last producer has finished.
#
# Seen with -f 300, by strace, in file syncs since the start:
#   first job                            1
#   second job, 100 ms later             1
#   3 s later                            1   the second job is not synced
#   third job                            2   and the second with it
#
# Needs apt-get of Debian or Ubuntu, with beanstalkd 1.12 and strace, and python3. Fails when the behavior changes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
cd "$dir"
apt-get download beanstalkd strace > apt.log 2>&1 || { cat apt.log; exit 1; }
for package in *.deb; do dpkg -x "$package" root; done
mkdir binlog
cat > try.py <<'PY'
import os
import signal
import socket
import subprocess
import time

here = os.getcwd()
server = f"{here}/root/usr/bin/beanstalkd"
version = subprocess.run([server, "-v"], capture_output=True, text=True, check=True).stdout.strip()
assert version == "beanstalkd 1.12", version
address = f"{here}/socket"
traced = subprocess.Popen([
    f"{here}/root/usr/bin/strace", "-f", "-e", "trace=fsync,fdatasync", "-o", "trace",
    server, "-l", f"unix:{address}", "-b", "binlog", "-f", "300",
])
for _ in range(100):
    if os.path.exists(address):
        break
    time.sleep(0.05)
client = socket.socket(socket.AF_UNIX)
client.connect(address)


def put(job):
    client.sendall(b"put 0 0 60 %d\r\n%s\r\n" % (len(job), job))
    assert client.recv(100).startswith(b"INSERTED")


def syncs():
    time.sleep(0.05)  # strace writes a line after the call
    with open("trace") as trace:
        return sum("sync(" in line for line in trace)


seen = []
put(b"first")
seen.append(("first job", syncs()))
time.sleep(0.05)
put(b"second")
seen.append(("second job, 100 ms later", syncs()))
time.sleep(3)
seen.append(("3 s later", syncs()))
put(b"third")
seen.append(("third job", syncs()))
for what, n in seen:
    print(f"{what:30} {n}")
children = open(f"/proc/{traced.pid}/task/{traced.pid}/children").read().split()
for child in children:
    os.kill(int(child), signal.SIGTERM)
traced.wait()
assert [n for _, n in seen] == [1, 1, 1, 2], seen
PY
python3 try.py
