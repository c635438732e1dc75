package sourcefile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// column is a part of a spec as text. get gives "" for what is not set or the default, and may add an empty message to the
// spec; set is not called with "".
type column struct {
	name, what string
	get        func(*pb.SourceSpec) string
	set        func(*pb.SourceSpec, string) error
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
	return column{name, what, func(s *pb.SourceSpec) string { return spanText(*field(s)) }, func(s *pb.SourceSpec, value string) error {
		d, err := human.ParseDuration(value)
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

// list is a column with an entry a line.
func list(name, what string, field func(*pb.SourceSpec) *[]string) column {
	return column{name, what, func(s *pb.SourceSpec) string { return strings.Join(*field(s), "\n") }, func(s *pb.SourceSpec, value string) error {
		*field(s) = strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })
		return nil
	}}
}

func canonicalRules(s *pb.SourceSpec) string {
	if s.GetCanonicalRules() == 0 {
		return ""
	}
	return strconv.Itoa(int(s.GetCanonicalRules()))
}

func setCanonicalRules(s *pb.SourceSpec, value string) error {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return errors.New("is no whole number")
	}
	s.CanonicalRules = int32(n)
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

// errOneRule says that several columns say when seeds are due again.
var errOneRule = errors.New("a column before says when it is crawled again; say one of every, cron and adaptive")

func every(s *pb.SourceSpec) string { return spanText(s.GetSchedule().GetEvery()) }

func setEvery(s *pb.SourceSpec, value string) error {
	d, err := human.ParseDuration(value)
	schedule(s).Rule = &pb.Schedule_Every{Every: durationpb.New(d)}
	return err
}

func setCron(s *pb.SourceSpec, value string) error {
	if s.GetSchedule().GetRule() != nil {
		return errOneRule
	}
	schedule(s).Rule = &pb.Schedule_Cron{Cron: value}
	return nil
}

// spanText writes a duration; nothing where none is given.
func spanText(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return human.Duration(d.AsDuration())
}

func revisit(s *pb.SourceSpec) string {
	if s.GetSchedule().GetRevisit() {
		return "true"
	}
	return ""
}

func setRevisit(s *pb.SourceSpec, value string) error {
	is, err := strconv.ParseBool(value)
	if err != nil {
		return errors.New("is neither true nor false")
	}
	if is {
		schedule(s).Revisit = true
	}
	return nil
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
	shortest, err := human.ParseDuration(from)
	if err != nil {
		return err
	}
	longest, err := human.ParseDuration(to)
	schedule(s).Rule = &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{MinInterval: durationpb.New(shortest), MaxInterval: durationpb.New(longest)}}
	return err
}

func schedule(s *pb.SourceSpec) *pb.Schedule {
	if s.Schedule == nil {
		s.Schedule = &pb.Schedule{}
	}
	return s.Schedule
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

func follow(s *pb.SourceSpec) *pb.Follow {
	if s.Follow == nil {
		s.Follow = &pb.Follow{}
	}
	return s.Follow
}

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
	follow(s).AllowHosts = hosts
	return nil
}
