package store_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/store/storetest"
)

// newInstance makes a store for the suite, on a clock of its own.
func newInstance(t *testing.T, opts storetest.Options) storetest.Instance {
	t.Helper()
	s, c := newStore(t, opts.Shards)
	hand := s.Inspect()
	return storetest.Instance{
		Store: s, Clock: c,
		DeleteLock: hand.DeleteLock, SetLock: hand.SetLock, LockValue: hand.LockValue,
	}
}

func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		t.Parallel()
		return newInstance(t, opts)
	})
}

func TestStore_Model(t *testing.T) {
	t.Parallel()
	storetest.Model(t, newInstance, storetest.ModelConfig{})
}
