package server_test

import (
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/server"
)

// documented is a line of the table of metrics.
type documented struct{ kind, labels string }

// documentedMetrics reads what deploy/metrics.md has under a heading.
func documentedMetrics(t *testing.T, heading string) map[string]documented {
	t.Helper()
	text, err := os.ReadFile("../deploy/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(text), "\n## "+heading+"\n")
	part, _, _ = strings.Cut(part, "\n## ")
	all := make(map[string]documented)
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([a-z_, ]*) ?\\| .+ \\|$").FindAllStringSubmatch(part, -1) {
		all[row[1]] = documented{row[2], strings.TrimSpace(row[3])}
	}
	return all
}

// Each metric of the dispatcher is in the table, and each of the table is in the code.
func TestMetrics_documented(t *testing.T) {
	t.Parallel()
	table := documentedMetrics(t, "Dispatchers")
	literal := regexp.MustCompile(`"((?:waggle|rpc_server)_[a-z_]+)"`)
	code := make(map[string]bool)
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range literal.FindAllStringSubmatch(string(text), -1) {
			code[name[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range code {
		if _, ok := table[name]; !ok {
			t.Errorf("deploy/metrics.md lacks %s", name)
		}
	}
	for name := range table {
		if !code[name] {
			t.Errorf("deploy/metrics.md has %s, which is not in the code", name)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		b.leased(t)
		b.shown.ShowOwnership(func() (dispatch.Ownership, bool) { return dispatch.Ownership{}, true })
		families, err := b.shown.Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			name := family.GetName()
			if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				continue
			}
			labels := make(map[string]bool)
			for _, label := range family.GetMetric()[0].GetLabel() {
				labels[label.GetName()] = true
			}
			want := table[name]
			var of []string
			if want.labels != "" {
				of = strings.Split(want.labels, ", ")
			}
			if got := slices.Sorted(maps.Keys(labels)); want.kind != strings.ToLower(family.GetType().String()) || !slices.Equal(got, slices.Sorted(slices.Values(of))) {
				t.Errorf("%s is a %s with the labels %v, and documented as %+v", name, strings.ToLower(family.GetType().String()), got, want)
			}
			if family.GetHelp() == "" {
				t.Errorf("%s has no help", name)
			}
		}
	})
}

// What an idle dispatcher shows is short, about 430 lines: no label makes hundreds of zeros.
func TestMetrics_idle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		b.shown.ShowOwnership(func() (dispatch.Ownership, bool) { return dispatch.Ownership{}, true })
		reply := httptest.NewRecorder()
		promhttp.HandlerFor(b.shown.Registry(), promhttp.HandlerOpts{}).ServeHTTP(reply, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		lines := strings.Count(reply.Body.String(), "\n")
		t.Logf("%d lines", lines)
		if lines > 450 {
			t.Errorf("an idle dispatcher shows %d lines", lines)
		}
	})
}
