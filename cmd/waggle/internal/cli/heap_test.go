package cli_test

import (
	"runtime"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

// The floor makes the heap look larger, unless the operator has set when to
// collect. It is measured by what the runtime counts, so no test runs beside.
func TestWithHeapFloor(t *testing.T) { //nolint:paralleltest // it measures the heap of the process
	for name, test := range map[string]struct {
		variable string
		held     bool
	}{
		"default": {"", true}, "GOGC is set": {"GOGC", false}, "GOMEMLIMIT is set": {"GOMEMLIMIT", false},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // as above
			env := func(variable string) (string, bool) { return "100", variable == test.variable }
			before := collected()
			err := cli.WithHeapFloor(env, func() error {
				if held := int64(collected()-before) > cli.HeapFloor/2; held != test.held {
					t.Errorf("the floor is held: %v, want %v", held, test.held)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// collected is the size of the heap once its garbage is collected.
func collected() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
