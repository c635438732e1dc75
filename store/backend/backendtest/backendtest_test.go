package backendtest_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
)

// TestLedger holds what stands in for a backend in tests to the contract.
func TestLedger(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(t *testing.T) backendtest.Place {
		t.Helper()
		l := new(backendtest.Ledger)
		return backendtest.Place{
			Backend: l.Backend,
			Kill:    func(b backend.Backend) error { return b.Release(t.Context()) },
			Lose: func() error {
				_, err := l.Backend().Acquire(t.Context(), backend.Owner{})
				return err
			},
		}
	})
}
