#!/usr/bin/env bash
# The life of one lease, seen with grpcurl and redis-cli, for a dispatcher with a Redis store of one shard.
#
#   usage: tour.sh [ADDRESS [PREFIX]]     default: 127.0.0.1:7070 waggle
#
# GRPCURL and REDIS_CLI name the two programs, with options: REDIS_CLI="redis-cli -p 6380". Each command is printed
# before it runs. The tour makes the source news.example and deletes it again.
set -euo pipefail

address=${1:-127.0.0.1:7070}
prefix=${2:-waggle}
grpcurl=${GRPCURL:-grpcurl}
read -ra redis <<<"${REDIS_CLI:-redis-cli}"
session=6c1f8f0e-51c8-4f0c-8d5e-6a3a5c1f9b11

say() { printf '\n# %s\n' "$*"; }

# call METHOD JSON: a call, printed first; the reply goes to $reply too.
call() {
	printf '$ grpcurl -plaintext -d '\''%s'\'' %s waggle.v1.%s\n' "$2" "$address" "$1"
	reply=$("$grpcurl" -plaintext -d "$2" "$address" "waggle.v1.$1")
	printf '%s\n' "$reply"
}

# lock COMMAND: a command on the lock, printed first; the answer goes to $reply too.
lock() {
	printf '$ redis-cli %s '\''%s'\''\n' "$1" "$prefix:{0}:lock:$task"
	reply=$("${redis[@]}" "$1" "$prefix:{0}:lock:$task")
	printf '%s\n' "$reply"
}

# field NAME: the first value of a field in $reply.
field() { sed -n 's/.*"'"$1"'": "\([^"]*\)".*/\1/p' <<<"$reply" | head -n 1; }

check() { # check WHAT CONDITION...
	if ! test "${@:2}"; then
		echo "tour.sh: $1 (test ${*:2})" >&2
		exit 1
	fi
}

say 'Register a source with one seed, to be crawled every ten minutes'
call SourceService/CreateSource '{"spec": {"id": "news.example", "seeds": [{"url": "https://example.com/news"}], "schedule": {"every": "600s"}, "follow": {"max_depth": 1}}}'

say 'Submit another page of it'
call TaskService/SubmitTasks '{"items": [{"source_id": "news.example", "url": "https://example.com/about"}]}'

say 'Fetch a task, as a collector does'
fetch='{"collector_id": "by-hand", "session": "'$session'", "client_token": "0d0f6a52-3d0b-4a2e-9f43-2f8f7d1a7c55", "lease_duration": "60s"}'
call DispatchService/FetchTask "$fetch"
task=$(field taskId) token=$(field leaseToken)
check 'nothing was fetched' -n "$task"

say 'The same client token gets the same task under the same lease token'
call DispatchService/FetchTask "$fetch"
check 'another task was fetched' "$(field leaseToken)" = "$token"

say 'The lock in Redis: its value is the lease token, its TTL falls'
lock GET
check 'the lock does not hold the lease token' "$reply" = "$token"
lock PTTL
before=$reply
sleep 1
lock PTTL
check 'the TTL does not fall' "$reply" -lt "$before"
before=$reply

say 'Renew the lease: the TTL is lifted'
lease='{"task_id": "'$task'", "lease_token": "'$token'"}'
call DispatchService/RenewLease '{"collector": {"id": "by-hand", "session": "'$session'"}, "leases": ['"$lease"']}'
lock PTTL
check 'the TTL was not lifted' "$reply" -gt "$before"

say 'A lease token that is not the current one changes nothing'
outcome='"outcome": {"succeeded": {"http_status": 200, "fetch_duration": "0.4s", "discovered": [{"url": "https://example.com/news/1"}]}}'
call DispatchService/ReportTask '{"collector_id": "by-hand", "session": "'$session'", "reports": [{"task_id": "'$task'", "lease_token": "'"${token%/*}"'/1", '"$outcome"'}]}'
check 'the stale report was not refused' "$(field code)" = REPORT_CODE_LEASE_LOST

say 'Report: the lock is gone, the seed is due again in ten minutes, the link is a task'
report='{"collector_id": "by-hand", "session": "'$session'", "reports": [{"task_id": "'$task'", "lease_token": "'$token'", '"$outcome"'}]}'
call DispatchService/ReportTask "$report"
check 'the report was refused' "$(field code)" = REPORT_CODE_OK
lock EXISTS
check 'the lock is still there' "$reply" = 0

say 'The report repeated does no harm'
call DispatchService/ReportTask "$report"
check 'the report counted twice' "$(field code)" = REPORT_CODE_ALREADY_REPORTED

say 'What is left to do'
call TaskService/ListTasks '{"source_id": "news.example"}'

say 'Delete the source and its tasks'
call SourceService/DeleteSources '{"ids": ["news.example"], "by": "tour", "reason": "the tour is over"}'
