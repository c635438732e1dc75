package serverkit

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// grantPromises are about FetchTask.
func grantPromises() []Promise {
	return []Promise{
		{Name: "grants/one-holder", Rule: "6: each task is leased to you and to nobody else", ask: func(p *probe) {
			p.source(nil)
			ids := p.submit(p.urls(40)...)
			var fetching sync.WaitGroup
			var mu sync.Mutex
			grants := map[string]int{}
			verdicts := make([]string, 6)
			for i := range verdicts {
				fetching.Go(func() {
					w := p.worker(string(rune('a' + i)))
					if i%2 == 1 {
						w.from = p.other
					}
					verdicts[i] = verdict.Of(func() {
						for {
							reply := w.fetch(func(r *wagglev1.FetchTaskRequest) { r.MaxTasks, r.Wait = 3, durationpb.New(500*time.Millisecond) })
							if len(reply.GetLeasedTasks()) == 0 {
								return
							}
							mu.Lock()
							for _, one := range reply.GetLeasedTasks() {
								grants[one.GetLease().GetTaskId()]++
							}
							mu.Unlock()
						}
					})
				})
			}
			fetching.Wait()
			for _, found := range verdicts {
				verdict.Want(found == "", "%s", found)
			}
			for _, id := range ids {
				verdict.Want(grants[id] == 1, "a task was granted %d times, want once", grants[id])
			}
		}},
		{Name: "grants/fences-rise", Rule: "1: the fence rises with each lease", ask: func(p *probe) {
			p.source(nil)
			p.rule(0, 1)
			p.submit(p.url(0, "page"))
			w, last := p.worker("a"), int64(0)
			for range 5 {
				lease := w.one(0).GetLease()
				verdict.Want(lease.GetFence() > last, "the fence %d came after %d", lease.GetFence(), last)
				last = lease.GetFence()
				w.wantReport(lease, released(0), wagglev1.ReportCode_REPORT_CODE_OK)
			}
		}},
		{Name: "grants/replay", Rule: "6: repeated with the same client token, a fetch returns the same leases and grants nothing new", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.urls(6)...)
			w := p.worker("a")
			same := func(r *wagglev1.FetchTaskRequest) { r.ClientToken, r.MaxTasks = "same-token", 2 }
			first := w.fetch(same).GetLeasedTasks()
			w.from = p.other
			second := w.fetch(same).GetLeasedTasks()
			verdict.Want(len(first) == 2 && len(second) == 2, "the fetch got %d tasks and its repetition %d, want 2 and 2", len(first), len(second))
			tokens := map[string]bool{first[0].GetLease().GetLeaseToken(): true, first[1].GetLease().GetLeaseToken(): true}
			for _, one := range second {
				verdict.Want(tokens[one.GetLease().GetLeaseToken()], "the repeated fetch got another lease")
			}
		}},
		{Name: "grants/token-used", Rule: "6: TOKEN_USED: the client token had its grant, and all of it has ended", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.urls(2)...)
			w := p.worker("a")
			same := func(r *wagglev1.FetchTaskRequest) {
				r.ClientToken, r.Wait = "same-token", durationpb.New(5*time.Second)
			}
			w.wantReport(w.fetch(same).GetLeasedTasks()[0].GetLease(), succeeded(), wagglev1.ReportCode_REPORT_CODE_OK)
			reply := w.fetch(same)
			verdict.Want(len(reply.GetLeasedTasks()) == 0 && reply.GetEmptyReason() == wagglev1.EmptyReason_EMPTY_REASON_TOKEN_USED,
				"the repeated fetch got %d tasks and %s, want none and TOKEN_USED", len(reply.GetLeasedTasks()), reply.GetEmptyReason())
		}},
		{Name: "grants/max-tasks", Rule: "6: at most max_tasks tasks", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.urls(9)...)
			got := len(p.worker("a").fetch(func(r *wagglev1.FetchTaskRequest) { r.MaxTasks = 4 }).GetLeasedTasks())
			verdict.Want(got >= 1 && got <= 4, "a fetch for 4 tasks got %d", got)
		}},
		{Name: "grants/parked", Rule: "6: a fetch waits for the first task, and gets it at once", ask: func(p *probe) {
			p.source(nil)
			w := p.worker("a")
			type answer struct {
				reply *wagglev1.FetchTaskResponse
				err   error
				at    time.Time
			}
			sent, answers := time.Now(), make(chan answer, 1)
			go func() {
				reply, err := w.tryFetch(p.ctx, wait(10*time.Second))
				answers <- answer{reply, err, time.Now()}
			}()
			select {
			case early := <-answers:
				verdict.Fail("a fetch that may wait 10 s was answered after %s without a task", early.at.Sub(sent).Round(time.Millisecond))
			case <-time.After(700 * time.Millisecond):
			}
			p.submit(p.url(0, "page"))
			submitted := time.Now()
			got := <-answers
			verdict.Want(got.err == nil && len(got.reply.GetLeasedTasks()) == 1, "the waiting fetch did not get the task: %v", got.err)
			verdict.Want(got.at.Sub(submitted) < 100*time.Millisecond+slack, "the waiting fetch got its task %s after the submit", got.at.Sub(submitted).Round(time.Millisecond))
			waited := got.reply.GetWaited().AsDuration()
			verdict.Want(waited > 500*time.Millisecond && waited <= got.at.Sub(sent), "waited is %s, but the fetch took %s", waited, got.at.Sub(sent))
		}},
		{Name: "grants/nothing", Rule: "6: NO_TASKS comes after wait, or at once and with retry_after when wait is 0", ask: func(p *probe) {
			w := p.worker("a")
			sent := time.Now()
			reply := w.fetch(wait(time.Second))
			took := time.Since(sent)
			verdict.Want(reply.GetEmptyReason() == wagglev1.EmptyReason_EMPTY_REASON_NO_TASKS, "an empty pool was answered %s, want NO_TASKS", reply.GetEmptyReason())
			verdict.Want(took >= 900*time.Millisecond && took < time.Second+slack, "a fetch that waits 1 s was answered after %s", took.Round(time.Millisecond))
			reply = w.fetch(nil)
			verdict.Want(reply.GetRetryAfter().AsDuration() > 0, "a fetch with wait 0 got no retry_after")
		}},
		{Name: "grants/deadline", Rule: "3: a deadline of the caller that is shorter than wait is respected", ask: func(p *probe) {
			ctx, cancel := context.WithTimeout(p.ctx, 2*time.Second)
			defer cancel()
			_, err := p.worker("a").tryFetch(ctx, wait(20*time.Second))
			verdict.Want(err == nil, "a fetch that waits 20 s with a deadline of 2 s failed: %v", err)
		}},
		{Name: "grants/canceled", Rule: "6: cancel a fetch before the reply, and its tasks go back as if never granted", ask: func(p *probe) {
			p.source(nil)
			w := p.worker("a")
			for i := range 5 {
				ctx, cancel := context.WithCancel(p.ctx)
				done := make(chan *wagglev1.FetchTaskResponse, 1)
				go func() {
					reply, _ := w.tryFetch(ctx, wait(10*time.Second)) // an error: it was canceled
					done <- reply
				}()
				id := p.submit(p.url(i, "page"))[0]
				cancel()
				if reply := <-done; len(reply.GetLeasedTasks()) == 1 {
					w.wantReport(reply.GetLeasedTasks()[0].GetLease(), succeeded(), wagglev1.ReportCode_REPORT_CODE_OK)
					continue // the answer was faster
				}
				next := p.worker("b").one(0)
				verdict.Want(next.GetTask().GetId() == id && next.GetTask().GetAttempt() == 1, "the task came back as attempt %d, want 1", next.GetTask().GetAttempt())
				p.worker("b").wantReport(next.GetLease(), succeeded(), wagglev1.ReportCode_REPORT_CODE_OK)
			}
		}},
		{Name: "grants/narrow", Rule: "6: narrow a fetch by pools, sources and queues", ask: func(p *probe) {
			p.source(nil)
			p.source(func(s *wagglev1.SourceSpec) { s.Id = p.name + "-other" })
			ids := p.submit(p.urls(2)...)
			w := p.worker("a")
			elsewhere := w.fetch(func(r *wagglev1.FetchTaskRequest) { r.Pools = []string{p.name + "-other"} })
			verdict.Want(len(elsewhere.GetLeasedTasks()) == 0, "a fetch from another pool got a task")
			elsewhere = w.fetch(func(r *wagglev1.FetchTaskRequest) { r.Sources = []string{p.name + "-other"} })
			verdict.Want(len(elsewhere.GetLeasedTasks()) == 0, "a fetch for another source got a task")
			reply := w.fetch(func(r *wagglev1.FetchTaskRequest) { r.Queues, r.MaxTasks = []string{p.host(1)}, 9 })
			verdict.Want(len(reply.GetLeasedTasks()) == 1 && reply.GetLeasedTasks()[0].GetTask().GetId() == ids[1], "a fetch for one queue did not get the task of that queue")
		}},
		{Name: "grants/carried-reports", Rule: "6: reports of a fetch are settled first", ask: func(p *probe) {
			p.source(nil)
			p.rule(0, 1)
			ids := p.submit(p.url(0, "one"), p.url(0, "two"))
			w := p.worker("a")
			first := w.one(0).GetLease()
			reply := w.fetch(func(r *wagglev1.FetchTaskRequest) {
				r.Reports, r.Wait = []*wagglev1.TaskReport{report(first, succeeded())}, durationpb.New(5*time.Second)
			})
			verdict.Want(len(reply.GetReportResults()) == 1 && reply.GetReportResults()[0].GetCode() == wagglev1.ReportCode_REPORT_CODE_OK, "the carried report was not answered OK")
			verdict.Want(len(reply.GetLeasedTasks()) == 1, "the fetch did not get the task for which its report made room")
			verdict.Want(p.task(first.GetTaskId()).GetState() == wagglev1.TaskState_TASK_STATE_DONE, "the reported task of %d is not DONE", len(ids))
		}},
	}
}
