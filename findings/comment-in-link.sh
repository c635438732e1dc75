#!/bin/sh
# gofeed 1.4.2 (Go) and fastfeedparser 0.6.5 (Python): a comment within the link of an item becomes part of it, or ends it.
#
# A comment is no part of an element's text in XML, wherever it stands: templates leave some in, such as "<!-- cached -->". The
# link below is http://a.example/story/1 to libxml2, encoding/xml, expat and feedparser. gofeed returns the comment with the
# text, also of a guid, so that the link is another URL and the id changes with the comment. fastfeedparser takes the text in
# front of the comment, which here is another page. None of them reports an error.
#
# Seen for <link>http://a.example/story/<!-- cached -->1</link>:
#   gofeed           http://a.example/story/<!-- cached -->1     guid story-<!-- cached -->1
#   fastfeedparser   http://a.example/story/                     id story-
#   feedparser       http://a.example/story/1                    id story-1
#
# Needs go, python3 with venv, the Go proxy and PyPI. Fails when the behavior changes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat > feed.xml <<'XML'
<?xml version="1.0" encoding="UTF-8"?>
<rss version="2.0"><channel><title>t</title><link>http://a.example/</link><description>d</description>
<item><title>x</title><link>http://a.example/story/<!-- cached -->1</link><guid isPermaLink="false">story-<!-- cached -->1</guid></item>
</channel></rss>
XML
cat > go.mod <<'MOD'
module try

go 1.24
MOD
cat > try.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/mmcdole/gofeed"
)

func main() {
	file, err := os.Open("feed.xml")
	if err != nil {
		panic(err)
	}
	feed, err := gofeed.NewParser().Parse(file)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\t%s\n", feed.Items[0].Link, feed.Items[0].GUID)
}
GO
go get github.com/mmcdole/gofeed@v1.4.2 2> go.log || { cat go.log; exit 1; }
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check fastfeedparser==0.6.5 feedparser==6.0.14
cat > try.py <<'PY'
import fastfeedparser
import feedparser

for library in (fastfeedparser, feedparser):
    entry = library.parse(open("feed.xml", encoding="utf-8").read()).entries[0]
    print("%s\t%s" % (entry["link"], entry["id"]))
PY
{ go run try.go; venv/bin/python try.py; } | tee got
printf 'http://a.example/story/<!-- cached -->1\tstory-<!-- cached -->1\nhttp://a.example/story/\tstory-\nhttp://a.example/story/1\tstory-1\n' > want
cmp -s got want || { echo "the behavior has changed" >&2; exit 1; }
