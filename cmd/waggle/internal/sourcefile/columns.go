package sourcefile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Columns are the names of the columns that a CSV may have, with what is in them.
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

// columnNamed finds a column by its name or another name of it, in any case, with spaces or hyphens for underscores.
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

// isHeader reports whether a line names at least one column, and so may be the header of a CSV.
func isHeader(line string) bool {
	for _, field := range strings.FieldsFunc(line, func(r rune) bool { return r == ',' || r == ';' || r == '\t' }) {
		if _, is := columnNamed(strings.Trim(strings.TrimSpace(field), `"`)); is {
			return true
		}
	}
	return false
}

func columns() []column {
	return []column{
		text("id", "the source's id", func(s *pb.SourceSpec) *string { return &s.Id }),
		{"url", "where crawling begins; several with spaces between them", seedURLs, setSeedURLs},
		seeds("kind", "what its seeds are to the collector: feed, sitemap, list", func(s *pb.Seed) *string { return &s.Kind }),
		seeds("queue", "the queue of its seeds, in place of their host's", func(s *pb.Seed) *string { return &s.Queue }),
		text("name", "a name for people", func(s *pb.SourceSpec) *string { return &s.DisplayName }),
		pairs("labels", "key=value; several with semicolons between them, %3B for one in a value", func(s *pb.SourceSpec) *map[string]string { return &s.Labels }),
		text("scope", "the scope whose keys it shares", func(s *pb.SourceSpec) *string { return &s.Scope }),
		{"canonical_rules", "the number of the rules by which URLs become keys", canonicalRules, setCanonicalRules},
		text("pool", "which collectors may take its tasks", func(s *pb.SourceSpec) *string { return &s.Pool }),
		number("priority", "0 to 9, higher first", func(s *pb.SourceSpec) **int32 { return &s.Priority }),
		pairs("metadata", "key=value, handed out with every task; several with semicolons between them",
			func(s *pb.SourceSpec) *map[string]string { return &s.Metadata }),

		{"every", "crawl again at this interval, as 10m, 1h, 7d", every, setEvery},
		{"cron", "crawl again by five cron fields, or @daily", func(s *pb.SourceSpec) string { return s.GetSchedule().GetCron() }, setCron},
		{"adaptive", "crawl again as often as the page changes, within bounds as 10m..7d", adaptive, setAdaptive},
		span("jitter", "let each be due up to so much later, as 5m", func(s *pb.SourceSpec) **durationpb.Duration { return &schedule(s).Jitter }),
		text("time_zone", "the IANA zone of cron", func(s *pb.SourceSpec) *string { return &schedule(s).TimeZone }),
		{"revisit", "true: each cycle crawls the pages found again", revisit, setRevisit},
		{"first_crawl", "now, or spread within the first interval", firstCrawl, setFirstCrawl},

		{"follow", "follow links: seeds (to their hosts), or hosts, *.suffix or * with spaces between them", followed, setFollowed},
		number("max_depth", "follow links up to this depth; seeds have 0", func(s *pb.SourceSpec) **int32 { return &follow(s).MaxDepth }),
		list("include", "follow only URLs that match one of these regular expressions, one a line", func(s *pb.SourceSpec) *[]string { return &follow(s).Include }),
		list("exclude", "follow no URL that matches one of these regular expressions, one a line", func(s *pb.SourceSpec) *[]string { return &follow(s).Exclude }),

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

func columnNames() string {
	var all []string
	for _, c := range columns() {
		all = append(all, c.name)
	}
	return strings.Join(all, ", ")
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

// fromRow is the spec that texts make, by the name of their column. What is wrong is left out; the error is the first.
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

// readBack is the spec that a reader makes of a row.
func readBack(texts []string) *pb.SourceSpec {
	byName := make(map[string]string, len(texts))
	for i, c := range columns() {
		byName[c.name] = texts[i]
	}
	back, _ := fromRow(byName) // what is wrong is not in it, and so lost
	return back
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
	return slices.Sorted(maps.Keys(differ))
}

// Minimal is a spec without what would be the same if it were left out, but for first_crawl: what reads it back may have a
// default of its own for that.
func Minimal(spec *pb.SourceSpec) *pb.SourceSpec {
	s := proto.CloneOf(spec)
	if s.GetPool() == "default" {
		s.Pool = ""
	}
	if s.GetCanonicalRules() == 1 {
		s.CanonicalRules = 0
	}
	unset(&s.Priority, 5)
	unsetSeconds(&s.MaxHold, max(30*60, s.GetLeaseDuration().GetSeconds()))
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
