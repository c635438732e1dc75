package sourcefile_test

import (
	"encoding/xml"
	"regexp"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
)

// strictOutline is an outline as a reader has it that keeps to the rules of XML.
type strictOutline struct {
	XMLURL  string          `xml:"xmlUrl,attr"`
	Comment string          `xml:"isComment,attr"`
	Inside  []strictOutline `xml:"outline"`
}

// feeds counts the feeds in outlines that are not commented out.
func feeds(outlines []strictOutline) (n int) {
	for _, o := range outlines {
		if !strings.EqualFold(strings.TrimSpace(o.Comment), "true") {
			if n += feeds(o.Inside); strings.TrimSpace(o.XMLURL) != "" {
				n++
			}
		}
	}
	return n
}

// unclear is what a reader that mends mistakes may take for one: prefixes, more instructions than the first, comments that end
// at once, and names that are written in other ways.
var unclear = regexp.MustCompile(`<[^\s>]*:|.<\?|<!-?D|<!--+>|<!\[|(?i:</?(?:opml|body))[^\s>]*<|xmlns`)

// FuzzRead_opml holds that an OPML is read or refused, with entries of lines that it has, and that a clean one loses no feed.
func FuzzRead_opml(f *testing.F) {
	f.Add(`<?xml version="1.0"?><opml version="2.0"><head><title>t</title></head><body><outline text="News"><outline text="A &amp; b" xmlUrl="https://a.example/rss?x=1&amp;y=2"/></outline></body></opml>`)
	f.Add("<opml><body><outline\n\ttext='1 > 2' xmlUrl='http://a.example/'><!-- <outline/> --></outline><outline isComment='true'><outline xmlUrl='x'/></outline></body></opml>")
	f.Add(`<opml><body><outline text="lost" xmlUrl="https://a.example/><outline text="AT&T" xmlUrl="https://b.example/"/>`)
	f.Fuzz(func(t *testing.T, text string) {
		g := read(strings.NewReader(text), "-", sourcefile.OPML)
		found := 0
		for _, e := range g.entries {
			if e.Spec != nil || e.Err != nil {
				found++
			}
			if e.Line < 1 || e.Line > strings.Count(text, "\n")+1 {
				t.Errorf("an entry of line %d: %+v", e.Line, e)
			}
		}
		var strict struct {
			XMLName  xml.Name        `xml:"opml"`
			Outlines []strictOutline `xml:"body>outline"`
		}
		if xml.Unmarshal([]byte(text), &strict) != nil || unclear.MatchString(text) || g.err != nil && strings.Contains(g.err.Error(), "deep") {
			return
		}
		if want := feeds(strict.Outlines); found < want {
			t.Errorf("%d entries, want at least %d; %v", found, want, g.err)
		}
	})
}
