package server

import "golang.org/x/sync/semaphore"

// bytesInHand is how many bytes of reports may be in hand at once, and of renewals: far more
// than are while the store answers, and little enough to be kept while it does not.
const bytesInHand = 64 << 20

// inHand bounds the bytes of requests of one kind that are decoded and not answered yet.
// Reports have a share of their own, and renewals: no other load takes from it.
type inHand struct {
	limits *limits
	bytes  *semaphore.Weighted
}

func newInHand(l *limits) *inHand {
	return &inHand{limits: l, bytes: semaphore.NewWeighted(bytesInHand)}
}

// enter takes a request of so many bytes in hand, or refuses it: nothing of it was done
// then. One that is larger than all that may be in hand is so alone.
func (h *inHand) enter(method string, bytes int) (leave func(), err error) {
	weight := int64(min(bytes, bytesInHand))
	if !h.bytes.TryAcquire(weight) {
		return nil, h.limits.refuseBytes(classHold, method, "more bytes of such calls are in hand than are allowed", bytesInHand, bytes)
	}
	return func() { h.bytes.Release(weight) }, nil
}
