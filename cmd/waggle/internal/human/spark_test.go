package human_test

import (
	"math"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

func TestSpark(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []int64
		want   string
	}{
		{nil, ""},
		{[]int64{0, 0}, "··"},
		{[]int64{7}, "█"},
		{[]int64{0, 1, 4, 8, -3}, "·▁▄█·"},
		{[]int64{math.MaxInt64, math.MaxInt64 / 2, 1}, "█▄▁"},
	} {
		if got := human.Spark(c.values); got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
}
