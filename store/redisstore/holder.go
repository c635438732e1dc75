package redisstore

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
)

// holders are those who hold the leases that a script is told of: each is an
// argument, once.
type holders map[[2]string]holder

type holder struct {
	number uint16 // of the argument, from 1
	digest uint64 // of its leases
}

// of finds a token's holder, and appends the argument for one that is new.
func (h holders) of(token dispatch.LeaseToken, args []any) (holder, []any) {
	name := [2]string{token.Collector, token.ClientToken}
	found, ok := h[name]
	if !ok {
		args = append(args, token.Collector+"/"+token.ClientToken)
		found = holder{uint16(len(args)), dispatch.HolderDigest(token.Collector, token.ClientToken)} //nolint:gosec // at most some hundreds
		h[name] = found
	}
	return found, args
}

// appendDigest appends a token's digest.
func (h holder) appendDigest(b []byte, token dispatch.LeaseToken) []byte {
	return record.AppendDigest(b, dispatch.LeaseDigest{Fence: token.Fence, Holder: h.digest})
}
