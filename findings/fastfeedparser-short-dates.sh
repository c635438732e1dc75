#!/bin/sh
# fastfeedparser 0.6.5 (Python): what a short date leaves out is taken from the day on which the feed is read.
#
# RSS 1.0 and Dublin Core write dates by W3CDTF, which may be as short as "2024" or "2024-02". The parser of the library reads
# them with dateutil, which fills what is missing from today. So the same unchanged feed has other dates each day, which may be
# years ago or in the future, and a reader that looks for changed entries finds them changed. feedparser takes the first day.
#
# Seen on 2026-11-29:
#   2024         fastfeedparser 2024-11-29T00:00:00+00:00   feedparser 2024-01-01
#   2024-02      fastfeedparser 2024-02-29T00:00:00+00:00   feedparser 2024-02-01
#   2024-02-03   both 2024-02-03
#
# Needs python3 with venv, and PyPI. Fails when the behavior changes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check fastfeedparser==0.6.5 feedparser==6.0.14 python-dateutil==2.9.0.post0
cat > try.py <<'PY'
import calendar
import sys
from datetime import datetime

import fastfeedparser
import feedparser

FEED = """<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/">
<channel rdf:about="http://a.example/"><title>t</title><link>http://a.example/</link><description>d</description>
<items><rdf:Seq><rdf:li rdf:resource="http://a.example/1"/></rdf:Seq></items></channel>
<item rdf:about="http://a.example/1"><title>x</title><link>http://a.example/1</link><dc:date>%s</dc:date></item>
</rdf:RDF>"""


def read(date):
    fast = fastfeedparser.parse(FEED % date).entries[0].get("published")
    other = feedparser.parse(FEED % date).entries[0].get("updated_parsed")
    other = other and "%04d-%02d-%02d" % tuple(other[:3])
    print("%-12s fastfeedparser %s   feedparser %s" % (date, fast, other))
    return fast and fast[:10], other


today = datetime.now()
day = min(today.day, calendar.monthrange(2024, 2)[1])
wanted = {
    "2024": (today.strftime("2024-%m-%d"), "2024-01-01"),
    "2024-02": ("2024-02-%02d" % day, "2024-02-01"),
    "2024-02-03": ("2024-02-03", "2024-02-03"),
}
changed = [date for date, want in wanted.items() if read(date) != want]
sys.exit("the behavior has changed: %s" % changed if changed else 0)
PY
venv/bin/python try.py
