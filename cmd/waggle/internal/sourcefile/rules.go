package sourcefile

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func scheduleColumns() []column {
	return []column{
		{"every", "crawl again at this interval, as 10m, 1h, 7d", every, setEvery},
		{"cron", "crawl again by five cron fields, or @daily", func(s *pb.SourceSpec) string { return s.GetSchedule().GetCron() }, setCron},
		{"adaptive", "crawl again as often as the page changes, within bounds as 10m..7d", adaptive, setAdaptive},
		{"jitter", "let each be due up to so much later, as 5m", jitter, setJitter},
		{"time_zone", "the IANA zone of cron", func(s *pb.SourceSpec) string { return s.GetSchedule().GetTimeZone() }, func(s *pb.SourceSpec, value string) error {
			schedule(s).TimeZone = value
			return nil
		}},
		{"revisit", "true: each cycle crawls the pages found again", revisit, setRevisit},
		{"first_crawl", "now, or spread within the first interval", firstCrawl, setFirstCrawl},
	}
}

// errOneRule says that several columns say when seeds are due again.
var errOneRule = errors.New("a column before says when it is crawled again; say one of every, cron and adaptive")

func every(s *pb.SourceSpec) string { return spanText(s.GetSchedule().GetEvery()) }

func setEvery(s *pb.SourceSpec, value string) error {
	d, err := duration.Parse(value)
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

func jitter(s *pb.SourceSpec) string { return spanText(s.GetSchedule().GetJitter()) }

func setJitter(s *pb.SourceSpec, value string) error {
	d, err := duration.Parse(value)
	schedule(s).Jitter = durationpb.New(d)
	return err
}

// spanText writes a duration; nothing where none is given.
func spanText(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return duration.Format(d.AsDuration())
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
	return duration.Format(a.GetMinInterval().AsDuration()) + ".." + duration.Format(a.GetMaxInterval().AsDuration())
}

func setAdaptive(s *pb.SourceSpec, value string) error {
	if s.GetSchedule().GetRule() != nil {
		return errOneRule
	}
	from, to, ok := strings.Cut(value, "..")
	if !ok {
		return errors.New("is no range, as 10m..7d")
	}
	shortest, err := duration.Parse(from)
	if err != nil {
		return err
	}
	longest, err := duration.Parse(to)
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

func followColumns() []column {
	list := func(name, what string, field func(*pb.Follow) *[]string) column {
		return column{name, what, func(s *pb.SourceSpec) string {
			if s.GetFollow() == nil {
				return ""
			}
			return strings.Join(*field(s.GetFollow()), "\n")
		}, func(s *pb.SourceSpec, value string) error {
			*field(follow(s)) = strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })
			return nil
		}}
	}
	return []column{
		{"follow", "follow links: seeds (to their hosts), or hosts, *.suffix or * with spaces between them", followed, setFollowed},
		{"max_depth", "follow links up to this depth; seeds have 0", func(s *pb.SourceSpec) string {
			if f := s.GetFollow(); f != nil && f.MaxDepth != nil {
				return strconv.Itoa(int(f.GetMaxDepth()))
			}
			return ""
		}, func(s *pb.SourceSpec, value string) error {
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return errors.New("is no whole number")
			}
			depth := int32(n)
			follow(s).MaxDepth = &depth
			return nil
		}},
		list("include", "follow only URLs that match one of these regular expressions, one a line", func(f *pb.Follow) *[]string { return &f.Include }),
		list("exclude", "follow no URL that matches one of these regular expressions, one a line", func(f *pb.Follow) *[]string { return &f.Exclude }),
	}
}

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
