// Package prometheus_test proves that the alert rules, the dashboards and the questions of ../questions.md are about metrics, labels and
// commands that there are, and that each alert fires for its trouble, once, and for no other one.
package prometheus_test

import (
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// metrics are those that ../metrics.md has, with their labels and, of findings, the kinds.
type metrics struct {
	labels map[string][]string
	kinds  []string
}

var (
	metricRow   = regexp.MustCompile("(?m)^\\| `((?:waggle|rpc)_[a-z0-9_]+)` \\| ([a-z]+) \\|([^|]*)\\|")
	labelName   = regexp.MustCompile("[a-z_]+")
	findingKind = regexp.MustCompile(`(?m)^  FINDING_KIND_([A-Z_]+) = [1-9][0-9]*;`)
)

// scraped are labels that Prometheus gives to all series of a target.
var scraped = []string{"job", "instance"}

// catalogue reads the metrics that there are. A test of the server holds that document against what dispatchers show.
func catalogue(t *testing.T) *metrics {
	t.Helper()
	m := &metrics{labels: map[string][]string{"up": scraped}}
	for _, row := range metricRow.FindAllStringSubmatch(read(t, "../metrics.md"), -1) {
		has := slices.Clone(scraped)
		for _, label := range labelName.FindAllString(row[3], -1) {
			has = append(has, label)
		}
		m.labels[row[1]] = has
		if row[2] == "histogram" {
			m.labels[row[1]+"_bucket"] = append(slices.Clone(has), "le")
			m.labels[row[1]+"_count"], m.labels[row[1]+"_sum"] = has, has
		}
	}
	if len(m.labels) < 50 {
		t.Fatalf("../metrics.md has %d metrics", len(m.labels))
	}
	for _, kind := range findingKind.FindAllStringSubmatch(read(t, "../../proto/waggle/v1/admin_service.proto"), -1) {
		m.kinds = append(m.kinds, strings.ToLower(kind[1]))
	}
	return m
}

// check parses an expression, and holds its metrics, labels and kinds of findings, and the labels of a legend, against what there is.
// It returns the kinds that it asks for.
func (m *metrics) check(t *testing.T, name, expr, legend string) (kinds []string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v: %s", name, err, expr)
		return nil
	}
	all := map[string]bool{}
	var asked []string // labels beside those of selectors
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			has, ok := m.labels[n.Name]
			if !ok {
				t.Errorf("%s: there is no metric %s", name, n.Name)
			}
			for _, label := range has {
				all[label] = true
			}
			for _, match := range n.LabelMatchers {
				if match.Name != labels.MetricName && ok && !slices.Contains(has, match.Name) {
					t.Errorf("%s: %s has no label %s", name, n.Name, match.Name)
				}
				if n.Name == "waggle_findings" && match.Name == "kind" {
					kinds = append(kinds, strings.Split(match.Value, "|")...)
				}
			}
		case *parser.AggregateExpr:
			asked = append(asked, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				asked = append(asked, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(legend, -1) {
		asked = append(asked, label[1])
	}
	for _, label := range asked {
		if !all[label] {
			t.Errorf("%s: no metric of it has the label %s: %s", name, label, expr)
		}
	}
	for _, kind := range kinds {
		if !slices.Contains(m.kinds, kind) {
			t.Errorf("%s: there is no finding %s", name, kind)
		}
	}
	return kinds
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRules: each alert is about metrics that there are, is tested, and has a row of ../alerts.md; each kind of finding has an alert, or
// a reason to have none.
func TestRules(t *testing.T) {
	t.Parallel()
	known, doc, tests := catalogue(t), read(t, "../alerts.md"), read(t, "rules_test.yml")
	_, without, _ := strings.Cut(doc, "## Findings without an alert")
	groups, errs := rulefmt.Parse([]byte(read(t, "rules.yml")), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	told := map[string]bool{}
	alerts := map[string]bool{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			alerts[rule.Alert] = true
			for _, kind := range known.check(t, rule.Alert, rule.Expr, "") {
				told[kind] = true
			}
			if severity := rule.Labels["severity"]; severity != "page" && severity != "ticket" {
				t.Errorf("%s has the severity %q", rule.Alert, severity)
			}
			anchor := strings.ToLower(rule.Alert)
			if rule.Annotations["summary"] == "" || rule.Annotations["runbook"] != "deploy/alerts.md#"+anchor {
				t.Errorf("%s has no summary, or another runbook: %v", rule.Alert, rule.Annotations)
			}
			if row := regexp.MustCompile("(?m)^\\| <a id=\"" + anchor + "\"></a>`" + rule.Alert + "` \\| [^|]+ \\| `[^|`]+` \\| [^|]+ \\|$"); !row.MatchString(doc) {
				t.Errorf("%s has no row in alerts.md with a command", rule.Alert)
			}
			if !strings.Contains(tests, `ALERTS{alertname="`+rule.Alert+`",alertstate="firing"`) {
				t.Errorf("%s has no test that it fires", rule.Alert)
			}
		}
	}
	for _, kind := range known.kinds {
		if told[kind] == strings.Contains(without, "`"+strings.ToUpper(kind)+"`") {
			t.Errorf("finding %s: an alert %v, and a reason to have none %v", kind, told[kind], !told[kind])
		}
	}
	for _, row := range regexp.MustCompile("</a>`(Waggle\\w+)`").FindAllStringSubmatch(doc, -1) {
		if !alerts[row[1]] {
			t.Errorf("alerts.md has %s, which is no rule", row[1])
		}
	}
	t.Logf("%d alerts", len(alerts))
}

// TestPromtool runs the unit tests of the rules, and checks the configuration.
func TestPromtool(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "config", "prometheus.yml"}, {"test", "rules", "rules_test.yml"}} {
		if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

var (
	usage    = regexp.MustCompile(`Usage:\n  waggle ((?:[a-z]+ )+)`)
	question = regexp.MustCompile("(?m)^\\| (\\d+) \\| ([^|]+) \\| `waggle ([^|`]+)` \\| (\\w+) \\| ([^|]+) \\|$")
)

// TestQuestions: the command of each question is one that the program takes, with these flags, and its panel exists.
func TestQuestions(t *testing.T) {
	t.Parallel()
	waggle := t.TempDir() + "/waggle"
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-trimpath", "-o", waggle, "./cmd/waggle").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	panels, commands := map[string]bool{}, map[string]bool{}
	for _, b := range boards() {
		for _, p := range b.panels {
			panels[b.name+"/"+p.title] = true
		}
	}
	rows := question.FindAllStringSubmatch(read(t, "../questions.md"), -1)
	for _, row := range rows {
		if !panels[row[4]+"/"+row[5]] {
			t.Errorf("question %s: no panel %s of %s", row[1], row[5], row[4])
		}
		commands[row[3]] = true
	}
	if len(rows) != 27 {
		t.Errorf("there are %d questions, want 27", len(rows))
	}
	for _, command := range regexp.MustCompile("`waggle ([^|`]+)`").FindAllStringSubmatch(read(t, "../alerts.md"), -1) {
		commands[command[1]] = true
	}
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		args := strings.Fields(command)
		out, err := exec.CommandContext(t.Context(), waggle, append(args, "--help")...).CombinedOutput()
		// The usage names the command, so a word that is not taken for one of it shows.
		name := usage.FindStringSubmatch(string(out))
		if err != nil || name == nil || !strings.HasPrefix(command+" ", name[1]) {
			t.Errorf("waggle %s: %v\n%.300s", command, err, out)
		}
	}
}
