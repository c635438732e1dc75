package collector_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waggle-crawl/waggle/collector"
)

// deploy/metrics.md has each metric of a collector with its type and labels, and no others; each is there before the first task.
func TestCollector_Metrics_documented(t *testing.T) {
	t.Parallel()
	c, err := collector.New(collector.Config{Targets: []string{"127.0.0.1:1"}, ID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Metrics())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		labels := []string{}
		for _, pair := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+pair.GetName()+"`")
		}
		got = append(got, fmt.Sprintf("%#q %s %s", family.GetName(), strings.ToLower(family.GetType().String()), strings.Join(labels, ", ")))
	}
	text, err := os.ReadFile("../deploy/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(text), "\n## Collectors\n")
	part, _, _ = strings.Cut(part, "\n## ")
	var want []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`waggle_[^|]*) \\| ([^|]*) \\| ([^|]*?) ?\\|").FindAllStringSubmatch(part, -1) {
		want = append(want, fmt.Sprintf("%s %s %s", row[1], row[2], row[3]))
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the code has\n%s\nand deploy/metrics.md\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
