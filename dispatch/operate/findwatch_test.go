package operate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// lookForFindings runs the chore of an operator whose dispatcher does not run.
func lookForFindings(ctx context.Context, o *operate.Operator) error {
	for _, c := range o.Chores() {
		if c.Name == "look for findings" {
			_, err := c.Do(ctx)
			return err
		}
	}
	return errors.New("there is no such chore")
}

// The owner sees as many sources at a look as there is time for, and goes on with the others: what it has found of all stands
// meanwhile, also if a list cannot be read.
func TestOperator_HeedFindings(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		for i := range 500 {
			w.AddSource(fmt.Sprintf("s.%03d", i), nil)
		}
		for _, id := range []string{"s.010", "s.490"} {
			w.SetHold(dispatch.HoldTarget{Source: id}, time.Time{})
		}
		slow := dispatchtest.Delay(150*time.Millisecond, dispatchtest.Calls("ListSources"))
		o := w.Second(slow)
		var last *operate.Findings
		o.HeedFindings(func(f *operate.Findings) { last = f })
		for look, want := range []struct {
			held, sources int
			whole         bool
		}{{1, 200, false}, {1, 400, false}, {2, 500, true}, {2, 500, true}, {2, 500, true}, {1, 500, true}} {
			if err := lookForFindings(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			held := o.FindingCounts()["HELD"]
			if held != want.held || last.Sources != want.sources || last.Whole != want.whole || o.FindingCounts()["UNREAD"] != 0 {
				t.Errorf("look %d: %d held, %d sources, whole: %t; want %+v", look, held, last.Sources, last.Whole, want)
			}
			if look == 3 {
				w.LiftHold(dispatch.HoldTarget{Source: "s.490"})
			}
		}
		broken := w.Second(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("ListSources")).From(3))
		for range 2 {
			if err := lookForFindings(t.Context(), broken); err != nil {
				t.Fatal(err)
			}
			if held := broken.FindingCounts()["HELD"]; held != 1 {
				t.Errorf("%d held", held)
			}
		}
		if n := broken.FindingCounts()["UNREAD"]; n == 0 {
			t.Error("no list is said to be unread")
		}
	})
}
