package sourcefile

import (
	"fmt"
	"strings"

	"golang.org/x/net/html"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// readSitemap reads sitemaps and their indexes.
func readSitemap(text []byte, add func(Entry) error) error {
	line, location := 0, ""
	return eachTag(text, func(x *xmlText, tag html.TokenType) error {
		entry, ends := x.name == "url" || x.name == "sitemap", tag == html.EndTagToken
		switch {
		case entry && !ends:
			line, location = x.line, ""
		case x.name == "loc" && ends:
			location = strings.TrimSpace(string(x.text))
		case entry && location == "":
			return add(Entry{Line: line, Err: fmt.Errorf("the <%s> has no <loc>", x.name)})
		case entry:
			seed := &pb.Seed{Url: location}
			if x.name == "sitemap" {
				seed.Kind = kindSitemap
			}
			return add(Entry{Line: line, Spec: &pb.SourceSpec{Seeds: []*pb.Seed{seed}}, Mended: x.takeMended()})
		}
		return nil
	}, "urlset", "sitemapindex")
}
