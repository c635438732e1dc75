#!/bin/sh
# listparser 0.20 (Python, by the author of feedparser): feeds that an OPML comments out are listed, and links to pages are lists.
#
# OPML 2.0: an outline with isComment="true" is commented, and so are all outlines below it. listparser returns these feeds like
# others, and nothing in its result tells them apart. OPML 2.0 also: an outline of type link whose address ends in ".opml" is
# another list; any other address is for a web browser. listparser returns both as lists, so that a program that reads the
# lists fetches pages as OPML.
#
# Seen:
#   feeds  http://a.example/kept.xml http://a.example/below.xml http://a.example/off.xml
#   lists  http://a.example/other.opml http://a.example/page.html
#   bozo   False
#
# Needs python3 with venv, and PyPI. Fails when the behavior changes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check listparser==0.20
cat > try.py <<'PY'
import sys

import listparser

OPML = """<?xml version="1.0" encoding="UTF-8"?>
<opml version="2.0"><head><title>t</title></head><body>
<outline type="rss" text="kept" xmlUrl="http://a.example/kept.xml"/>
<outline text="no longer read" isComment="true">
<outline type="rss" text="below" xmlUrl="http://a.example/below.xml"/>
</outline>
<outline type="rss" text="off" isComment="true" xmlUrl="http://a.example/off.xml"/>
<outline type="link" text="a list" url="http://a.example/other.opml"/>
<outline type="link" text="a page" url="http://a.example/page.html"/>
</body></opml>"""

result = listparser.parse(OPML)
feeds, lists = [feed.url for feed in result.feeds], [one.url for one in result.lists]
print("feeds ", *feeds)
print("lists ", *lists)
print("bozo  ", bool(result.get("bozo")))
seen = (["http://a.example/%s.xml" % name for name in ("kept", "below", "off")], ["http://a.example/other.opml", "http://a.example/page.html"])
sys.exit("the behavior has changed" if (feeds, lists) != seen or result.get("bozo") else 0)
PY
venv/bin/python try.py
