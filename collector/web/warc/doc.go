// Package warc is a web.Sink that keeps pages in WARC/1.1 files (ISO 28500), as web archives use them: gzip per record,
// so that each record can be read by itself.
//
// # Records
//
// A file begins with a warcinfo record. Then comes a group of records for each Put, in one piece: a response and a
// request for each exchange (the redirects, then the answer), and at its end a metadata record. The answer is
//
//   - a revisit (profile server-not-modified) when the server answered 304;
//   - a revisit (profile identical-payload-digest) when its payload is one that the sink has, from this URL or another;
//   - a response otherwise.
//
// A revisit refers to the record that has the payload, where the sink knows it. Payloads keep their content coding (gzip or
// br: a handler with Config.Exchanges does not ask for zstd), and digests are of them as they stand in the record. Chunks
// are undone: a head that announced them says so under the name X-Crawl-Transfer-Encoding, with a Content-Length of the
// record's own. WARC-Protocol tells heads that came as frames of HTTP/2 and were written as HTTP/1.1.
//
// # One record per (task, cycle)
//
// Files are only appended to, so a task that was handed out again may leave more than one group. The metadata record,
// whose WARC-Concurrent-To names the group's answer, has the fields waggle-task-id, waggle-cycle and waggle-fence. The
// rule for readers: of the groups with the same task id and cycle, the one with the highest fence counts, and among
// equals the last; it supersedes the others. Superseded groups stay, since revisits may refer to their payloads. Beside
// each NAME.warc.gz lies NAME.index.jsonl, with a line of JSON for each group (an Entry), from which Winners resolves the
// rule without reading an archive.
//
// # Files
//
// A file that is written is called NAME.warc.gz.open and locked; when it is full, or the sink is closed, it becomes
// NAME.warc.gz, and is never changed again. It may be moved away then: only Body needs it. A process that dies leaves an
// .open file. The next sink of the same collector id cuts it behind its last whole group, writes its index anew and gives
// it its name: what Put had stored is there, and no part of a group. What is cut off goes to NAME.warc.gz.cut.
//
// Each group is given to the operating system before Put returns, so a killed process loses none; files are synced when
// they are full or closed, so a machine that loses power may lose the end of the .open file.
//
// Digests of bodies and where they lie are kept in digests/, 4,096 files of lines. They are shared by all sinks in the
// directory: one collector's page is another's revisit. Looking one up reads one such file, 80 KB with a million bodies.
package warc
