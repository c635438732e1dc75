package store

import (
	"slices"
	"sync"

	"github.com/waggle-crawl/waggle/dispatch"
)

// hints are those who are called with each hint.
type hints struct {
	mu  sync.RWMutex // guards what follows
	all []func(dispatch.Hint)
}

// Subscribe implements [dispatch.Store].
func (h *hints) Subscribe(heed func(dispatch.Hint)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(slices.Clip(h.all), heed)
}

// publish gives a hint to all. It may be called under any mutex of the store.
func (h *hints) publish(hint dispatch.Hint) {
	h.mu.RLock()
	all := h.all
	h.mu.RUnlock()
	for _, heed := range all {
		heed(hint)
	}
}
