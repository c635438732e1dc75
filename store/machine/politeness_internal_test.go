package machine

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

var epoch = time.UnixMilli(1_800_000_000_000).UTC()

func TestNextGrantAfterReport(t *testing.T) {
	t.Parallel()
	polite := dispatch.QueueSettings{MinDelay: time.Second, MaxInFlight: 1, MaxBlock: time.Hour}
	adaptive := polite
	adaptive.DelayFactor, adaptive.MaxDelay = 10, 5*time.Second
	for name, test := range map[string]struct {
		settings dispatch.QueueSettings
		prev     time.Duration // after epoch
		fetch    time.Duration
		want     time.Duration
	}{
		"from the start of the request":    {polite, 0, 300 * time.Millisecond, 700 * time.Millisecond},
		"a long request leaves no delay":   {polite, 0, 3 * time.Second, 0},
		"never sooner than before":         {polite, 2 * time.Second, 300 * time.Millisecond, 2 * time.Second},
		"no duration counts from now":      {polite, 0, 0, time.Second},
		"a factor of the duration":         {adaptive, 0, 300 * time.Millisecond, 3 * time.Second},
		"the factor is bounded":            {adaptive, 0, 2 * time.Second, 5 * time.Second},
		"the factor needs to know it":      {adaptive, 0, 0, time.Second},
		"min_delay beyond the factor wins": {adaptive, 0, 10 * time.Millisecond, 990 * time.Millisecond},
	} {
		got := nextGrantAfterReport(epoch, epoch.Add(test.prev), test.settings, test.fetch)
		if got.Sub(epoch) != test.want {
			t.Errorf("%s: next grant in %v, want %v", name, got.Sub(epoch), test.want)
		}
	}
}

func TestBlockAfter_doublesOncePerBlock(t *testing.T) {
	t.Parallel()
	settings := dispatch.QueueSettings{MaxBlock: time.Minute}
	until, step := time.Time{}, 0
	now := epoch
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
		until, step = blockAfter(now, until, step, settings, 0)
		if until.Sub(now) != want {
			t.Fatalf("block %d is %v long, want %v", step, until.Sub(now), want)
		}
		again, stepAgain := blockAfter(now.Add(time.Second), until, step, settings, 0)
		if !again.Equal(until) || stepAgain != step {
			t.Fatalf("a failure inside block %d moved it", step)
		}
		now = until
	}
}

func TestBlockAfter_honoursRetryAfterWithinMaxBlock(t *testing.T) {
	t.Parallel()
	settings := dispatch.QueueSettings{MaxBlock: time.Minute}
	until, step := blockAfter(epoch, time.Time{}, 3, settings, 5*time.Second)
	if until.Sub(epoch) != 5*time.Second || step != 4 {
		t.Errorf("block of %v, step %d", until.Sub(epoch), step)
	}
	if until, _ = blockAfter(epoch, until, step, settings, 30*time.Second); until.Sub(epoch) != 30*time.Second {
		t.Errorf("a longer retry_after inside the block gave %v", until.Sub(epoch))
	}
	if until, _ = blockAfter(epoch, until, step, settings, time.Hour); until.Sub(epoch) != time.Minute {
		t.Errorf("retry_after beyond max_block gave %v", until.Sub(epoch))
	}
}
