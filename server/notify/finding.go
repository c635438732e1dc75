package notify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// Finding is the data of a message: one finding, or many of one kind.
type Finding struct {
	// ID is the same in the message of the begin and in that of the end.
	ID   string              `json:"id"`
	Kind operate.FindingKind `json:"kind"`
	// Count is how many things it is about, Names the ids or names of the first of them, at most 10; none if it is about the
	// dispatcher, the store or everything.
	Count int      `json:"count"`
	Names []string `json:"names,omitempty"`
	// Since is when it began, as far as that is known.
	Since time.Time `json:"since,omitzero"`
	// Text is for people, Next the command that shows more.
	Text string `json:"text"`
	Next string `json:"next"`
	// Began is when the dispatcher saw it first, Ended when it was gone.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Dispatcher is the one that has seen the begin.
	Dispatcher string `json:"dispatcher"`
}

// Limits of what a message has of a finding, so that its record is within [bounds.MaxNoticeBytes].
const (
	maxName = 300 // bytes
	maxText = 1000
	// fewThings of one kind have a notice each; if there are more, they have one together, until at most half as many are left.
	fewThings = 10
)

// found are the findings of a look, by the names of notices.
type found struct {
	by map[string]Finding
	// many are the kinds with more things than their findings name.
	many map[operate.FindingKind]bool
}

// sort sorts findings by the notices that they are for. open reports whether the one for many things of a kind stands.
func sort(findings []operate.Finding, open func(kind operate.FindingKind) bool) found {
	out := found{by: make(map[string]Finding), many: make(map[operate.FindingKind]bool)}
	kinds := make(map[operate.FindingKind][]operate.Finding)
	counts := make(map[operate.FindingKind]int)
	for i := range findings {
		f := &findings[i]
		kinds[f.Kind] = append(kinds[f.Kind], *f)
		counts[f.Kind] += f.Count
	}
	for kind, all := range kinds {
		count := counts[kind]
		if count > fewThings || open(kind) && count > fewThings/2 {
			out.many[kind] = true
			out.by[string(kind)] = together(all, count)
			continue
		}
		for i := range all {
			apart(&all[i], out.by)
		}
	}
	return out
}

// together is the finding for many things of a kind.
func together(all []operate.Finding, count int) Finding {
	var names []string
	for i := range all {
		for _, name := range all[i].Names {
			if len(names) < fewThings {
				names = append(names, cut(name, maxName))
			}
		}
	}
	first := &all[0]
	text := fmt.Sprintf("%s: %d of them", first.Kind, count)
	if len(names) > 0 {
		text += ", such as " + names[0]
	}
	if why := reason(first); why != "" {
		text += ": " + why
	}
	return Finding{Kind: first.Kind, Count: count, Names: names, Since: first.Since, Text: cut(text, maxText), Next: cut(first.Next, maxText)}
}

// apart adds a finding for each thing of one.
func apart(f *operate.Finding, by map[string]Finding) {
	if len(f.Names) == 0 {
		text := cut(string(f.Kind)+": "+cmp.Or(reason(f), fmt.Sprint(f.Count)), maxText)
		by[noticeName(f.Kind, withoutNumbers(f.Message))] = Finding{Kind: f.Kind, Count: f.Count, Since: f.Since, Text: text, Next: cut(f.Next, maxText)}
		return
	}
	for i, name := range f.Names {
		one := Finding{Kind: f.Kind, Count: 1, Names: []string{cut(name, maxName)}, Text: string(f.Kind) + ": " + name, Next: f.Next}
		if i == 0 { // the rest is known of the worst only
			one.Since = f.Since
			if why := reason(f); why != "" {
				one.Text += ": " + why
			}
		} else if strings.Count(f.Next, f.Names[0]) == 1 && !strings.Contains(f.Next, name) {
			one.Next = strings.Replace(f.Next, f.Names[0], name, 1)
		}
		one.Text, one.Next = cut(one.Text, maxText), cut(one.Next, maxText)
		by[noticeName(f.Kind, name)] = one
	}
}

// reason is why, in words for people, as far as that takes few.
func reason(f *operate.Finding) string {
	if f.Message != "" {
		return f.Message + wire.ReasonsText(f.Reasons)
	}
	var last *dispatch.Failure
	switch worst := f.Worst.(type) {
	case *operate.SourceView:
		last = worst.Status.LastError
	case *operate.CollectorView:
		if worst.Outcomes != nil { // of one that has reported nothing lately they are not known
			last = worst.Outcomes.LastError
		}
	}
	switch {
	case last == nil:
		return ""
	case last.HTTPStatus != 0 && last.Message == "":
		return fmt.Sprintf("HTTP status %d", last.HTTPStatus)
	default:
		return last.Message
	}
}

// noticeName names the notice of a thing.
func noticeName(kind operate.FindingKind, thing string) string {
	return cut(strings.TrimSpace(string(kind)+" "+thing), bounds.MaxNoticeName)
}

// withoutNumbers is what a text says, whatever the figures in it.
func withoutNumbers(text string) string {
	var out []string
	for _, word := range strings.Fields(text) {
		if strings.ContainsFunc(word, unicode.IsDigit) {
			word = "#"
		}
		if word != "#" || len(out) == 0 || out[len(out)-1] != "#" {
			out = append(out, word)
		}
	}
	return strings.Join(out, " ")
}

// cut shows by its end that a text was longer.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// notice is what is kept of a finding that was posted, or is to be.
type notice struct {
	Finding
	Posted bool `json:"posted,omitempty"` // its begin was taken
	Silent bool `json:"silent,omitempty"` // its begin was given up, so its end is not posted
}

// record is how the store has a notice.
func (n *notice) record() []byte {
	record, err := json.Marshal(n)
	if err == nil && len(record) > bounds.MaxNoticeBytes { // of texts full of what JSON has to escape
		short := *n
		short.Names, short.Text, short.Next = nil, string(n.Kind), "waggle status"
		record, err = json.Marshal(&short)
	}
	if err != nil {
		panic(err) // it has texts, numbers and times only
	}
	return record
}
