// Package sourcefile reads and writes lists of sources: OPML, CSV, JSON lines,
// sitemaps and plain lists of URLs. Readers go through a file of any length in
// little memory, and give what is wrong with one entry in its place, so that the
// others can be taken. What a writer gives, the reader of the format reads back;
// what the format cannot hold, the writer names. Files of other things, as rules, are
// JSON objects that are read and written alike ([Objects]).
package sourcefile
