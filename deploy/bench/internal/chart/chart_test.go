package chart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/chart"
)

func TestChart_Write(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "picture.svg")
	c := chart.Chart{Title: "Rates", X: "tasks a call", Y: "tasks a second"}
	c.Add("nothing", 0, 1)
	if err := c.Write(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a picture without points is written")
	}
	c.Add("floor", 1, 10)
	c.Add("floor", 1000, 1000)
	if err := c.Write(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// From one corner of the frame to the other, with ticks from 1 to 1,000.
	for _, want := range []string{`points="80.0,340.0 560.0,50.0"`, ">1<", ">1,000<", ">floor<", ">Rates<"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the picture has no %s:\n%s", want, text)
		}
	}
}
