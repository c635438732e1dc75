package sourcefile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// column is a part of a spec as text. get gives "" for what is not set or the
// default, and may add an empty message to the spec; set is not called with "".
type column struct {
	name, what string
	get        func(*pb.SourceSpec) string
	set        func(*pb.SourceSpec, string) error
}

// Columns are the names of the columns that a CSV may have, with what is in
// them.
func Columns() [][2]string {
	var all [][2]string
	for _, c := range columns() {
		all = append(all, [2]string{c.name, c.what})
	}
	return all
}

// aliases are other names of columns, as other programs write them.
func aliases() map[string]string {
	return map[string]string{
		"seeds": "url", "seed": "url", "xmlurl": "url", "feed": "url", "title": "name", "display_name": "name",
		"interval": "every", "schedule": "cron", "timezone": "time_zone", "depth": "max_depth",
	}
}

// columnNamed finds a column by its name or another name of it, in any case,
// with spaces or hyphens for underscores.
func columnNamed(name string) (column, bool) {
	name = strings.NewReplacer(" ", "_", "-", "_").Replace(strings.ToLower(strings.TrimSpace(name)))
	if full, is := aliases()[name]; is {
		name = full
	}
	for _, c := range columns() {
		if c.name == name {
			return c, true
		}
	}
	return column{}, false
}

// isHeader reports whether a line names at least one column, and so may be the
// header of a CSV.
func isHeader(line string) bool {
	for _, field := range strings.FieldsFunc(line, func(r rune) bool { return r == ',' || r == ';' || r == '\t' }) {
		if _, is := columnNamed(strings.Trim(strings.TrimSpace(field), `"`)); is {
			return true
		}
	}
	return false
}

func columns() []column {
	return slices.Concat(identityColumns(), scheduleColumns(), followColumns(), limitColumns())
}

func identityColumns() []column {
	return []column{
		text("id", "the source's id", func(s *pb.SourceSpec) *string { return &s.Id }),
		{"url", "where crawling begins; several with spaces between them", seedURLs, setSeedURLs},
		seeds("kind", "what its seeds are to the collector: feed, sitemap, list", func(s *pb.Seed) *string { return &s.Kind }),
		seeds("queue", "the queue of its seeds, in place of their host's", func(s *pb.Seed) *string { return &s.Queue }),
		text("name", "a name for people", func(s *pb.SourceSpec) *string { return &s.DisplayName }),
		pairs("labels", "key=value; several with semicolons between them, %3B for one in a value", func(s *pb.SourceSpec) *map[string]string { return &s.Labels }),
		text("scope", "the scope whose keys it shares", func(s *pb.SourceSpec) *string { return &s.Scope }),
		{"canonical_rules", "the number of the rules by which URLs become keys", func(s *pb.SourceSpec) string {
			if n := s.GetCanonicalRules(); n != 0 {
				return strconv.Itoa(int(n))
			}
			return ""
		}, func(s *pb.SourceSpec, value string) error {
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return errors.New("is no whole number")
			}
			s.CanonicalRules = int32(n)
			return nil
		}},
		text("pool", "which collectors may take its tasks", func(s *pb.SourceSpec) *string { return &s.Pool }),
		number("priority", "0 to 9, higher first", func(s *pb.SourceSpec) **int32 { return &s.Priority }),
		pairs("metadata", "key=value, handed out with every task; several with semicolons between them",
			func(s *pb.SourceSpec) *map[string]string { return &s.Metadata }),
	}
}

func limitColumns() []column {
	return []column{
		span("lease_duration", "how long a lease runs between renewals", func(s *pb.SourceSpec) **durationpb.Duration { return &s.LeaseDuration }),
		span("max_hold", "how long a lease can be held by renewals", func(s *pb.SourceSpec) **durationpb.Duration { return &s.MaxHold }),
		number("max_attempts", "failures that a task may have", func(s *pb.SourceSpec) **int32 { return &retry(s).MaxAttempts }),
		number("max_expirations", "leases of a task that may expire", func(s *pb.SourceSpec) **int32 { return &retry(s).MaxExpirations }),
		number("max_throttled", "times that a task's host may fail", func(s *pb.SourceSpec) **int32 { return &retry(s).MaxThrottled }),
		span("min_backoff", "wait before the second attempt", func(s *pb.SourceSpec) **durationpb.Duration { return &retry(s).MinBackoff }),
		span("max_backoff", "longest wait between attempts", func(s *pb.SourceSpec) **durationpb.Duration { return &retry(s).MaxBackoff }),
		span("remember", "how long a settled task is remembered", func(s *pb.SourceSpec) **durationpb.Duration { return &s.Remember }),
		span("revisit_after", "a task done longer ago is due again when met", func(s *pb.SourceSpec) **durationpb.Duration { return &s.RevisitAfter }),
		number("max_outstanding", "tasks that may wait, per shard", func(s *pb.SourceSpec) **int64 { return &s.MaxOutstanding }),
	}
}

// retry is the spec's policy, made when it is not there.
func retry(s *pb.SourceSpec) *pb.RetryPolicy {
	if s.Retry == nil {
		s.Retry = &pb.RetryPolicy{}
	}
	return s.Retry
}

func text(name, what string, field func(*pb.SourceSpec) *string) column {
	return column{name, what, func(s *pb.SourceSpec) string { return *field(s) }, func(s *pb.SourceSpec, value string) error {
		*field(s) = value
		return nil
	}}
}

func number[N int32 | int64](name, what string, field func(*pb.SourceSpec) **N) column {
	return column{name, what, func(s *pb.SourceSpec) string {
		if n := *field(s); n != nil {
			return strconv.FormatInt(int64(*n), 10)
		}
		return ""
	}, func(s *pb.SourceSpec, value string) error {
		bits := 64
		if _, is := any(N(0)).(int32); is {
			bits = 32
		}
		n, err := strconv.ParseInt(value, 10, bits)
		if err != nil {
			return errors.New("is no whole number")
		}
		is := N(n)
		*field(s) = &is
		return nil
	}}
}

func span(name, what string, field func(*pb.SourceSpec) **durationpb.Duration) column {
	return column{name, what, func(s *pb.SourceSpec) string {
		if d := *field(s); d != nil {
			return duration.Format(d.AsDuration())
		}
		return ""
	}, func(s *pb.SourceSpec, value string) error {
		d, err := duration.Parse(value)
		*field(s) = durationpb.New(d)
		return err
	}}
}

func pairs(name, what string, field func(*pb.SourceSpec) *map[string]string) column {
	// A value may hold what stands between pairs.
	escape, plain := strings.NewReplacer("%", "%25", ";", "%3B"), strings.NewReplacer("%25", "%", "%3B", ";")
	return column{name, what, func(s *pb.SourceSpec) string {
		m := *field(s)
		var list []string
		for _, key := range slices.Sorted(maps.Keys(m)) {
			list = append(list, key+"="+escape.Replace(m[key]))
		}
		return strings.Join(list, ";")
	}, func(s *pb.SourceSpec, value string) error {
		into := map[string]string{}
		for pair := range strings.SplitSeq(value, ";") {
			key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
			if !ok || key == "" {
				return fmt.Errorf("%q is not key=value", pair)
			}
			into[key] = plain.Replace(value)
		}
		*field(s) = into
		return nil
	}}
}

func seedURLs(s *pb.SourceSpec) string {
	var urls []string
	for _, seed := range s.GetSeeds() {
		urls = append(urls, seed.GetUrl())
	}
	return strings.TrimSpace(strings.Join(urls, " "))
}

func setSeedURLs(s *pb.SourceSpec, value string) error {
	for _, url := range strings.Fields(value) {
		s.Seeds = append(s.Seeds, &pb.Seed{Url: url})
	}
	return nil
}

// seeds is a column of what all seeds of a source have in common. It is set after
// the seeds are: columns are set in their own order, not in that of the file.
func seeds(name, what string, field func(*pb.Seed) *string) column {
	return column{name, what, func(s *pb.SourceSpec) string {
		if len(s.GetSeeds()) == 0 {
			return ""
		}
		return *field(s.GetSeeds()[0])
	}, func(s *pb.SourceSpec, value string) error {
		for _, seed := range s.GetSeeds() {
			*field(seed) = value
		}
		return nil
	}}
}

// row is a spec as the text of each column.
func row(spec *pb.SourceSpec) []string {
	s := Minimal(spec)
	all := columns()
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = c.get(s)
	}
	return texts
}

// fromRow is the spec that texts, by the name of their column, make; with what
// is wrong first, and without it.
func fromRow(texts map[string]string) (*pb.SourceSpec, error) {
	s := &pb.SourceSpec{}
	var wrong error
	for _, c := range columns() {
		value := strings.TrimSpace(texts[c.name])
		if value == "" {
			continue
		}
		if err := c.set(s, value); err != nil && wrong == nil {
			wrong = fmt.Errorf("%s %.80q: %w", c.name, value, err)
		}
	}
	return s, wrong
}

// lost are the fields of a spec that are other in what is read back.
func lost(spec, back *pb.SourceSpec) []string {
	differ := map[string]bool{}
	a, b := Minimal(spec).ProtoReflect(), Minimal(back).ProtoReflect()
	fields := a.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if has := a.Has(field); has != b.Has(field) || has && !a.Get(field).Equal(b.Get(field)) {
			differ[string(field.Name())] = true
		}
	}
	return sortedKeys(differ)
}

// Minimal is a spec without what would be the same if it were left out, but for
// first_crawl: what reads it back may have a default of its own for that.
func Minimal(spec *pb.SourceSpec) *pb.SourceSpec {
	s := proto.CloneOf(spec)
	if s.GetPool() == "default" {
		s.Pool = ""
	}
	if s.GetCanonicalRules() == 1 {
		s.CanonicalRules = 0
	}
	unset(&s.Priority, 5)
	hold := int64(30 * 60)
	if lease := s.GetLeaseDuration().GetSeconds(); lease > hold {
		hold = lease
	}
	unsetSeconds(&s.MaxHold, hold)
	unsetSeconds(&s.LeaseDuration, 30)
	unsetSeconds(&s.Remember, 30*24*60*60)
	if r := s.Retry; r != nil {
		unset(&r.MaxAttempts, 4)
		unset(&r.MaxExpirations, 5)
		unset(&r.MaxThrottled, 20)
		most := max(int64(60*60), r.GetMinBackoff().GetSeconds())
		unsetSeconds(&r.MinBackoff, 10)
		unsetSeconds(&r.MaxBackoff, most)
		if proto.Size(r) == 0 {
			s.Retry = nil
		}
	}
	return s
}

func unset[N comparable](field **N, is N) {
	if *field != nil && **field == is {
		*field = nil
	}
}

func unsetSeconds(field **durationpb.Duration, seconds int64) {
	if d := *field; d != nil && d.GetSeconds() == seconds && d.GetNanos() == 0 {
		*field = nil
	}
}
