package collector_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// reportOf runs one task through a handler and returns its only report.
func reportOf(t *testing.T, handler collector.HandlerFunc) *wagglev1.Outcome {
	t.Helper()
	var outcome *wagglev1.Outcome
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		r := start(t, d, handler, nil)
		pass(time.Second)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		reports := d.reported()
		if len(reports) == 0 {
			t.Fatal("no report")
		}
		outcome = reports[0].GetOutcome()
	})
	return outcome
}

func TestHandler_Outcome(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 600)
	for name, test := range map[string]struct {
		handler collector.HandlerFunc
		want    *wagglev1.Failed
	}{
		"plain error": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{}, errors.New("no idea")
			},
			&wagglev1.Failed{Reason: collector.ReasonHandler, Message: "no idea"},
		},
		"failed": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{}, fmt.Errorf("wrapped: %w", &collector.Failed{
					Reason: collector.ReasonNotFound, Message: "gone\xff", HTTPStatus: 404, Permanent: true,
				})
			},
			&wagglev1.Failed{Reason: collector.ReasonNotFound, Message: "gone\uFFFD", HttpStatus: 404, Permanent: true},
		},
		"permanent has no meaning for hosts": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonDNS, Permanent: true, HTTPStatus: 7}
			},
			&wagglev1.Failed{Reason: collector.ReasonDNS},
		},
		"no reason": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{}, &collector.Failed{}
			},
			&wagglev1.Failed{Reason: collector.ReasonOther},
		},
		"long message": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{}, &collector.Failed{Message: long}
			},
			&wagglev1.Failed{Reason: collector.ReasonOther, Message: long[:1018] + " [cut]"},
		},
		"panic": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) { panic("boom") },
			&wagglev1.Failed{Reason: collector.ReasonHandler, Message: "panic: boom"},
		},
		"goexit": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				runtime.Goexit()
				return collector.Succeeded{}, nil
			},
			&wagglev1.Failed{Reason: collector.ReasonHandler, Message: "handler ended its goroutine"},
		},
		"memo over the limit": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{Memo: make([]byte, 4097)}, nil
			},
			&wagglev1.Failed{Reason: collector.ReasonHandler, Message: "memo: 4097 bytes, limit 4096"},
		},
		"payload over the limit": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{Discovered: []collector.Discovered{{URL: "http://a/", Payload: make([]byte, 256<<10+1)}}}, nil
			},
			&wagglev1.Failed{Reason: collector.ReasonHandler, Message: "payload of discovered http://a/: 262145 bytes, limit 262144"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := reportOf(t, test.handler).GetFailed(); got.String() != test.want.String() {
				t.Errorf("reported %v, want %v", got, test.want)
			}
		})
	}
}

func TestHandler_Released(t *testing.T) {
	t.Parallel()
	got := reportOf(t, func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{}, &collector.Released{Delay: time.Minute}
	})
	if got.GetReleased().GetDelay().AsDuration() != time.Minute {
		t.Errorf("reported %v", got)
	}
}

// What a handler says beside how the task ended is reported, in the bounds of the protocol.
func TestHandler_SaysMore(t *testing.T) {
	t.Parallel()
	changed := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	long, none, negative := 2*time.Hour, time.Duration(0), -time.Second
	done := reportOf(t, func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{QueueDelay: &long, NextCrawlDelay: 400 * 24 * time.Hour, Discovered: []collector.Discovered{
			{URL: "http://www.a/", Relation: collector.RelationRedirect, Modified: changed},
			{URL: "http://a/1", Modified: time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		}}, nil
	}).GetSucceeded()
	if got := done.GetQueueDelay().AsDuration(); got != time.Hour {
		t.Errorf("queue delay %v, want the most there is", got)
	}
	if got := done.GetNextCrawlDelay().AsDuration(); got != 366*24*time.Hour {
		t.Errorf("next crawl delay %v, want the most there is", got)
	}
	items := done.GetDiscovered()
	if items[0].GetRelation() != collector.RelationRedirect || !items[0].GetModifiedTime().AsTime().Equal(changed) || items[1].GetRelation() != 0 || items[1].GetModifiedTime() != nil {
		t.Errorf("discovered %v", items)
	}
	for _, delay := range []*time.Duration{&none, &negative, nil} {
		got := reportOf(t, func(context.Context, *collector.Task) (collector.Succeeded, error) {
			return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonNotFound, QueueDelay: delay}
		}).GetFailed().QueueDelay
		if said := delay != nil; (got != nil) != said || got.AsDuration() != 0 {
			t.Errorf("queue delay %v is reported as %v", delay, got)
		}
	}
}
