package server_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/server"
)

// alertRules are the rules for Prometheus that ship, as far as this test reads them.
type alertRules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr         string
			Labels, Annotations map[string]string
		}
	}
}

// shownName is a metric of an expression, perhaps with one label.
var shownName = regexp.MustCompile(`\bwaggle_[a-z_]+[a-z](\{[a-z]+="[a-z]+"\})?`)

// Each alert is about metrics that every dispatcher of an owned store shows from its start, and is in the runbook.
func TestAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../deploy/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var rules alertRules
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := server.NewMetrics()
	m.ShowOwnership(func() (dispatch.Ownership, bool) { return dispatch.Ownership{}, true })
	metrics, alerts := shown(t, m), 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			alerts++
			names := shownName.FindAllString(rule.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s is about no metric: %s", rule.Alert, rule.Expr)
			}
			for _, name := range names {
				if _, ok := metrics[strings.ReplaceAll(name, `"`, "")]; !ok {
					t.Errorf("%s: dispatchers show no metric %s", rule.Alert, name)
				}
			}
			if severity := rule.Labels["severity"]; severity != "page" && severity != "ticket" {
				t.Errorf("%s has the severity %q", rule.Alert, severity)
			}
			if rule.Annotations["summary"] == "" || !strings.Contains(string(runbook), "| `"+rule.Alert+"`") {
				t.Errorf("%s has no summary, or is not in the runbook: %v", rule.Alert, rule.Annotations)
			}
			_, anchor, _ := strings.Cut(rule.Annotations["runbook"], "deploy/README.md#")
			heading := regexp.MustCompile(`(?im)^#+ ` + strings.ReplaceAll(regexp.QuoteMeta(anchor), "-", " ") + `$`)
			if anchor == "" || !heading.Match(runbook) {
				t.Errorf("%s: the runbook has no section %q", rule.Alert, rule.Annotations["runbook"])
			}
		}
	}
	if alerts != 5 {
		t.Errorf("there are %d alerts, want 5", alerts)
	}
}
