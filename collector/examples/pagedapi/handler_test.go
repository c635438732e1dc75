package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector/collectortest"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const apiPages = 6

// api hands out a list of apiPages pages. stop, when not nil, holds up the page with that number until it is closed, and
// tells by asked that it was asked for.
type api struct {
	stopAt      int
	asked, stop chan struct{}
}

// ServeHTTP answers a page.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Query().Get("cursor")) // 0 for the first page, which has none
	if a.stop != nil && n == a.stopAt {
		select {
		case a.asked <- struct{}{}:
		default:
		}
		<-a.stop
	}
	answer := page{Items: []json.RawMessage{json.RawMessage(strconv.Itoa(10 * n)), json.RawMessage(strconv.Itoa(10*n + 1))}}
	if n+1 < apiPages {
		answer.Next = strconv.Itoa(n + 1)
	}
	if text, err := json.Marshal(answer); err == nil {
		_, _ = w.Write(text) // a client that died is part of the test
	}
}

// kept reads what was written: of each page the line with the highest fence.
func kept(t *testing.T, out *bytes.Buffer) (items []string, lines int) {
	t.Helper()
	best := map[string]line{}
	for scanner := bufio.NewScanner(out); scanner.Scan(); lines++ {
		var l line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", scanner.Text(), err)
		}
		if old, ok := best[l.Page]; !ok || l.Fence > old.Fence {
			best[l.Page] = l
		}
	}
	for n := range apiPages {
		name := strconv.Itoa(n)
		if n == 0 {
			name = ""
		}
		for _, item := range best[name].Items {
			items = append(items, string(item))
		}
	}
	return items, lines
}

func wantItems(t *testing.T, items []string) {
	t.Helper()
	var want []string
	for n := range apiPages {
		want = append(want, strconv.Itoa(10*n), strconv.Itoa(10*n+1))
	}
	if fmt.Sprint(items) != fmt.Sprint(want) {
		t.Errorf("kept %v, want %v", items, want)
	}
}

func TestPages_Handle(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(&api{})
	defer site.Close()
	d := collectortest.Start(t)
	d.CreateSource(&wagglev1.SourceSpec{Id: "list", Seeds: []*wagglev1.Seed{{Url: site.URL + "/items"}}})
	var out bytes.Buffer
	d.Work(&pages{client: site.Client(), store: &lines{out: &out}})
	items, written := kept(t, &out)
	wantItems(t, items)
	if written != apiPages {
		t.Errorf("%d lines were written, want %d", written, apiPages)
	}
}

// TestPages_Handle_AfterACrash lets the first machine die while it waits for the fourth page.
func TestPages_Handle_AfterACrash(t *testing.T) {
	t.Parallel()
	slow := &api{stopAt: 3, asked: make(chan struct{}, 1), stop: make(chan struct{})}
	site := httptest.NewServer(slow)
	defer site.Close()
	quick := httptest.NewServer(&api{})
	defer quick.Close()

	d := collectortest.Start(t)
	d.CreateSource(&wagglev1.SourceSpec{
		Id: "list", LeaseDuration: durationpb.New(time.Second), Seeds: []*wagglev1.Seed{{Url: site.URL + "/items"}},
	})
	var before, after bytes.Buffer
	first := d.Machine()
	stop := first.Start(first.Config("one", 1), &pages{client: site.Client(), store: &lines{out: &before}})
	<-slow.asked
	for tick := time.Tick(10 * time.Millisecond); string(d.Task("list", site.URL+"/items").GetCursor()) != "3"; <-tick {
		if t.Context().Err() != nil {
			t.Fatal("the cursor did not reach the dispatcher")
		}
	}
	first.Die()
	close(slow.stop)
	d.Work(&pages{client: site.Client(), store: &lines{out: &after}})

	stop() // what the first machine did after it was taken for dead counts as well
	_, again := kept(t, bytes.NewBuffer(bytes.Clone(after.Bytes())))
	if again != apiPages-3 {
		t.Errorf("the second machine read %d pages, want the %d that were left", again, apiPages-3)
	}
	before.Write(after.Bytes())
	items, _ := kept(t, &before)
	wantItems(t, items)
}
