//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStoreCopy_Killed moves 20,000 tasks from a directory to Redis and back. Each copy gets SIGKILL in its middle: no
// dispatcher starts on what it leaves, and the same command again finishes it. A collector that holds tasks all the
// while renews and reports with the lease tokens of the first dispatcher.
func TestStoreCopy_Killed(t *testing.T) {
	t.Parallel()
	const (
		collector, session = "c", "3b241101-e2bb-4255-8caf-4136c566a962"
		limit              = time.Minute
	)
	server, prefix := redistest.Start(t), "moved"
	first, last := "file:"+t.TempDir()+"/first", "file:"+t.TempDir()+"/last"
	d := serve(t, "first", first, "waggle")
	c := dial(t, d.addr)
	c.createSource(t, &pb.SourceSpec{Id: "a"})
	c.setRule(t, "a.example", 0, 10)
	for begin := 0; begin < 60_000; begin += 1000 {
		items := make([]*pb.SubmitItem, 1000)
		for i := range items {
			items[i] = &pb.SubmitItem{SourceId: "a", Url: fmt.Sprintf("https://host%d.example/%d", i, begin+i)}
		}
		c.submit(t, items...)
	}
	var held []*pb.LeasedTask
	for range 3 {
		held = append(held, c.fetchOne(t, collector, session, 10*time.Second))
	}
	d.stop(limit)
	for i, move := range [][]string{
		{first, server.URL(), "--prefix", prefix, "--shards", "4"},
		{server.URL(), last, "--from-prefix", prefix},
	} {
		to := move[1]
		args := append([]string{"store", "copy"}, move...)
		cut := launch(t, "copy", programs.path("waggle"), args...)
		until(t, limit, "some of the tasks are in redis, or the copy in a directory has begun", func() bool {
			if to == server.URL() {
				items, err := strconv.Atoi(redisCLI(t, server, "HLEN", prefix+":{0}:items:0"))
				return err == nil && items > 0
			}
			_, err := os.Stat(filepath.Join(strings.TrimPrefix(last, "file:"), "store.json"))
			return err == nil
		})
		cut.kill()
		if text := cut.out.tail(logTail); strings.Contains(text, "equal") {
			t.Fatalf("the copy ended before it was killed:\n%s", text)
		}
		refused := launch(t, "refused", programs.path("waggle"), "serve", "--listen", "127.0.0.1:0", "--http", "off", "--store", to, "--prefix", prefix)
		if code := refused.exit(limit); code != 1 || !strings.Contains(refused.out.tail(logTail), "unfinished copy") {
			t.Errorf("a dispatcher on an unfinished copy ended with code %d:\n%s", code, refused.out.tail(logTail))
		}
		again := launch(t, "copy again", programs.path("waggle"), args...)
		if code := again.exit(limit); code != 0 {
			t.Fatalf("the copy ended with code %d:\n%s", code, again.out.tail(logTail))
		}
		t.Log(again.out.tail(logTail))
		d := serve(t, "dispatcher", to, prefix)
		c := dial(t, d.addr)
		for _, l := range held {
			if status := c.renew(t, collector, session, l.GetLease()); len(status.GetLost()) > 0 {
				t.Errorf("a lease was lost in the copy: %v", status)
			}
		}
		if r := c.report(t, collector, session, held[0].GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
			t.Errorf("report: %v", r)
		}
		if r := c.report(t, collector, session, held[0].GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_ALREADY_REPORTED {
			t.Errorf("repeated report: %v", r)
		}
		fresh := c.fetchOne(t, collector, session, 10*time.Second).GetLease()
		if fresh.GetFence() <= held[len(held)-1].GetLease().GetFence() {
			t.Errorf("the fence %d did not rise", fresh.GetFence())
		}
		c.report(t, collector, session, fresh)
		if done := c.stats(t).GetTasks().GetDone(); done != int64(2*(i+1)) {
			t.Errorf("%d tasks are done after %d copies", done, i+1)
		}
		held = held[1:]
		d.stop(limit)
	}
}
