package sourcefile

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/net/html"
)

// readSitemap reads sitemaps and their indexes. Their names may have a prefix, as "sm:"; those with another are extensions.
func readSitemap(text []byte, add func(Entry) error) error {
	x, err := newXMLText(text)
	root, prefix, ended := "", "", false
	var e Entry // of the element that is open
	location, inside := "", false
	for err == nil {
		var kind html.TokenType
		if kind, err = x.token(); err != nil {
			break
		}
		begins, ends := kind == html.StartTagToken || kind == html.SelfClosingTagToken, kind == html.EndTagToken
		own, local := splitName(x.name)
		switch {
		case begins && root == "":
			if root, prefix = local, own; root != "urlset" && root != "sitemapindex" {
				return fmt.Errorf("line %d: <%s> is no sitemap", x.line, x.name)
			}
		case kind == html.TextToken && inside:
			location += string(x.tags.Text())
		case (begins || ends) && own != prefix:
			inside = false
		case begins && (local == "url" || local == "sitemap"):
			e, location = Entry{Line: x.line}, ""
		case ends && (local == "url" || local == "sitemap"):
			kind := map[string]string{"sitemap": kindSitemap}[local]
			if e.Spec = urlSpec(strings.TrimSpace(location), kind); strings.TrimSpace(location) == "" {
				e.Spec, e.Err = nil, fmt.Errorf("the <%s> has no <loc>", x.name)
			}
			e.Mended = x.takeMended()
			err = add(e)
		case begins || ends:
			inside = begins && local == "loc"
			ended = ended || ends && local == root
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case root != "" && !ended:
		return fmt.Errorf("line %d: %w: the sitemap has no end", x.line, io.ErrUnexpectedEOF)
	}
	return nil
}

// splitName is a name of XML without its prefix, and the prefix with its colon.
func splitName(name string) (prefix, local string) {
	i := strings.LastIndexByte(name, ':') + 1
	return name[:i], name[i:]
}
