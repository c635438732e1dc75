package console

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// overview is the page of what is not well, and of what goes on.
type overview struct {
	Findings                    []shownFinding
	AllLooked, Unread           bool
	Tasks                       *pb.TaskCounts
	Rates                       *pb.Rates
	Sources, Queues, Collectors int64
	NextDue                     *timestamppb.Timestamp
	Pools                       []shownPool
	Store                       *pb.StoreInfo
	Room                        *pb.StoreRoom
	Owner                       *pb.Ownership
	Dispatcher                  *pb.DispatcherInfo
}

type shownPool struct {
	Pool  *pb.Pool
	Rates *pb.Rates
}

// shownFinding is a finding for people.
type shownFinding struct {
	Kind, Title, Level string
	Count, More        int64
	Things             []thing
	Message, Next      string
	LastError          *pb.TaskError
	Since              *timestamppb.Timestamp
}

// thing is what a finding is about, with its page; empty: it has none.
type thing struct{ Name, Page string }

// findingTitles say what is wrong, by the kind.
var findingTitles = map[pb.FindingKind]string{
	pb.FindingKind_FINDING_KIND_DISPATCHER:   "This dispatcher is about to stop",
	pb.FindingKind_FINDING_KIND_STORE:        "The store has a trouble",
	pb.FindingKind_FINDING_KIND_HELD:         "Held by somebody",
	pb.FindingKind_FINDING_KIND_COLLECTOR:    "Collectors that can do nothing",
	pb.FindingKind_FINDING_KIND_STUCK:        "Sources that are stuck",
	pb.FindingKind_FINDING_KIND_NO_COLLECTOR: "Pools without a collector",
	pb.FindingKind_FINDING_KIND_HUNG:         "Collectors that hold leases and are silent",
	pb.FindingKind_FINDING_KIND_HANDLER:      "Handlers that take too long",
	pb.FindingKind_FINDING_KIND_RELEASED:     "Tasks that are released again and again",
	pb.FindingKind_FINDING_KIND_BLOCKED:      "Hosts that are blocked after failures",
	pb.FindingKind_FINDING_KIND_NEVER:        "Sources that have never succeeded",
	pb.FindingKind_FINDING_KIND_FAILING:      "Sources that fail",
	pb.FindingKind_FINDING_KIND_BACKED_OFF:   "Sources that fail and are crawled less often",
	pb.FindingKind_FINDING_KIND_LATE:         "Sources that are late",
	pb.FindingKind_FINDING_KIND_DEAD:         "Sources with dead tasks",
	pb.FindingKind_FINDING_KIND_GONE:         "Collectors that are gone",
	pb.FindingKind_FINDING_KIND_IDLE:         "Nothing is due",
	pb.FindingKind_FINDING_KIND_UNREAD:       "Not all could be read",
	pb.FindingKind_FINDING_KIND_MOVED:        "Sources that have moved",
	pb.FindingKind_FINDING_KIND_DEAF:         "Collectors that take no work",
	pb.FindingKind_FINDING_KIND_FETCHES_FAIL: "Collectors all of whose fetches fail",
	pb.FindingKind_FINDING_KIND_CERTIFICATE:  "A certificate ends soon",
	pb.FindingKind_FINDING_KIND_CLOCK:        "The clock was stepped",
	pb.FindingKind_FINDING_KIND_PAGES_FAIL:   "Sources most of whose pages fail",
	pb.FindingKind_FINDING_KIND_ROOM:         "Room runs out",
	pb.FindingKind_FINDING_KIND_QUIET:        "Sources with nothing new",
	pb.FindingKind_FINDING_KIND_EMPTY:        "Sources whose documents are empty",
}

// findingPage is the page of each thing that a kind is about, and the parameter that names it there; empty: it has none.
func findingPage(kind pb.FindingKind) (page, parameter string) {
	switch kind {
	case pb.FindingKind_FINDING_KIND_STUCK, pb.FindingKind_FINDING_KIND_NEVER, pb.FindingKind_FINDING_KIND_FAILING, pb.FindingKind_FINDING_KIND_BACKED_OFF,
		pb.FindingKind_FINDING_KIND_LATE, pb.FindingKind_FINDING_KIND_DEAD, pb.FindingKind_FINDING_KIND_MOVED, pb.FindingKind_FINDING_KIND_PAGES_FAIL,
		pb.FindingKind_FINDING_KIND_QUIET, pb.FindingKind_FINDING_KIND_EMPTY:
		return "source", "id"
	case pb.FindingKind_FINDING_KIND_BLOCKED:
		return "queue", "name"
	case pb.FindingKind_FINDING_KIND_RELEASED:
		return "task", "id"
	case pb.FindingKind_FINDING_KIND_HELD:
		return "holds", ""
	case pb.FindingKind_FINDING_KIND_COLLECTOR, pb.FindingKind_FINDING_KIND_HUNG, pb.FindingKind_FINDING_KIND_HANDLER, pb.FindingKind_FINDING_KIND_GONE,
		pb.FindingKind_FINDING_KIND_DEAF, pb.FindingKind_FINDING_KIND_FETCHES_FAIL:
		return "collectors", ""
	default:
		return "", ""
	}
}

func (c *Console) overview(v *visit) (any, error) {
	of, err := c.looks.look(v.Context(), v.scope)
	if err != nil {
		return nil, err
	}
	out := &overview{
		AllLooked: of.findings.GetAllLookedAt(), Unread: of.findings == nil, Tasks: of.stats.GetTasks(), Rates: of.stats.GetRates(), Sources: of.findings.GetSources(),
		Queues: of.stats.GetQueues(), Collectors: of.stats.GetCollectors(), NextDue: of.findings.GetNextDueTime(),
		Store: of.stats.GetStore(), Room: of.stats.GetRoom(), Owner: of.stats.GetOwnership(), Dispatcher: of.stats.GetDispatcher(),
	}
	for _, f := range of.findings.GetFindings() {
		out.Findings = append(out.Findings, v.text.finding(f))
	}
	rates := make(map[string]*pb.Rates)
	for _, of := range of.stats.GetPoolRates() {
		rates[of.GetPool()] = of.GetRates()
	}
	for _, pool := range of.pools {
		out.Pools = append(out.Pools, shownPool{pool, rates[pool.GetName()]})
	}
	return &view{page: "overview", title: "Overview", command: "waggle status", live: true, data: out}, nil
}

func (t *texts) finding(f *pb.Finding) shownFinding {
	title, ok := findingTitles[f.GetKind()]
	if !ok { // of a newer dispatcher
		title = f.GetKind().String()
	}
	out := shownFinding{
		Kind: f.GetKind().String(), Title: t.say(title), Level: "bad", Count: f.GetCount(), More: f.GetCount() - int64(len(f.GetNames())), Message: f.GetMessage(),
		Next: f.GetNextStep(), Since: f.GetSinceTime(), LastError: f.GetSource().GetStatus().GetLastError(),
	}
	switch f.GetKind() {
	case pb.FindingKind_FINDING_KIND_HELD, pb.FindingKind_FINDING_KIND_GONE, pb.FindingKind_FINDING_KIND_IDLE, pb.FindingKind_FINDING_KIND_DISPATCHER:
		out.Level = "note"
	default:
	}
	page, parameter := findingPage(f.GetKind())
	for _, name := range f.GetNames() {
		one := thing{Name: name, Page: page}
		if parameter != "" {
			one.Page = page + "?" + parameter + "=" + escapeQuery(name)
		}
		out.Things = append(out.Things, one)
	}
	return out
}
