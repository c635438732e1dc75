package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector/collectortest"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gone":
			w.WriteHeader(http.StatusNotFound)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer site.Close()
	nobody, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := "http://" + nobody.Addr().String() + "/"
	if err := nobody.Close(); err != nil {
		t.Fatal(err)
	}

	d := collectortest.Start(t)
	d.CreateSource(&wagglev1.SourceSpec{Id: "links"})
	d.Submit(
		&wagglev1.SubmitItem{SourceId: "links", Url: site.URL + "/here"},
		&wagglev1.SubmitItem{SourceId: "links", Url: site.URL + "/gone"},
		&wagglev1.SubmitItem{SourceId: "links", Url: refusing},
	)
	seen := &counts{}
	d.Work(newHandler(seen))
	d.Submit(&wagglev1.SubmitItem{SourceId: "links", Url: site.URL + "/broken"}) // last: it blocks its host
	d.Work(newHandler(seen))

	if task := d.Task("links", site.URL+"/here"); task.GetState() != wagglev1.TaskState_TASK_STATE_DONE {
		t.Errorf("a page that is there: %v", task)
	}
	for url, want := range map[string]wagglev1.FailureReason{
		site.URL + "/gone":   wagglev1.FailureReason_FAILURE_REASON_NOT_FOUND,
		site.URL + "/broken": wagglev1.FailureReason_FAILURE_REASON_SERVER_ERROR,
		refusing:             wagglev1.FailureReason_FAILURE_REASON_CONNECT,
	} {
		if task := d.Task("links", url); task.GetLastError().GetReason() != want {
			t.Errorf("%s failed with %s, want %s", url, task.GetLastError().GetReason(), want)
		}
	}
	if line := seen.String(); !strings.HasPrefix(line, "1 answered, 3 failed") {
		t.Errorf("counted: %s", line)
	}
}
