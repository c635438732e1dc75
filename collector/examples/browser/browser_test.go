package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/collectortest"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// site is a page whose links are made by a script, and the pages they lead to.
func site(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	switch {
	case r.URL.Path == "/":
		fmt.Fprint(w, `<!doctype html><title>shop</title><body><script>
			setTimeout(() => {
				for (const n of [1, 2, 3]) {
					document.body.insertAdjacentHTML("beforeend", "<a class=item href='/item/" + n + "'>item " + n + "</a>");
				}
			}, 100);
		</script>`)
	case strings.HasPrefix(r.URL.Path, "/item/"):
		fmt.Fprint(w, `<!doctype html><title>item</title><body><script>
			document.body.insertAdjacentHTML("beforeend", "<a class=item href='/'>rendered " + location.pathname + "</a>");
		</script>`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<!doctype html>no such page")
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	b, err := startBrowser(t.Context(), "", os.Geteuid() != 0)
	if err != nil {
		t.Fatalf("Chromium is needed (Debian: apt-get install chromium): %v", err)
	}
	defer b.close()
	web := httptest.NewServer(http.HandlerFunc(site))
	defer web.Close()

	d := collectortest.Start(t)
	d.CreateSource(&wagglev1.SourceSpec{
		Id: "shop", Seeds: []*wagglev1.Seed{{Url: web.URL + "/"}}, Follow: &wagglev1.Follow{},
		Metadata: map[string]string{"ready": "a.item"},
	})
	d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: web.URL + "/missing"})
	var mu sync.Mutex // guards pages
	pages := map[string]string{}
	d.Work(&handler{browser: b, keep: func(task *collector.Task, html string) error {
		mu.Lock()
		defer mu.Unlock()
		pages[task.URL] = html
		return nil
	}})
	for n := 1; n <= 3; n++ {
		path := fmt.Sprintf("/item/%d", n)
		if html := pages[web.URL+path]; !strings.Contains(html, "rendered "+path) {
			t.Errorf("%s was not found by its script-made link, or not rendered: %q", path, html)
		}
		if state := d.Task("shop", web.URL+path).GetState(); state != wagglev1.TaskState_TASK_STATE_DONE {
			t.Errorf("%s is %s, want DONE", path, state)
		}
	}
	if task := d.Task("shop", web.URL+"/missing"); task.GetLastError().GetHttpStatus() != http.StatusNotFound {
		t.Errorf("a page that is missing: %v", task)
	}
}
