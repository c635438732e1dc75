package sourceimport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// shownWarnings is how many kinds of warnings are told.
const shownWarnings = 10

// importTotal is what became of the entries of a file.
type importTotal struct {
	Created   int `json:"created"`
	Updated   int `json:"updated"`
	Unchanged int `json:"unchanged"`
	// Repeated of the unchanged were in a call that was made again: one that was not
	// answered may have created or updated them.
	Repeated   int `json:"unchanged_after_repeated_call,omitempty"`
	Duplicates int `json:"duplicates"`
	Refused    int `json:"refused"`
	// Deleted sources are those that --prune found the file not to have.
	Deleted int `json:"deleted"`
	// SampleIDs are the first of those that a dry run would delete.
	SampleIDs []string `json:"sample_ids,omitempty"`
	// Changed says of how many updated sources each field is other than before, and
	// Lost of how many it lost what it had.
	Changed fieldCounts `json:"changed_fields,omitempty"`
	Lost    fieldCounts `json:"lost_fields,omitempty"`
	// Warnings are what the dispatcher doubts, with of how many.
	Warnings fieldCounts `json:"warnings,omitempty"`
	// Twins of them crawl a page that a source before them in the file crawls.
	Twins int `json:"twins,omitempty"`
	// Unscheduled of them are crawled once, and at once.
	Unscheduled int `json:"unscheduled"`
	// Seedless of them have nothing to crawl but what is submitted, and no schedule.
	Seedless int `json:"seedless"`
}

// fieldCounts are numbers of sources by the path of a field of their spec, or by
// another text.
type fieldCounts map[string]int

func (f *fieldCounts) add(paths []string) {
	for _, path := range paths {
		if *f == nil {
			*f = fieldCounts{}
		}
		(*f)[path]++
	}
}

func (f fieldCounts) sorted() []string {
	return slices.SortedFunc(maps.Keys(f), func(a, b string) int { return cmp.Or(cmp.Compare(f[b], f[a]), cmp.Compare(a, b)) })
}

// String is a line for people: the most frequent first.
func (f fieldCounts) String() string {
	var parts []string
	for _, path := range f.sorted() {
		parts = append(parts, path+" of "+human.Count(f[path]))
	}
	return strings.Join(parts, ", ")
}

func (t *importTotal) entries() int {
	return t.Created + t.Updated + t.Unchanged + t.Duplicates + t.Refused
}

// showTotal writes the summary.
func (j *importJob) showTotal() error {
	t := &j.state.Total
	if j.client.JSON {
		return client.WriteJSON(j.client.Out, t)
	}
	verb := ""
	if j.flags.dryRun {
		verb = "would be "
	}
	fmt.Fprintf(j.client.Out, "%s: %s%s created, %s updated, %s unchanged, %s, %s refused%s\n", human.Plural(t.entries(), "source"),
		verb, human.Count(t.Created), human.Count(t.Updated), human.Count(t.Unchanged), human.Plural(t.Duplicates, "duplicate"), human.Count(t.Refused), j.deletedText())
	if len(t.SampleIDs) > 0 {
		client.WriteSample(j.client.Out, "would be deleted, as the file does not have them:", t.SampleIDs, t.Deleted)
	}
	if len(t.Changed) > 0 {
		fmt.Fprintf(j.client.Out, "updated: %s\n", t.Changed)
	}
	if len(t.Lost) > 0 {
		j.client.Note("%slost, with nothing in its place: %s; %s names the sources", verb, t.Lost, human.Plain(cmp.Or(j.flags.report, "--report FILE")))
	}
	for i, warning := range t.Warnings.sorted() {
		if i == shownWarnings {
			j.client.Note("and %s of other kinds", human.Plural(len(t.Warnings)-i, "warning"))
			break
		}
		j.client.Note("%s: %s", human.Plural(t.Warnings[warning], "source"), human.Plain(warning))
	}
	if t.Repeated > 0 {
		j.client.Note("%s of the unchanged may have been created or updated by this import: a call was repeated, as it was not answered", human.Count(t.Repeated))
	}
	if t.Twins > shownTwins {
		j.client.Note("in all, %s a page that a source before crawls too", human.PluralVerb(t.Twins, "source", "crawls", "crawl"))
	}
	if t.Unscheduled > 0 {
		j.client.Note("%s no schedule: crawled once, and not spread; --every, --cron or --adaptive gives one",
			human.PluralVerb(t.Unscheduled, "source", "has", "have"))
	}
	if t.Seedless > 0 {
		j.client.Note("%s no url: only what is submitted to such a source is crawled", human.PluralVerb(t.Seedless, "source", "has", "have"))
	}
	return nil
}
