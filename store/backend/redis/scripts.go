package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// Ownership moves by scripts and not by transactions: Redis over its maxmemory refuses every transaction that could write, and a script
// with the flag allow-oom none. Each compares before it writes.

// acquireScript writes epoch and record, if both are as they were read.
var acquireScript = goredis.NewScript(`#!lua flags=allow-oom
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] or (redis.call('GET', KEYS[2]) or '') ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[3])
redis.call('SET', KEYS[2], ARGV[4])
return 1`)

// recordScript replaces the record, with the time in it, if the epoch is still that of the caller and the record is neither released nor
// later: a renewal that was given up may come late, and name a standby that the owner does not have any more. It returns what the head,
// the clock and the memory say; a server that hides its memory has none of it.
var recordScript = goredis.NewScript(`#!lua flags=allow-oom
local record = redis.call('GET', KEYS[2]) or ''
if redis.call('GET', KEYS[1]) ~= ARGV[1] or string.find(record, '"released":true', 1, true) then return false end
local function beat(of) return tonumber(string.match(of, '"beat":(%d+)') or 0) end
if beat(record) > beat(ARGV[2]) then return false end
local clock = redis.call('TIME')
redis.call('SET', KEYS[2], (string.gsub(ARGV[2], '"time":0', string.format('"time":%d', clock[1] * 1000 + math.floor(clock[2] / 1000)), 1)))
local memory = redis.pcall('INFO', 'memory')
if type(memory) ~= 'string' then memory = '' end
return {redis.call('GET', KEYS[3]) or '', clock,
	string.match(memory, 'used_memory:(%d+)') or '0', string.match(memory, 'maxmemory:(%d+)') or '0'}`)

// groupScript applies a group while Redis is full: the commands of its transaction, under the same condition. A command is the number
// of its words and these; LOCK is lockFunction for several keys. It returns what each command has returned.
var groupScript = goredis.NewScript("#!lua flags=allow-oom\n" + lockFunction + `
if redis.call('GET', KEYS[1]) ~= ARGV[1] or (redis.call('GET', KEYS[2]) or '') ~= ARGV[2] then return false end
local results, at = {}, 3
while at <= #ARGV do
	local n, result = tonumber(ARGV[at]), 0
	if ARGV[at + 1] == 'LOCK' then
		local keys = tonumber(ARGV[at + 2])
		for i = 1, keys do
			local args = at + 2 + keys + 3 * (i - 1)
			lock(ARGV[at + 2 + i], ARGV[args + 1], ARGV[args + 2], ARGV[args + 3])
		end
	else
		result = redis.call(unpack(ARGV, at + 1, at + n))
	end
	results[#results + 1] = result
	at = at + n + 1
end
return results`)

// lockFunction writes a lock after it has looked at it. A value that no lease has is foreign: somebody has set it by hand, and it stays.
const lockFunction = `local function lock(key, how, token, ttl)
	local value = redis.call('GET', key)
	local fence = value and tonumber(string.match(value, '/(%d+)$'))
	if how == 'release' and value == token then redis.call('DEL', key) end
	if how == 'restore' and (not value or fence and fence <= tonumber(string.match(token, '/(%d+)$'))) then
		redis.call('SET', key, token, 'PX', ttl)
	end
end`

// lockScript is lockFunction for several keys, within a transaction.
const lockScript = lockFunction + `
for i, key in ipairs(KEYS) do lock(key, ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]) end
return 0`

// found is what the keys of ownership say.
type found struct {
	epoch  protocol.Epoch
	record record
	texts  [2]string // of both, as they were read
	head   protocol.Head
	micros uint64    // of Redis' clock
	sent   time.Time // before it was read
	read   time.Time // after that
}

// look reads epoch, record and head, and the clock.
func look(ctx context.Context, c goredis.Cmdable, k keys) (f found, err error) {
	pipe := c.Pipeline()
	values, clock := pipe.MGet(ctx, k.epoch(), k.record(), k.head()), pipe.Time(ctx)
	f.sent = time.Now()
	if _, err := pipe.Exec(ctx); err != nil {
		return f, err
	}
	f.read, f.micros = time.Now(), uint64(clock.Val().UnixMicro()) //nolint:gosec // it is later than 1970
	var texts [3]string
	for i, value := range values.Val() {
		texts[i], _ = value.(string)
	}
	f.texts = [2]string(texts[:2])
	if f.head, err = parseHead(texts[2]); err != nil {
		return f, fmt.Errorf("key %s: %w", k.head(), err)
	}
	if f.epoch, err = parseEpoch(f.texts[0]); err != nil {
		return f, fmt.Errorf("key %s: %w", k.epoch(), err)
	}
	if f.record, err = parseRecord(f.texts[1]); err != nil {
		return f, fmt.Errorf("key %s: %w", k.record(), err)
	}
	return f, nil
}

// acquire writes an epoch and a record in the place of what was found, and reports whether it could.
func acquire(ctx context.Context, c goredis.Scripter, k keys, f found, epoch protocol.Epoch, next record) (bool, error) {
	n, err := acquireScript.Run(ctx, c, []string{k.epoch(), k.record()}, f.texts[0], f.texts[1], epochText(epoch), next.text()).Int()
	return n == 1, err
}

// renewed is what a renewal has read.
type renewed struct {
	head        protocol.Head
	micros      uint64 // of Redis' clock
	used, limit int64  // its memory
}

// errNotOwner: another epoch stands, or the record was released.
var errNotOwner = errors.New("another owner has the shard")

// renew replaces the record of the owner.
func renew(ctx context.Context, c goredis.Scripter, k keys, epoch protocol.Epoch, next record) (r renewed, err error) {
	reply, err := recordScript.Run(ctx, c, []string{k.epoch(), k.record(), k.head()}, epochText(epoch), next.text()).Slice()
	switch {
	case errors.Is(err, goredis.Nil):
		return r, errNotOwner
	case err != nil:
		return r, err
	}
	text, _ := reply[0].(string)
	if r.head, err = parseHead(text); err != nil {
		return r, fmt.Errorf("key %s: %w", k.head(), err)
	}
	clock, _ := reply[1].([]any)
	if len(clock) != 2 {
		return r, fmt.Errorf("the clock of redis says %v", reply[1])
	}
	r.micros = uint64(number(clock[0])*1_000_000 + number(clock[1])) //nolint:gosec // it is later than 1970
	r.used, r.limit = number(reply[2]), number(reply[3])
	return r, nil
}

// number is the number in a reply that is a text; 0 if there is none.
func number(reply any) int64 {
	text, _ := reply.(string)
	n, _ := strconv.ParseInt(text, 10, 64) // of redis itself
	return n
}
