//go:build e2e

package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/warc"
)

// compare holds what the collectors asked for in the first pass against what wget asked for.
func (w *docSites) compare(t *testing.T, byWget, byWaggle map[string][]access) {
	t.Helper()
	pages, repeated := 0, 0
	for target, list := range byWaggle {
		if _, robots := explained(pathOf(target)); robots {
			continue
		}
		if n := w.repeated(t, target, list); n > 0 {
			repeated++
		}
		last := list[len(list)-1]
		if last.status == 200 {
			pages++
		}
		if wgets := byWget[target]; len(wgets) > 0 && wgets[0].status != last.status {
			t.Errorf("%s answered %d to wget and %d to the collectors", target, wgets[0].status, last.status)
		}
	}
	if repeated > sitesSlots {
		t.Errorf("%d pages were asked for again; the collector that was killed had no more than %d", repeated, sitesSlots)
	}
	unexplained := 0
	for name, only := range map[string][]string{"the collectors": missing(byWget, byWaggle), "wget": missing(byWaggle, byWget)} {
		for _, target := range only {
			why, is := explained(pathOf(target))
			if !is {
				unexplained++
				t.Errorf("only %s asked for %s, and no rule explains it", name, target)
				continue
			}
			t.Logf("only %s asked for %s: %s", name, target, why)
		}
	}
	if pages < sitesPages {
		t.Errorf("the collectors found %d pages; the sites have more than %d", pages, sitesPages)
	}
	t.Logf("asked for: %d URLs by the collectors, %d by wget; %d with content; differences without explanation: %d;"+
		" %d asked for again, which the killed collector had", len(byWaggle), len(byWget), pages, unexplained, repeated)
}

// repeated is how often a page was asked for again. That may only be where the collector that was killed had it.
func (w *docSites) repeated(t *testing.T, target string, list []access) int {
	t.Helper()
	for _, a := range list[:len(list)-1] {
		if a.agent != w.doomed {
			t.Errorf("%s was asked for %d times, by %s too, which lived", target, len(list), a.agent)
		}
	}
	return len(list) - 1
}

// missing lists the URLs of b that a has not.
func missing(a, b map[string][]access) []string {
	var found []string
	for _, target := range slices.Sorted(maps.Keys(b)) {
		if _, is := a[target]; !is {
			found = append(found, target)
		}
	}
	return found
}

// checkUnchanged wants each page asked for once more, and nothing sent whole.
func (w *docSites) checkUnchanged(t *testing.T, first, second map[string][]access) {
	t.Helper()
	byStatus := map[int]int{}
	for target, list := range second {
		if _, robots := explained(pathOf(target)); robots {
			continue
		}
		if len(list) != 1 {
			t.Errorf("%s was asked for %d times in the second pass", target, len(list))
		}
		before := first[target]
		status := list[0].status
		byStatus[status]++
		// What is not there has nothing to compare: it costs what it did.
		if status != 304 && (status == 200 || len(before) == 0 || before[len(before)-1].status != status) {
			t.Errorf("%s was answered %d in the second pass", target, status)
		}
	}
	for _, target := range missing(second, first) {
		if _, robots := explained(pathOf(target)); !robots {
			t.Errorf("%s was not asked for in the second pass", target)
		}
	}
	t.Logf("answers of the second pass by status, without robots.txt: %v", byStatus)
}

// checkEdited wants whole what was edited, and nothing else.
func (w *docSites) checkEdited(t *testing.T, first, third map[string][]access, e edits) {
	t.Helper()
	want := slices.Sorted(slices.Values(append([]string{e.touched, e.added}, e.changed...)))
	var whole []string
	for target, list := range third {
		if _, robots := explained(pathOf(target)); robots {
			continue
		}
		if len(list) != 1 {
			t.Errorf("%s was asked for %d times in the third pass", target, len(list))
		}
		if list[0].status == 200 {
			whole = append(whole, target)
		}
	}
	slices.Sort(whole)
	if !slices.Equal(whole, want) {
		t.Errorf("fetched whole in the third pass: %v\nedited: %v", whole, want)
	}
	entries, err := warc.Winners(w.archive)
	if err != nil {
		t.Fatal(err)
	}
	var changed []string
	for _, entry := range entries {
		if entry.FetchTime.After(w.began) && entry.Changed {
			changed = append(changed, entry.URL)
		}
	}
	slices.Sort(changed)
	want = slices.Sorted(slices.Values(append([]string{e.added}, e.changed...)))
	if !slices.Equal(changed, want) {
		t.Errorf("reported as changed in the third pass: %v\nchanged: %v", changed, want)
	}
	t.Logf("of %d URLs %d were fetched whole in the third pass: %d changed, 1 new, 1 with another time only", len(third), len(whole), len(e.changed))
}

// checkArchive has warcio check and read the files, and compares what it reads with what was served in each pass.
func (w *docSites) checkArchive(t *testing.T, python string, e edits) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(w.archive, "*.warc.gz"))
	if err != nil || len(files) < 4 {
		t.Fatalf("files %v, %v", files, err)
	}
	if open, err := filepath.Glob(filepath.Join(w.archive, "*.open")); err != nil || len(open) != 0 {
		t.Errorf("left open: %v, %v", open, err)
	}
	if out, err := exec.CommandContext(t.Context(), python, append([]string{"-m", "warcio.cli", "check"}, files...)...).CombinedOutput(); err != nil {
		t.Errorf("warcio check: %v\n%s", err, out)
	}
	records := warcRecords(t, python, files)
	entries, err := warc.Winners(w.archive)
	if err != nil {
		t.Fatal(err)
	}
	read := make([]map[string]bool, len(w.warcs))
	for i := range read {
		read[i] = map[string]bool{}
	}
	for _, entry := range entries {
		pass := int(entry.Cycle)
		if entry.URL == e.added {
			pass = len(w.warcs) - 1
		}
		record := records[entry.RecordID]
		if record.Type == "revisit" {
			record = records[record.RefersTo]
		}
		if want := w.warcs[pass][entry.FinalURL]; record.SHA256 != want {
			t.Errorf("pass %d: %s in the archive has the digest %s; served was %s", pass+1, entry.FinalURL, record.SHA256, want)
		}
		read[pass][entry.FinalURL] = true
	}
	for pass, served := range w.warcs {
		for target := range served {
			if !read[pass][target] {
				t.Errorf("pass %d: %s is not in the archive", pass+1, target)
			}
		}
	}
	t.Logf("%d WARC files with %d records pass warcio's check; %d pages read from them are those that were served", len(files), len(records), len(entries))
}

func sha256Hex(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
