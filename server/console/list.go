package console

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// pageSize is how much a list shows at once.
const pageSize = 100

// pager leads to other pages of a list; empty: there is none.
type pager struct{ First, Next string }

// pager is that of a list at this address, whose next page has a token.
func (v *visit) pager(next string) pager {
	var p pager
	query := v.URL.Query()
	at := func() string {
		if len(query) == 0 {
			return strings.TrimPrefix(v.URL.Path, "/")
		}
		return "?" + query.Encode()
	}
	if next != "" {
		query.Set("page", next)
		p.Next = at()
	}
	if v.query("page") != "" {
		query.Del("page")
		p.First = at()
	}
	return p
}

// option is one of a choice.
type option struct {
	Value, Text string
	On          bool
}

// options are the values of an enum, of which one may be chosen by its word, as in TASK_STATE_DEAD "dead".
func options[E interface {
	~int32
	fmt.Stringer
}](t *texts, names map[int32]string, prefix, chosen string) (all []option, value E, found bool) {
	numbers := make([]int32, 0, len(names))
	for number := range names {
		if number != 0 {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		word := strings.ToLower(strings.TrimPrefix(names[number], prefix))
		on := word == chosen
		if on {
			value, found = E(number), true
		}
		all = append(all, option{word, t.word(E(number), prefix), on})
	}
	return all, value, found
}

type sourceListView struct {
	Prefix, Pool string
	Healths      []option
	Sources      []*pb.Source
	Pager        pager
	May          bool // change what is chosen
}

func (c *Console) sourceList(v *visit) (any, error) {
	out := &sourceListView{Prefix: v.query("prefix"), Pool: v.query("pool")}
	if own := v.c.cfg.Sources(v.Context()); out.Prefix == "" && len(own) > 0 {
		out.Prefix = own[0] // a list of all sources is refused
	}
	req := &pb.ListSourcesRequest{
		Filter: &pb.Filter{SourceIdPrefix: out.Prefix, Pool: out.Pool}, PageSize: pageSize, PageToken: v.query("page"), Gates: true,
	}
	command := "waggle source list"
	if out.Prefix != "" {
		command += " --prefix " + quoted(out.Prefix)
	}
	healths, health, chosen := options[pb.SourceHealth](v.text, pb.SourceHealth_name, "SOURCE_HEALTH_", v.query("health"))
	if out.Healths = healths; chosen {
		req.Health = append(req.Health, health)
		command += " --health " + v.query("health")
	}
	reply, err := c.sources.ListSources(v.Context(), req)
	if err != nil {
		return nil, err
	}
	out.Sources, out.Pager = reply.GetSources(), v.pager(reply.GetNextPageToken())
	page := &view{page: "sources", title: "Sources", command: command, live: true, data: out, acts: v.acts([]string{"add"}, []string{"import"})}
	if page.picks = v.acts([]string{"trigger"}, []string{"hold"}, []string{"lift"}, []string{"delete"}); len(out.Sources) > 0 && len(page.picks) > 0 {
		out.May = true
		if !chosen { // no change takes a health as its filter
			all := []string{"matching", "sources", "prefix", out.Prefix, "pool", out.Pool}
			page.matching = v.actsOn(all, "trigger", "hold", "lift", "delete")
		}
	} else {
		page.picks = nil
	}
	return page, nil
}

type queueListView struct {
	Suffix, Order string
	Held, Blocked bool
	Queues        []*pb.Queue
	Pager         pager
}

func (c *Console) queueList(v *visit) (any, error) {
	out := &queueListView{Suffix: v.query("suffix"), Order: v.query("order"), Held: v.query("held") != "", Blocked: v.query("blocked") != ""}
	req := &pb.ListQueuesRequest{Filter: &pb.Filter{QueueSuffix: out.Suffix}, PageSize: pageSize, PageToken: v.query("page"), Held: out.Held, Blocked: out.Blocked}
	command := "waggle queue list"
	switch out.Order {
	case "waiting":
		req.Order = pb.QueueOrder_QUEUE_ORDER_WAITING
		command += " --sort waiting"
	case "slow":
		req.Order = pb.QueueOrder_QUEUE_ORDER_SLOW
		command += " --sort slow"
	}
	if out.Held {
		command += " --held"
	}
	if out.Blocked {
		command += " --blocked"
	}
	reply, err := c.queues.ListQueues(v.Context(), req)
	if err != nil {
		return nil, err
	}
	out.Queues, out.Pager = reply.GetQueues(), v.pager(reply.GetNextPageToken())
	return &view{page: "queues", title: "Queues", command: command, live: true, data: out}, nil
}

// mostLooked is how many tasks are read for a page of those of a reason.
const mostLooked = 5000

type taskListView struct {
	Source, Queue   string
	States, Reasons []option
	Asks            bool // for a source or a queue
	Tasks           []*pb.Task
	Pager           pager
	May             bool // change what is chosen
}

func (c *Console) taskList(v *visit) (any, error) {
	out := &taskListView{Source: v.query("source"), Queue: v.query("queue")}
	filter := &pb.Filter{SourceId: out.Source, Queue: out.Queue}
	command := "waggle task list"
	for _, flag := range [][2]string{{"source", out.Source}, {"queue", out.Queue}, {"state", v.query("state")}} {
		if flag[1] != "" {
			command += " --" + flag[0] + " " + quoted(flag[1])
		}
	}
	states, state, chosen := options[pb.TaskState](v.text, pb.TaskState_name, "TASK_STATE_", v.query("state"))
	out.States = slices.DeleteFunc(states, func(o option) bool { return o.Value == "done" }) // which are not listed
	if chosen {
		filter.States = append(filter.States, state)
	}
	reasons, reason, chosen := options[pb.FailureReason](v.text, pb.FailureReason_name, "FAILURE_REASON_", v.query("reason"))
	out.Reasons = reasons
	shown := &view{page: "tasks", title: "Tasks", command: command, live: true, data: out}
	if out.Asks = out.Source+out.Queue == ""; out.Asks {
		return shown, nil // a list of the tasks of all sources would have to read them all
	}
	// No call lists tasks by the reason of their last failure: of those that are read, the others are left out.
	next, looked := v.query("page"), 0
	for {
		reply, err := c.tasks.ListTasks(v.Context(), &pb.ListTasksRequest{Filter: filter, PageSize: pageSize, PageToken: next})
		if err != nil {
			return nil, err
		}
		for _, task := range reply.GetTasks() {
			if !chosen || task.GetLastError().GetReason() == reason {
				out.Tasks = append(out.Tasks, task)
			}
		}
		looked += len(reply.GetTasks())
		if next = reply.GetNextPageToken(); next == "" || !chosen || len(out.Tasks) >= pageSize || looked >= mostLooked {
			break
		}
	}
	out.Pager = v.pager(next)
	if shown.picks = v.acts([]string{"cancel"}, []string{"retry"}, []string{"revoke"}); len(out.Tasks) > 0 && len(shown.picks) > 0 {
		out.May = true
		all := []string{"matching", "tasks", "source", out.Source, "queue", out.Queue, "state", v.query("state"), "reason_of", v.query("reason")}
		shown.matching = v.actsOn(all, taskChangesOf(v.query("state"))...)
	} else {
		shown.picks = nil
	}
	return shown, nil
}

type collectorListView struct {
	Collectors []*pb.Collector
	Leases     []*pb.HeldLease
	Pager      pager
	May        bool // hold and release them
}

// oldestLeases are so many.
const oldestLeases = 20

func (c *Console) collectorList(v *visit) (any, error) {
	reply, err := c.admin.ListCollectors(v.Context(), &pb.ListCollectorsRequest{PageSize: pageSize, PageToken: v.query("page")})
	if err != nil {
		return nil, err
	}
	leases, err := c.admin.ListLeases(v.Context(), &pb.ListLeasesRequest{PageSize: oldestLeases})
	if err != nil {
		return nil, err
	}
	out := &collectorListView{reply.GetCollectors(), leases.GetLeases(), v.pager(reply.GetNextPageToken()), v.may("hold", "release")}
	return &view{page: "collectors", title: "Collectors", command: "waggle collector list", live: true, data: out}, nil
}

type holdListView struct {
	Holds []*pb.Hold
	Pager pager
	May   bool // lift them
}

func (c *Console) holdList(v *visit) (any, error) {
	reply, err := c.holds.ListHolds(v.Context(), &pb.ListHoldsRequest{PageSize: pageSize, PageToken: v.query("page")})
	if err != nil {
		return nil, err
	}
	out := &holdListView{reply.GetHolds(), v.pager(reply.GetNextPageToken()), v.may("lift")}
	return &view{page: "holds", title: "Holds", command: "waggle hold list", live: true, data: out, acts: v.acts([]string{"hold", "choose", "1"})}, nil
}

type ruleListView struct {
	Rules []*pb.QueueRule
	Pager pager
	May   bool // set and delete them
}

func (c *Console) ruleList(v *visit) (any, error) {
	reply, err := c.queues.ListQueueRules(v.Context(), &pb.ListQueueRulesRequest{PageSize: pageSize, PageToken: v.query("page")})
	if err != nil {
		return nil, err
	}
	out := &ruleListView{reply.GetRules(), v.pager(reply.GetNextPageToken()), v.may("rule", "unrule")}
	return &view{page: "rules", title: "Rules", command: "waggle queue rule list", data: out, acts: v.acts([]string{"rule"})}, nil
}

type auditListView struct {
	By      string
	Entries []*pb.AuditEntry
	Pager   pager
}

func (c *Console) auditList(v *visit) (any, error) {
	out := &auditListView{By: v.query("by")}
	reply, err := c.admin.ListAuditEntries(v.Context(), &pb.ListAuditEntriesRequest{By: out.By, PageSize: pageSize, PageToken: v.query("page")})
	if err != nil {
		return nil, err
	}
	out.Entries, out.Pager = reply.GetEntries(), v.pager(reply.GetNextPageToken())
	return &view{page: "audit", title: "Audit", command: "waggle audit", data: out}, nil
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if word != "" && strings.IndexFunc(word, func(r rune) bool {
		return !strings.ContainsRune("-._/:@", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// webURL reports whether a text is an address that a browser may open.
func webURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
