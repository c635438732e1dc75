//go:build e2e

package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// shorterBy is what the rules' `for` and windows are divided by, since a test does not wait for minutes: 5m becomes 10s. Limits and
// expressions are those that ship.
const shorterBy = 30

// leastWindow is longer than it takes until another dispatcher has taken over from one that fell silent.
const leastWindow = 5 * time.Second

// promServer is a Prometheus.
type promServer struct {
	*process
	url    string
	client *http.Client
}

// scraped is a target: its job and address, and the authority of its certificate, if it has one.
type scraped struct{ job, addr, ca string }

// startPrometheus starts Debian's Prometheus, or the one that WAGGLE_E2E_PROMETHEUS names, with the rules that ship, `for` and windows shortened.
func startPrometheus(t *testing.T, targets []scraped) *promServer {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("../prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\nscrape_configs:\n")
	for _, job := range slices.Compact(slices.Sorted(func(yield func(string) bool) {
		for _, target := range targets {
			if !yield(target.job) {
				return
			}
		}
	})) {
		fmt.Fprintf(&config, "- job_name: %s\n", job)
		var addrs []string
		for _, target := range targets {
			if target.job != job {
				continue
			}
			if addrs = append(addrs, target.addr); target.ca != "" {
				fmt.Fprintf(&config, "  scheme: https\n  tls_config: {ca_file: %s}\n", target.ca)
			}
		}
		fmt.Fprintf(&config, "  static_configs: [{targets: [%q]}]\n", strings.Join(addrs, `", "`))
	}
	for name, content := range map[string]string{"rules.yml": shortened(t, string(text)), "prometheus.yml": strings.ReplaceAll(config.String(), `\"`, `"`)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	addr := freeAddr(t)
	m := &promServer{url: "http://" + addr, client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	m.process = launch(t, "prometheus", cmp.Or(os.Getenv("WAGGLE_E2E_PROMETHEUS"), "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"), "--web.listen-address="+addr,
		"--storage.tsdb.path="+filepath.Join(dir, "data"))
	m.line("Server is ready", startLimit)
	return m
}

var (
	ruleFor    = regexp.MustCompile(`(for: )(\d+[smhd])`)
	ruleWindow = regexp.MustCompile(`(\[)(\d+[smhd])(\])`)
)

// shortened are the rules with shorter times.
func shortened(t *testing.T, rules string) string {
	t.Helper()
	for _, expr := range []*regexp.Regexp{ruleFor, ruleWindow} {
		rules = expr.ReplaceAllStringFunc(rules, func(match string) string {
			part := expr.FindStringSubmatch(match)
			d, err := time.ParseDuration(part[2])
			if err != nil {
				t.Fatalf("%s: %v", match, err)
			}
			after := ""
			if len(part) > 3 {
				after = part[3]
			}
			return part[1] + strconv.Itoa(int(max(d/shorterBy, leastWindow)/time.Second)) + "s" + after
		})
	}
	return rules
}

// sample is a series of an answer and its value.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query asks for an expression as of now.
func (m *promServer) query(t *testing.T, expr string) []sample {
	t.Helper()
	var answer struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	r, err := m.client.Get(m.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatalf("query %s: %v", expr, err)
	}
	text, err := io.ReadAll(r.Body)
	if err := r.Body.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status != "success" {
		t.Fatalf("query %s: %v %s", expr, err, text)
	}
	return answer.Data.Result
}

// alerts are the names of those that fire, or have fired in the time before.
func (m *promServer) alerts(t *testing.T, before time.Duration) []string {
	t.Helper()
	expr := `ALERTS{alertstate="firing"}`
	if before > 0 {
		expr = fmt.Sprintf("count_over_time(%s[%dms])", expr, before.Milliseconds())
	}
	names := map[string]bool{}
	for _, s := range m.query(t, expr) {
		names[s.Metric["alertname"]] = true
	}
	return slices.Sorted(maps.Keys(names))
}
