package collector_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestTask_SetCursor holds that a cursor goes out once, with the next beat, and before a task is given back.
func TestTask_SetCursor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 3 * time.Second
		d.put("1-a")
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.StopTimeout = -1 })
		task := <-b.tasks
		if err := task.SetCursor(make([]byte, 64<<10+1)); err == nil {
			t.Error("a cursor over the limit was taken")
		}
		if err := task.SetCursor([]byte("page 3")); err != nil {
			t.Fatal(err)
		}
		task.SetProgress(1.5)
		pass(10 * time.Second)
		if err := task.SetCursor([]byte("page 4")); err != nil {
			t.Fatal(err)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		var cursors []string
		for _, beat := range d.beatCalls() {
			for _, l := range beat.leases {
				if l.Cursor != nil {
					cursors = append(cursors, fmt.Sprintf("%s %.1f", l.GetCursor(), l.GetProgress()))
				}
			}
		}
		cursors = slices.Compact(cursors) // the last one may go out twice: with a beat, and before the report
		if len(cursors) != 2 || cursors[0] != "page 3 1.0" || cursors[1] != "page 4 1.0" {
			t.Errorf("cursors %q", cursors)
		}
		if reports := d.reported(); len(reports) != 1 || reports[0].GetOutcome().GetReleased() == nil {
			t.Errorf("reports %v", reports)
		}
	})
}

// TestTask_SetCursor_unanswered holds that a cursor goes again when the store did not answer for its lease.
func TestTask_SetCursor_unanswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		with := 0 // beats with a cursor
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			answer := d.renewal(b)
			if len(b.leases) == 1 && b.leases[0].Cursor != nil {
				if with++; with == 1 {
					answer.Status.Limited = append(answer.Status.Limited, &wagglev1.LimitedLease{TaskId: "1-a", Duration: durationpb.New(0)})
				}
			}
			return answer, nil
		}
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.StopTimeout = -1 })
		task := <-b.tasks
		if err := task.SetCursor([]byte("page 3")); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if with != 2 {
			t.Errorf("the cursor went with %d beats, want again after one that was not answered for its lease, then no more", with)
		}
	})
}

// TestTask_SetProgress holds that what is no number is not sent: dispatchers refuse it, and with it the renewal of every lease.
func TestTask_SetProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 3 * time.Second
		d.put("1-a")
		b := newBlocked()
		r := start(t, d, b, nil)
		task := <-b.tasks
		for _, progress := range []float64{math.NaN(), math.Inf(-1), 0.25, math.NaN(), math.Inf(1)} {
			task.SetProgress(progress)
			pass(3 * time.Second)
		}
		b.let <- struct{}{}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		var sent []float32
		for _, beat := range d.beatCalls() {
			for _, l := range beat.leases {
				if l.Progress != nil {
					sent = append(sent, l.GetProgress())
				}
			}
		}
		if !slices.Equal(slices.Compact(sent), []float32{0, 0.25, 1}) {
			t.Errorf("progress %v", sent)
		}
	})
}

// TestTask_SetCursor_released holds that a cursor set just before a task is given back reaches the next attempt.
func TestTask_SetCursor_released(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		r := start(t, d, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			time.Sleep(time.Second)
			return collector.Succeeded{}, errors.Join(task.SetCursor([]byte("page 3")), &collector.Released{})
		}), nil)
		pass(5 * time.Second)
		beats := d.beatCalls()
		last := beats[len(beats)-1]
		if len(last.leases) != 1 || string(last.leases[0].GetCursor()) != "page 3" {
			t.Fatalf("last beat names %v", last.leases)
		}
		if reports := d.reported(); len(reports) != 1 || reports[0].at.Before(last.at) || reports[0].GetOutcome().GetReleased() == nil {
			t.Errorf("reports %v", reports)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
