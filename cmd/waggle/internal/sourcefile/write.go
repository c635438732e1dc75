package sourcefile

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Writer writes sources to a file.
type Writer interface {
	// Write adds a source and names the fields of its spec that the format cannot hold, as SourceSpec spells them, or
	// [Everything].
	Write(spec *pb.SourceSpec) (lost []string, err error)
	// Close ends the file. It does not close what lies below.
	Close() error
}

// Everything stands for all fields of a source of which the format can hold nothing.
const Everything = "*"

// WriteFormats are the names of the formats that can be written.
func WriteFormats() []Format { return []Format{CSV, JSONL, OPML, URLs} }

// Create begins a file of a format.
func Create(out io.Writer, format Format) (Writer, error) {
	switch format {
	case CSV:
		w := &csvWriter{rows: csv.NewWriter(out)}
		return w, w.rows.Write(columnNames())
	case JSONL:
		return &jsonWriter{out: out}, nil
	case OPML:
		return newOPMLWriter(out)
	case URLs:
		return &seedWriter{out: out, line: func(_ *pb.SourceSpec, seed *pb.Seed) (string, *pb.SourceSpec) {
			return seed.GetUrl() + "\n", urlSpec(seed.GetUrl(), "")
		}}, nil
	case Sitemap:
	}
	return nil, fmt.Errorf("format %q cannot be written; say csv, jsonl, opml, urls", format)
}

// jsonWriter writes a SourceSpec a line.
type jsonWriter struct{ out io.Writer }

// Write implements [Writer].
func (w *jsonWriter) Write(spec *pb.SourceSpec) ([]string, error) {
	if err := textfile.WriteObject(w.out, Minimal(spec)); err != nil {
		return nil, fmt.Errorf("source %s: %w", spec.GetId(), err)
	}
	return nil, nil
}

// Close implements [Writer].
func (*jsonWriter) Close() error { return nil }

// csvWriter writes all columns.
type csvWriter struct{ rows *csv.Writer }

// Write implements [Writer].
func (w *csvWriter) Write(spec *pb.SourceSpec) ([]string, error) {
	minimal, texts, cells := Minimal(spec), map[string]string{}, []string{}
	for _, c := range Columns() {
		texts[c.Name] = c.get(minimal)
		cells = append(cells, texts[c.Name])
	}
	held, _ := fromRow(texts) // what is wrong is not in it, and so lost
	return lost(spec, held), w.rows.Write(cells)
}

// Close implements [Writer].
func (w *csvWriter) Close() error {
	w.rows.Flush()
	return w.rows.Error()
}

// seedWriter writes a line for each seed of a source.
type seedWriter struct {
	out io.Writer
	// line is the line of a seed, and what it holds of its source beside the id.
	line func(*pb.SourceSpec, *pb.Seed) (string, *pb.SourceSpec)
	end  string
}

// Write implements [Writer].
func (w *seedWriter) Write(spec *pb.SourceSpec) ([]string, error) {
	var first *pb.SourceSpec
	for _, seed := range spec.GetSeeds() {
		if seed.GetUrl() == "" {
			continue
		}
		line, held := w.line(spec, seed)
		if _, err := io.WriteString(w.out, line); err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
		if first == nil {
			first = held
			first.Id = canonical.SourceID("", seed.GetUrl())
		}
	}
	if first == nil {
		return []string{Everything}, nil
	}
	return lost(spec, first), nil
}

// Close implements [Writer].
func (w *seedWriter) Close() error {
	_, err := io.WriteString(w.out, w.end)
	return err
}

// lost are the fields of a spec that are other in what a file holds of it.
func lost(spec, held *pb.SourceSpec) (differ []string) {
	a, b := Minimal(spec).ProtoReflect(), Minimal(held).ProtoReflect()
	fields := a.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if has := a.Has(field); has != b.Has(field) || has && !a.Get(field).Equal(b.Get(field)) {
			differ = append(differ, string(field.Name()))
		}
	}
	slices.Sort(differ)
	return differ
}

// Minimal is a spec without what has its default, but for first_crawl: what reads it back may have another default for
// that.
func Minimal(spec *pb.SourceSpec) *pb.SourceSpec {
	s := proto.CloneOf(spec)
	defaults := &pb.SourceSpec{
		Pool: "default", Priority: proto.Int32(5), LeaseDuration: durationpb.New(30 * time.Second),
		MaxHold: durationpb.New(30 * time.Minute), Remember: durationpb.New(30 * 24 * time.Hour),
		Retry: &pb.RetryPolicy{
			MaxAttempts: proto.Int32(4), MaxExpirations: proto.Int32(5), MaxThrottled: proto.Int32(20),
			MinBackoff: durationpb.New(10 * time.Second), MaxBackoff: durationpb.New(time.Hour),
		},
	}
	if s.GetRetry() != nil {
		clearSame(s.GetRetry().ProtoReflect(), defaults.GetRetry().ProtoReflect())
		defaults.Retry = &pb.RetryPolicy{}
	}
	clearSame(s.ProtoReflect(), defaults.ProtoReflect())
	return s
}

// clearSame clears the fields that are the same in another message.
func clearSame(m, other protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if other.Has(f) && value.Equal(other.Get(f)) {
			m.Clear(f)
		}
		return true
	})
}
