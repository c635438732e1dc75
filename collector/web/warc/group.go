package warc

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/collector/web"
)

// group is the records of one Put, compressed, and the entry of the answer among them. Offsets are relative to the group
// until it has a place in a file.
type group struct {
	data  bytes.Buffer
	entry Entry
}

// newGroup writes the records of a page. known is where the sink has the payload of a body equal to the page's, nil when
// it has not.
func newGroup(zip *gzip.Writer, page web.Page, exchanges []web.Exchange, known []location) (*group, error) {
	page.ContentType = strings.TrimSpace(oneLine(page.ContentType)) // as the metadata record can have it
	g := &group{entry: Entry{Page: page}}
	last := len(exchanges) - 1
	for i := range exchanges {
		x := &exchanges[i]
		answer := responseRecord(x)
		if i == last {
			g.choose(answer, x, known)
		}
		begin := int64(g.data.Len())
		if err := answer.writeTo(&g.data, zip); err != nil {
			return nil, err
		}
		if i == last {
			g.entry.Type, g.entry.RecordID = answer.kind, answer.id
			g.entry.Date = answer.date.UTC().Format(timeLayout)
			g.entry.PayloadDigest = answer.payloadDigest
			g.entry.Offset, g.entry.Length = begin, int64(g.data.Len())-begin
		}
		if err := requestRecord(x, answer).writeTo(&g.data, zip); err != nil {
			return nil, err
		}
	}
	meta := &record{
		kind: typeMetadata, id: newRecordID(), date: exchanges[last].Time, contentType: contentFields,
		fields: []field{{"WARC-Target-URI", exchanges[last].URL}, {"WARC-Concurrent-To", g.entry.RecordID}},
		block:  [][]byte{pageFields(&page)},
	}
	return g, meta.writeTo(&g.data, zip)
}

// choose makes a revisit of the answer if its payload need not be stored again.
func (g *group) choose(answer *record, x *web.Exchange, known []location) {
	if g.entry.Status == 304 {
		answer.kind, answer.payloadDigest = typeRevisit, "" // the 304 brought no payload
		answer.fields = append(answer.fields, field{"WARC-Profile", profileNotModified})
		if len(known) > 0 {
			answer.refer(&known[0])
			answer.payloadDigest = known[0].PayloadDigest
		}
		return
	}
	for i := range known {
		if known[i].PayloadDigest == answer.payloadDigest && len(x.Body) > 0 && x.Truncated == "" {
			answer.kind, answer.block = typeRevisit, answer.block[:1]
			answer.fields = append(answer.fields, field{"WARC-Profile", profileIdentical})
			answer.refer(&known[i])
			return
		}
	}
	g.entry.whole = isWhole(&g.entry.Page, x.Truncated)
}

// isWhole reports whether the payload of a page's response is the page's body.
func isWhole(page *web.Page, truncated string) bool {
	return truncated == "" && page.Status >= 200 && page.Status < 300
}

// responseRecord is the answer of an exchange, whole.
func responseRecord(x *web.Exchange) *record {
	return &record{
		kind: typeResponse, id: newRecordID(), date: x.Time, contentType: contentResponse,
		fields: append(exchangeFields(x), field{"WARC-Truncated", x.Truncated}), payloadDigest: digestOf(x.Body),
		block: [][]byte{withoutChunks(x.Response, len(x.Body)), x.Body},
	}
}

func requestRecord(x *web.Exchange, answer *record) *record {
	return &record{
		kind: typeRequest, id: newRecordID(), date: x.Time, contentType: contentRequest,
		fields: append(exchangeFields(x), field{"WARC-Concurrent-To", answer.id}),
		block:  [][]byte{x.Request},
	}
}

// exchangeFields are those of both sides of an exchange.
func exchangeFields(x *web.Exchange) []field {
	address := x.RemoteAddress
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	protocol := strings.ToLower(x.Protocol)
	if protocol == "http/2.0" {
		protocol = "h2"
	}
	return []field{{"WARC-Target-URI", x.URL}, {"WARC-IP-Address", address}, {"WARC-Protocol", protocol}}
}

// withoutChunks is the head for a body without its chunks, which other readers would look for.
func withoutChunks(head []byte, length int) []byte {
	lines := bytes.SplitAfter(head, []byte("\n"))
	chunked := false
	for i, line := range lines[1:] {
		switch name, _, _ := bytes.Cut(line, []byte(":")); strings.ToLower(string(name)) {
		case "transfer-encoding":
			chunked = true
			lines[i+1] = append([]byte("X-Crawl-"), line...)
		case "content-length":
			lines[i+1] = append([]byte("X-Crawl-"), line...)
		}
	}
	if !chunked {
		return head
	}
	lines[0] = fmt.Appendf(bytes.Clone(lines[0]), "Content-Length: %d\r\n", length)
	return bytes.Join(lines, nil)
}

// refer names the record that has the payload.
func (r *record) refer(to *location) {
	r.fields = append(r.fields,
		field{"WARC-Refers-To", to.RecordID},
		field{"WARC-Refers-To-Target-URI", to.URI},
		field{"WARC-Refers-To-Date", to.Date})
}

// infoRecord is what a file begins with.
func infoRecord(cfg *Config, name string, date time.Time) *record {
	var block bytes.Buffer
	writeFields(&block, []field{
		{"software", cfg.Software},
		{"operator", cfg.Operator},
		{"format", "WARC File Format 1.1"},
		{"conformsTo", "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"},
		{"waggle-collector-id", cfg.CollectorID},
	})
	return &record{
		kind: typeInfo, id: newRecordID(), date: date, contentType: contentFields,
		fields: []field{{"WARC-Filename", name}},
		block:  [][]byte{block.Bytes()},
	}
}
