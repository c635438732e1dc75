package collectortest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/collectortest"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// heard is how long a drained collector takes at most to hear that it is no longer: it is pushed.
const heard = time.Second

// TestDrain_BeforeItComes holds that a collector that operators have drained by its labels takes nothing, from its start
// on, and fetches once they let it.
func TestDrain_BeforeItComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := collectortest.Start(t)
		admin := wagglev1.NewAdminServiceClient(d.Conn())
		eu := map[string]string{"region": "eu"}
		if _, err := admin.DrainCollectors(t.Context(), &wagglev1.DrainCollectorsRequest{Labels: eu, By: "ada"}); err != nil {
			t.Fatal(err)
		}
		d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
		d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://a.example/"})
		var seen visits
		cfg := d.Machine().Config("paris-1", 4)
		cfg.Labels = map[string]string{"region": "eu", "disk": "ssd"}
		d.Machine().Start(cfg, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			seen.note(task.URL)
			return collector.Succeeded{}, nil
		}))
		time.Sleep(time.Minute)
		if n := seen.times("https://a.example/"); n != 0 {
			t.Errorf("the drained collector was given the task %d times", n)
		}
		listed, err := admin.ListCollectors(t.Context(), &wagglev1.ListCollectorsRequest{})
		if err != nil || len(listed.GetCollectors()) != 1 || listed.GetCollectors()[0].GetState() != wagglev1.CollectorState_COLLECTOR_STATE_DRAINING {
			t.Errorf("listed %v, %v; want one that drains", listed, err)
		}
		if _, err := admin.ResumeCollectors(t.Context(), &wagglev1.ResumeCollectorsRequest{Labels: eu}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(heard)
		if n := seen.times("https://a.example/"); n != 1 {
			t.Errorf("the task was worked on %d times %s after the resume, want once", n, heard)
		}
		// It waits for tasks now, has nothing to beat for, and asks all the same what the end of its fetch means.
		if _, err := admin.DrainCollectors(t.Context(), &wagglev1.DrainCollectorsRequest{CollectorId: "paris-1"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		listed, err = admin.ListCollectors(t.Context(), &wagglev1.ListCollectorsRequest{})
		if err != nil || len(listed.GetCollectors()) != 1 || listed.GetCollectors()[0].GetHeartbeatAge().AsDuration() != 0 {
			t.Errorf("listed %v, %v; want one that has beaten just now", listed, err)
		}
	})
}

// TestDrain_AmidWork holds that a collector that is drained finishes what it works on, however long that takes, and takes
// no more until it is resumed.
func TestDrain_AmidWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := collectortest.Start(t)
		admin := wagglev1.NewAdminServiceClient(d.Conn())
		d.CreateSource(&wagglev1.SourceSpec{Id: "shop", LeaseDuration: durationpb.New(6 * time.Second)})
		d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://a.example/1"})
		var seen visits
		finish := make(chan struct{})
		d.Machine().Start(d.Machine().Config("paris-1", 4), collector.HandlerFunc(func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
			seen.note(task.URL)
			select {
			case <-finish:
				return collector.Succeeded{}, nil
			case <-ctx.Done():
				return collector.Succeeded{}, ctx.Err()
			}
		}))
		time.Sleep(time.Second)
		if _, err := admin.DrainCollectors(t.Context(), &wagglev1.DrainCollectorsRequest{CollectorId: "paris-1"}); err != nil {
			t.Fatal(err)
		}
		d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://a.example/2"})
		time.Sleep(time.Minute) // ten leases
		close(finish)
		time.Sleep(time.Second)
		if got := d.Task("shop", "https://a.example/1"); got.GetState() != wagglev1.TaskState_TASK_STATE_DONE || got.GetExpirations() != 0 {
			t.Errorf("what it worked on is %v", got)
		}
		time.Sleep(time.Minute)
		if n := seen.times("https://a.example/2"); n != 0 {
			t.Errorf("the drained collector was given another task %d times", n)
		}
		if _, err := admin.ResumeCollectors(t.Context(), &wagglev1.ResumeCollectorsRequest{CollectorId: "paris-1"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(heard)
		if n := seen.times("https://a.example/2"); n != 1 {
			t.Errorf("the other task was worked on %d times %s after the resume, want once", n, heard)
		}
	})
}

// TestDrain_Told holds that a collector without work tells at once that it fetches again: until then operators see it
// draining, and its pool without a collector.
func TestDrain_Told(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := collectortest.Start(t)
		admin := wagglev1.NewAdminServiceClient(d.Conn())
		d.Machine().Start(d.Machine().Config("paris-1", 4), collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			return collector.Succeeded{}, nil
		}))
		time.Sleep(time.Minute)
		if _, err := admin.DrainCollectors(t.Context(), &wagglev1.DrainCollectorsRequest{CollectorId: "paris-1"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := admin.ResumeCollectors(t.Context(), &wagglev1.ResumeCollectorsRequest{CollectorId: "paris-1"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(heard)
		listed, err := admin.ListCollectors(t.Context(), &wagglev1.ListCollectorsRequest{})
		if err != nil || len(listed.GetCollectors()) != 1 || listed.GetCollectors()[0].GetState() != wagglev1.CollectorState_COLLECTOR_STATE_ACTIVE {
			t.Errorf("listed %v, %v; want one that is active", listed, err)
		}
		explained, err := admin.Explain(t.Context(), &wagglev1.ExplainRequest{Pool: "default"})
		if err != nil || len(explained.GetHolds()) != 0 {
			t.Errorf("explained %v, %v; want nothing that holds the pool", explained, err)
		}
	})
}

// TestDrain_IsNoStop holds that a collector takes an operator's drain not for a dispatcher that is about to stop: neither
// amid work, when its fetches carry reports and do not wait, nor when a fetch that waits is ended by the drain.
func TestDrain_IsNoStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := collectortest.Start(t)
		admin := wagglev1.NewAdminServiceClient(d.Conn())
		d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
		for i := range 100 {
			d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: fmt.Sprintf("https://h%d.example/", i)})
		}
		core, logs := observer.New(zap.InfoLevel)
		cfg := d.Machine().Config("paris-1", 2)
		cfg.Logger = zap.New(core)
		d.Machine().Start(cfg, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			time.Sleep(100 * time.Millisecond)
			return collector.Succeeded{}, nil
		}))
		time.Sleep(time.Second + 50*time.Millisecond)
		for _, when := range []string{"amid work", "without work"} {
			if _, err := admin.DrainCollectors(t.Context(), &wagglev1.DrainCollectorsRequest{CollectorId: "paris-1"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if found := logs.FilterMessageSnippet("about to stop").Len(); found > 0 {
				t.Errorf("drained %s, the collector logged %d times that a dispatcher is about to stop", when, found)
			}
			if _, err := admin.ResumeCollectors(t.Context(), &wagglev1.ResumeCollectorsRequest{CollectorId: "paris-1"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // until the work is done
		}
	})
}
