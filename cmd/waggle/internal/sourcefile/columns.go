package sourcefile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Column is a column of a CSV: a field of a spec, as text.
type Column struct {
	// Name stands in the header.
	Name string
	// What is the column's help.
	What string

	path string // of the field, as follow.include
}

// Columns are all that a CSV may have. A column of seeds comes after their URLs: it is of those that are there.
func Columns() []Column {
	return []Column{
		{"id", "the source's id", "id"},
		{"url", "where crawling begins; several with spaces between them", "seeds.url"},
		{"kind", "what its seeds are to the collector: feed, sitemap, list", "seeds.kind"},
		{"queue", "the queue of its seeds, in place of their host's", "seeds.queue"},
		{"name", "a name for people", "display_name"},
		{"labels", "key=value; several with semicolons between them, %3B for one in a value", "labels"},
		{"scope", "the scope whose keys it shares", "scope"},
		{"canonical_rules", "the number of the rules by which URLs become keys", "canonical_rules"},
		{"pool", "which collectors may take its tasks", "pool"},
		{"priority", "0 to 9, higher first", "priority"},
		{"metadata", "key=value, handed out with every task; several with semicolons between them", "metadata"},

		{"every", "crawl again at this interval, as 10m, 1h, 7d", "schedule.every"},
		{"cron", "crawl again by five cron fields, or @daily", "schedule.cron"},
		{"adaptive", "crawl again as often as the page changes, within bounds as 10m..7d", "schedule.adaptive"},
		{"jitter", "let each be due up to so much later, as 5m", "schedule.jitter"},
		{"time_zone", "the IANA zone of cron", "schedule.time_zone"},
		{"revisit", "true: each cycle crawls the pages found again", "schedule.revisit"},
		{"first_crawl", "now, or spread within the first interval (cron: at the first tick)", "first_crawl"},

		{"follow", "follow links: seeds (to their hosts), or hosts, *.suffix or * with spaces between them", "follow.allow_hosts"},
		{"max_depth", "follow links up to this depth; seeds have 0", "follow.max_depth"},
		{"include", "follow only URLs that match one of these regular expressions, one a line", "follow.include"},
		{"exclude", "follow no URL that matches one of these regular expressions, one a line", "follow.exclude"},

		{"lease_duration", "how long a lease runs between renewals", "lease_duration"},
		{"max_hold", "how long a lease can be held by renewals", "max_hold"},
		{"max_attempts", "failures that a task may have", "retry.max_attempts"},
		{"max_expirations", "leases of a task that may expire", "retry.max_expirations"},
		{"max_throttled", "times that a task's URL or host may fail", "retry.max_throttled"},
		{"min_backoff", "wait before the second attempt", "retry.min_backoff"},
		{"max_backoff", "longest wait between attempts", "retry.max_backoff"},
		{"remember", "how long a settled task is remembered", "remember"},
		{"revisit_after", "a task done longer ago is due again when met", "revisit_after"},
		{"quiet_after", "nothing new for so long makes it QUIET", "quiet_after"},
		{"max_outstanding", "tasks that may wait, per shard", "max_outstanding"},
	}
}

// aliases are other names of columns, as other programs write them.
func aliases() map[string]string {
	return map[string]string{
		"seeds": "url", "seed": "url", "xmlurl": "url", "feed": "url", "title": "name", "display_name": "name",
		"interval": "every", "schedule": "cron", "timezone": "time_zone", "depth": "max_depth",
	}
}

// columnNamed finds a column by its name or another name of it, in any case, with spaces or hyphens for underscores.
func columnNamed(name string) (Column, bool) {
	name = strings.NewReplacer(" ", "_", "-", "_").Replace(strings.ToLower(strings.TrimSpace(name)))
	if full, is := aliases()[name]; is {
		name = full
	}
	all := Columns()
	i := slices.IndexFunc(all, func(c Column) bool { return c.Name == name })
	if i < 0 {
		return Column{}, false
	}
	return all[i], true
}

func columnNames() (names []string) {
	for _, c := range Columns() {
		names = append(names, c.Name)
	}
	return names
}

// fromRow is the spec that texts make, by the name of their column. What is wrong is left out; the error is the first.
func fromRow(texts map[string]string) (*pb.SourceSpec, error) {
	s := &pb.SourceSpec{}
	var wrong error
	for _, c := range Columns() {
		value := strings.TrimSpace(texts[c.Name])
		if value == "" {
			continue
		}
		if err := c.set(s, value); err != nil && wrong == nil {
			wrong = fmt.Errorf("%s %.80q: %w", c.Name, value, err)
		}
	}
	return s, wrong
}

// ownHosts stands in the column follow for the hosts of the seeds.
const ownHosts = "seeds"

// get is the text of a column; empty if its field is not set.
func (c Column) get(s *pb.SourceSpec) string {
	m := s.ProtoReflect()
	outer, inner, nested := strings.Cut(c.path, ".")
	f := field(m, outer)
	switch {
	case !m.Has(f):
		return ""
	case outer == "seeds":
		return seedsText(s.GetSeeds(), inner)
	case nested:
		m = m.Get(f).Message()
		f = field(m, inner)
	}
	if !m.Has(f) {
		if c.Name == "follow" {
			return ownHosts
		}
		return ""
	}
	return fieldText(f, m.Get(f))
}

// set sets the field of a column, and makes the message around it.
func (c Column) set(s *pb.SourceSpec, text string) error {
	m := s.ProtoReflect()
	outer, inner, nested := strings.Cut(c.path, ".")
	switch {
	case outer == "seeds":
		setSeeds(s, inner, text)
		return nil
	case text == "false" && c.Name == "revisit", c.Name == "follow" && (text == "false" || text == "no"):
		return nil // the default, and no reason for a schedule or a follow rule
	case nested:
		m, outer = m.Mutable(field(m, outer)).Message(), inner
	}
	if c.Name == "follow" && (text == ownHosts || text == "true" || text == "yes") {
		return nil
	}
	return setField(m, field(m, outer), text)
}

func field(m protoreflect.Message, name string) protoreflect.FieldDescriptor {
	return m.Descriptor().Fields().ByName(protoreflect.Name(name))
}

// seedsText is the URLs of seeds, or what else the first of them has.
func seedsText(seeds []*pb.Seed, name string) string {
	if name != "url" {
		m := seeds[0].ProtoReflect()
		return m.Get(field(m, name)).String()
	}
	var urls []string
	for _, seed := range seeds {
		urls = append(urls, seed.GetUrl())
	}
	return strings.TrimSpace(strings.Join(urls, " "))
}

// setSeeds adds seeds by their URLs, or sets a field of all of them.
func setSeeds(s *pb.SourceSpec, name, text string) {
	if name == "url" {
		for _, url := range strings.Fields(text) {
			s.Seeds = append(s.Seeds, &pb.Seed{Url: url})
		}
		return
	}
	for _, seed := range s.GetSeeds() {
		m := seed.ProtoReflect()
		m.Set(field(m, name), protoreflect.ValueOfString(text))
	}
}

// separators stand between the entries of a list: hosts have no spaces, regular expressions may.
func separators(f protoreflect.FieldDescriptor) string {
	if f.Name() == "allow_hosts" {
		return " \t\r\n"
	}
	return "\n\r"
}

func fieldText(f protoreflect.FieldDescriptor, value protoreflect.Value) string {
	var parts []string
	switch {
	case f.IsList():
		for i := range value.List().Len() {
			parts = append(parts, value.List().Get(i).String())
		}
		return strings.Join(parts, separators(f)[:1])
	case f.IsMap():
		escape := strings.NewReplacer("%", "%25", ";", "%3B") // a value may hold what stands between pairs
		value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			parts = append(parts, key.String()+"="+escape.Replace(value.String()))
			return true
		})
		slices.Sort(parts)
		return strings.Join(parts, ";")
	case f.Enum() != nil:
		return strings.ToLower(strings.TrimPrefix(string(f.Enum().Values().ByNumber(value.Enum()).Name()), enumPrefix))
	case f.Message() == nil:
		return value.String()
	}
	if a, is := value.Message().Interface().(*pb.Adaptive); is {
		return duration.Text(a.GetMinInterval().AsDuration()) + ".." + duration.Text(a.GetMaxInterval().AsDuration())
	}
	return duration.Text(value.Message().Interface().(*durationpb.Duration).AsDuration())
}

// enumPrefix begins the values of the one enum of a spec.
const enumPrefix = "FIRST_CRAWL_"

func setField(m protoreflect.Message, f protoreflect.FieldDescriptor, text string) error {
	if rule := f.ContainingOneof(); rule != nil && !rule.IsSynthetic() && m.WhichOneof(rule) != nil {
		return errors.New("a column before says when it is crawled again; say one of every, cron and adaptive")
	}
	switch {
	case f.IsList():
		for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(separators(f), r) }) {
			m.Mutable(f).List().Append(protoreflect.ValueOfString(part))
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
	default:
		value, err := parseScalar(f, text)
		if err != nil {
			return err
		}
		m.Set(f, value)
	}
	return nil
}

// parseScalar reads the value of a field that is neither a list nor a map.
func parseScalar(f protoreflect.FieldDescriptor, text string) (none protoreflect.Value, err error) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text), nil
	case protoreflect.BoolKind:
		is, err := strconv.ParseBool(text)
		if err != nil {
			return none, errors.New("is neither true nor false")
		}
		return protoreflect.ValueOfBool(is), nil
	case protoreflect.EnumKind:
		value := f.Enum().Values().ByName(protoreflect.Name(enumPrefix + strings.ToUpper(text)))
		if value == nil || value.Number() == 0 {
			return none, errors.New("is neither now nor spread")
		}
		return protoreflect.ValueOfEnum(value.Number()), nil
	case protoreflect.MessageKind:
		if f.Message().Name() == "Adaptive" {
			return parseAdaptive(text)
		}
		d, err := duration.Parse(text)
		return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), err
	case protoreflect.Int32Kind:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return none, errors.New("is no whole number")
		}
		return protoreflect.ValueOfInt32(int32(n)), nil
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return none, errors.New("is no whole number")
		}
		return protoreflect.ValueOfInt64(n), nil
	}
}

func parseAdaptive(text string) (none protoreflect.Value, err error) {
	from, to, ok := strings.Cut(text, "..")
	if !ok {
		return none, errors.New("is no range, as 10m..7d")
	}
	shortest, err := duration.Parse(from)
	if err != nil {
		return none, err
	}
	longest, err := duration.Parse(to)
	a := &pb.Adaptive{MinInterval: durationpb.New(shortest), MaxInterval: durationpb.New(longest)}
	return protoreflect.ValueOfMessage(a.ProtoReflect()), err
}
