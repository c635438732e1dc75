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

// modelSteps are fewer than there are by default: the model test of store/redisstore gives the same operations to this
// store, as its reference, and goes on for the default's number of steps.
const modelSteps = 10_000

func TestStore_Model(t *testing.T) {
	t.Parallel()
	storetest.Model(t, newInstance, storetest.ModelConfig{Steps: modelSteps})
}
