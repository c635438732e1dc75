package sourcefile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
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
		field("id", "the source's id", "id"),
		{"url", "where crawling begins; several with spaces between them", seedURLs, setSeedURLs},
		seeds("kind", "what its seeds are to the collector: feed, sitemap, list", func(s *pb.Seed) *string { return &s.Kind }),
		seeds("queue", "the queue of its seeds, in place of their host's", func(s *pb.Seed) *string { return &s.Queue }),
		field("name", "a name for people", "display_name"),
		field("labels", "key=value; several with semicolons between them, %3B for one in a value", "labels"),
		field("scope", "the scope whose keys it shares", "scope"),
		field("canonical_rules", "the number of the rules by which URLs become keys", "canonical_rules"),
		field("pool", "which collectors may take its tasks", "pool"),
		field("priority", "0 to 9, higher first", "priority"),
		field("metadata", "key=value, handed out with every task; several with semicolons between them", "metadata"),

		field("every", "crawl again at this interval, as 10m, 1h, 7d", "schedule.every"),
		field("cron", "crawl again by five cron fields, or @daily", "schedule.cron"),
		{"adaptive", "crawl again as often as the page changes, within bounds as 10m..7d", adaptive, setAdaptive},
		field("jitter", "let each be due up to so much later, as 5m", "schedule.jitter"),
		field("time_zone", "the IANA zone of cron", "schedule.time_zone"),
		field("revisit", "true: each cycle crawls the pages found again", "schedule.revisit"),
		{"first_crawl", "now, or spread within the first interval", firstCrawl, setFirstCrawl},

		{"follow", "follow links: seeds (to their hosts), or hosts, *.suffix or * with spaces between them", followed, setFollowed},
		field("max_depth", "follow links up to this depth; seeds have 0", "follow.max_depth"),
		field("include", "follow only URLs that match one of these regular expressions, one a line", "follow.include"),
		field("exclude", "follow no URL that matches one of these regular expressions, one a line", "follow.exclude"),

		field("lease_duration", "how long a lease runs between renewals", "lease_duration"),
		field("max_hold", "how long a lease can be held by renewals", "max_hold"),
		field("max_attempts", "failures that a task may have", "retry.max_attempts"),
		field("max_expirations", "leases of a task that may expire", "retry.max_expirations"),
		field("max_throttled", "times that a task's host may fail", "retry.max_throttled"),
		field("min_backoff", "wait before the second attempt", "retry.min_backoff"),
		field("max_backoff", "longest wait between attempts", "retry.max_backoff"),
		field("remember", "how long a settled task is remembered", "remember"),
		field("revisit_after", "a task done longer ago is due again when met", "revisit_after"),
		field("max_outstanding", "tasks that may wait, per shard", "max_outstanding"),
	}
}

func columnNames() string {
	var all []string
	for _, c := range columns() {
		all = append(all, c.name)
	}
	return strings.Join(all, ", ")
}

// row is a spec as the text of each column, by its name.
func row(spec *pb.SourceSpec) map[string]string {
	s, texts := Minimal(spec), map[string]string{}
	for _, c := range columns() {
		texts[c.name] = c.get(s)
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

// lost are the fields of a spec that are other in what is read back.
func lost(spec, back *pb.SourceSpec) (differ []string) {
	a, b := Minimal(spec).ProtoReflect(), Minimal(back).ProtoReflect()
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

// Minimal is a spec without what would be the same if it were left out, but for first_crawl: what reads it back may have a
// default of its own for that.
func Minimal(spec *pb.SourceSpec) *pb.SourceSpec {
	s := proto.CloneOf(spec)
	if s.GetPool() == "default" {
		s.Pool = ""
	}
	textfile.Unset(&s.Priority, 5)
	textfile.UnsetDuration(&s.MaxHold, max(30*time.Minute, s.GetLeaseDuration().AsDuration()))
	textfile.UnsetDuration(&s.LeaseDuration, 30*time.Second)
	textfile.UnsetDuration(&s.Remember, 30*24*time.Hour)
	if r := s.Retry; r != nil {
		textfile.Unset(&r.MaxAttempts, 4)
		textfile.Unset(&r.MaxExpirations, 5)
		textfile.Unset(&r.MaxThrottled, 20)
		most := max(time.Hour, r.GetMinBackoff().AsDuration())
		textfile.UnsetDuration(&r.MinBackoff, 10*time.Second)
		textfile.UnsetDuration(&r.MaxBackoff, most)
		if proto.Size(r) == 0 {
			s.Retry = nil
		}
	}
	return s
}

// column is a part of a spec as text. get gives "" for what is not set or the default; set is not called with "".
type column struct {
	name, what string
	get        func(*pb.SourceSpec) string
	set        func(*pb.SourceSpec, string) error
}

// field is a column of the field of a spec at a path, as "follow.include": lists have an entry a line.
func field(name, what, path string) column {
	return column{
		name, what,
		func(s *pb.SourceSpec) string { return fieldText(fieldAt(s, path, protoreflect.Message.Get)) },
		func(s *pb.SourceSpec, value string) error {
			if is, err := strconv.ParseBool(value); path == "schedule.revisit" && err == nil && !is {
				return nil // it is the default, and no reason for a schedule
			}
			m, f := fieldAt(s, path, protoreflect.Message.Mutable)
			return setField(m, f, value)
		},
	}
}

// fieldAt is the field at a path and the message that has it, which open reads or makes.
func fieldAt(s *pb.SourceSpec, path string, open func(protoreflect.Message, protoreflect.FieldDescriptor) protoreflect.Value) (protoreflect.Message, protoreflect.FieldDescriptor) {
	m := s.ProtoReflect()
	if outer, inner, nested := strings.Cut(path, "."); nested {
		path = inner
		m = open(m, m.Descriptor().Fields().ByName(protoreflect.Name(outer))).Message()
	}
	return m, m.Descriptor().Fields().ByName(protoreflect.Name(path))
}

func fieldText(m protoreflect.Message, f protoreflect.FieldDescriptor) string {
	var parts []string
	switch value := m.Get(f); {
	case !m.Has(f):
		return ""
	case f.IsList():
		for i := range value.List().Len() {
			parts = append(parts, value.List().Get(i).String())
		}
		return strings.Join(parts, "\n")
	case f.IsMap():
		escape := strings.NewReplacer("%", "%25", ";", "%3B") // a value may hold what stands between pairs
		value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			parts = append(parts, key.String()+"="+escape.Replace(value.String()))
			return true
		})
		slices.Sort(parts)
		return strings.Join(parts, ";")
	case f.Message() != nil:
		return human.Duration(value.Message().Interface().(*durationpb.Duration).AsDuration())
	default:
		return value.String()
	}
}

// errOneRule says that several columns say when seeds are due again.
var errOneRule = errors.New("a column before says when it is crawled again; say one of every, cron and adaptive")

func setField(m protoreflect.Message, f protoreflect.FieldDescriptor, text string) error {
	if rule := f.ContainingOneof(); rule != nil && !rule.IsSynthetic() && m.WhichOneof(rule) != nil {
		return errOneRule
	}
	switch {
	case f.IsList():
		for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
			m.Mutable(f).List().Append(protoreflect.ValueOfString(line))
		}
	case f.IsMap():
		plain := strings.NewReplacer("%25", "%", "%3B", ";")
		for pair := range strings.SplitSeq(text, ";") {
			key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
			if !ok || key == "" {
				return fmt.Errorf("%q is not key=value", pair)
			}
			m.Mutable(f).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(plain.Replace(value)))
		}
	case f.Message() != nil:
		d, err := human.ParseDuration(text)
		if err != nil {
			return err
		}
		m.Set(f, protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()))
	case f.Kind() == protoreflect.StringKind:
		m.Set(f, protoreflect.ValueOfString(text))
	case f.Kind() == protoreflect.BoolKind:
		is, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("is neither true nor false")
		}
		m.Set(f, protoreflect.ValueOfBool(is))
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		number := protoreflect.ValueOfInt64(n)
		if f.Kind() == protoreflect.Int32Kind {
			number = protoreflect.ValueOfInt32(int32(n))
		}
		if err != nil || number.Int() != n {
			return errors.New("is no whole number")
		}
		m.Set(f, number)
	}
	return nil
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

// seeds is a column of what all seeds of a source have in common. It is set after the seeds are: columns are set in their
// own order, not in that of the file.
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

func adaptive(s *pb.SourceSpec) string {
	a := s.GetSchedule().GetAdaptive()
	if a == nil {
		return ""
	}
	return human.Duration(a.GetMinInterval().AsDuration()) + ".." + human.Duration(a.GetMaxInterval().AsDuration())
}

func setAdaptive(s *pb.SourceSpec, value string) error {
	if s.GetSchedule().GetRule() != nil {
		return errOneRule
	}
	from, to, ok := strings.Cut(value, "..")
	if !ok {
		return errors.New("is no range, as 10m..7d")
	}
	shortest, shortErr := human.ParseDuration(from)
	longest, longErr := human.ParseDuration(to)
	s.Schedule = cmp.Or(s.GetSchedule(), &pb.Schedule{})
	s.Schedule.Rule = &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{MinInterval: durationpb.New(shortest), MaxInterval: durationpb.New(longest)}}
	return cmp.Or(shortErr, longErr)
}

func firstCrawl(s *pb.SourceSpec) string {
	if s.GetFirstCrawl() == pb.FirstCrawl_FIRST_CRAWL_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(s.GetFirstCrawl().String(), "FIRST_CRAWL_"))
}

func setFirstCrawl(s *pb.SourceSpec, value string) error {
	switch strings.ToLower(value) {
	case "now":
		s.FirstCrawl = pb.FirstCrawl_FIRST_CRAWL_NOW
	case "spread":
		s.FirstCrawl = pb.FirstCrawl_FIRST_CRAWL_SPREAD
	default:
		return errors.New("is neither now nor spread")
	}
	return nil
}

// ownHosts stands in the column follow for the hosts of the seeds.
const ownHosts = "seeds"

func followed(s *pb.SourceSpec) string {
	switch {
	case s.GetFollow() == nil:
		return ""
	case len(s.GetFollow().GetAllowHosts()) == 0:
		return ownHosts
	}
	return strings.Join(s.GetFollow().GetAllowHosts(), " ")
}

func setFollowed(s *pb.SourceSpec, value string) error {
	hosts := strings.Fields(value)
	switch {
	case slices.Equal(hosts, []string{ownHosts}), value == "true", value == "yes":
		hosts = nil
	case value == "false", value == "no":
		return nil
	}
	s.Follow = cmp.Or(s.GetFollow(), &pb.Follow{})
	s.Follow.AllowHosts = hosts
	return nil
}
