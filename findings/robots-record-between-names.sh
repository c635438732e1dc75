#!/bin/sh
# robots-parser 3.0.1 (npm), Protego 0.7.0 (Scrapy's) and robotexclusionrulesparser 1.7.1: a line that is no rule, between two
# user-agent lines, takes the rules away from the first name.
#
# RFC 9309, section 2.2.4: "Parsing of other records MUST NOT interfere with the parsing of explicitly defined records", so 'a
# "Sitemaps" record MUST NOT terminate a group'. The group below has two names, and its rule is for both. These libraries begin a
# new group behind the other line, and allow the first crawler everything. They do not agree for which lines: Protego knows
# Sitemap, and robotexclusionrulesparser skips a word that it does not know.
#
# Seen for "User-agent: one", the line, "User-agent: two", "Disallow: /private": may "one" fetch /private/x?
#   line                            robots-parser   Protego   robotexclusionrulesparser   robotspy 0.13.0
#   none                            no              no        no                          no
#   Sitemap: http://a.example/s     yes             no        yes                         no
#   Crawl-delay: 5                  yes             yes       yes                         no
#   Noindex: /x                     yes             yes       no                          no
#
# Needs node with npm, python3 with venv, npm's registry and PyPI. Fails when the behavior changes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
echo '{"private": true}' > package.json
npm install --silent --no-fund --no-audit robots-parser@3.0.1 > npm.log 2>&1 || { cat npm.log; exit 1; }
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check protego==0.7.0 robotexclusionrulesparser==1.7.1 robotspy==0.13.0
cat > try.js <<'JS'
const parse = require("robots-parser");
const text = require("fs").readFileSync(0, "utf8");
console.log(parse("http://a.example/robots.txt", text).isAllowed("http://a.example/private/x", "one") === false ? "no" : "yes");
JS
cat > try.py <<'PY'
import subprocess
import sys

import robotexclusionrulesparser
import robots
from protego import Protego

URL = "http://a.example/private/x"
SEEN = {
    "": "no no no no",
    "Sitemap: http://a.example/s": "yes no yes no",
    "Crawl-delay: 5": "yes yes yes no",
    "Noindex: /x": "yes yes no no",
}
changed = False
for line, want in SEEN.items():
    text = "User-agent: one\n%sUser-agent: two\nDisallow: /private\n" % (line and line + "\n")
    old = robotexclusionrulesparser.RobotExclusionRulesParser()
    old.parse(text)
    allowed = [Protego.parse(text).can_fetch(URL, "one"), old.is_allowed("one", URL), robots.RobotsParser.from_string(text).can_fetch("one", URL)]
    got = " ".join([subprocess.run(["node", "try.js"], input=text, capture_output=True, text=True, check=True).stdout.strip()] +
                   ["yes" if one else "no" for one in allowed])
    print("%-30s %s" % (line or "none", got))
    changed |= got != want
sys.exit("the behavior has changed" if changed else 0)
PY
venv/bin/python try.py
