package offheap_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/waggle-crawl/waggle/store/internal/offheap"
)

// TestValues keeps, replaces and frees values of all lengths: each stays what it was put as.
func TestValues(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var values offheap.Values
	var refs [500]offheap.Ref
	var want [500][]byte
	for step := range 50_000 {
		i := random.IntN(len(refs))
		switch random.IntN(4) {
		case 0:
			values.Free(refs[i])
			refs[i], want[i] = offheap.Ref{}, nil
		default:
			value := bytes.Repeat([]byte{byte(step)}, random.IntN(1500))
			refs[i], want[i] = values.Put(refs[i], value), value
		}
		i = random.IntN(len(refs))
		if got := values.Append(nil, refs[i]); !bytes.Equal(got, want[i]) || refs[i].Len() != len(want[i]) {
			t.Fatalf("step %d: value %d is %d bytes that are not the %d that were put", step, i, len(got), len(want[i]))
		}
	}
}
